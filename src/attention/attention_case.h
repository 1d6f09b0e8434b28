// For the tests of attention: what one test varies, and the rows that its steps compute.
//
// Thread:     values.
// Memory:     a few strings and numbers.
// Cost:       none.
// Not here:   computing them (attention_fixture).
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "attention/sparse_dial.h"
#include "base/prng.h"
#include "stemma/kv_shape.h"

namespace stemma {

// The first `tokens` of a sequence are those of another one before it: the same K and V.
struct SharedBegin {
  std::size_t sequence = 0;
  std::size_t with = 0;
  std::int64_t tokens = 0;  // whole pages
};

struct AttentionCase {
  std::string name = "cpu";
  AttentionShape shape = {.query_heads = 4, .kv_heads = 2, .head_dim = 64, .scale = 0.125f};
  DType dtype = DType::kF32;
  KvLayout layout = KvLayout::kLayerFirst;
  std::int64_t page_size = 16;
  int threads = 1;
  std::uint64_t placement_seed = 1;  // where pages lie
  float value_magnitude = 1;         // by what V is multiplied
  bool whole = false;                // Q, K and V are -1, 0 and 1, so that sums are exact
  // Sparse attention, with labels of 8 channels of each head.
  std::optional<SparseDial> dial = {};
  std::vector<SharedBegin> shared = {};
  bool on_shared_pages = true;  // or each sequence on pages of its own, which hold the same
};

// The rows that one step computes of one sequence.
struct StepRows {
  std::size_t sequence = 0;
  std::int64_t rows = 0;
};
using Step = std::vector<StepRows>;

// Values of −2 … 2 that depend on the seed alone; whole ones are −1, 0 and 1.
inline std::vector<float> random_values(std::uint64_t seed, std::int64_t count,
                                        bool whole = false) {
  Prng prng(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    value = static_cast<float>(prng.unit() * 4 - 2);
    if (whole) value = std::round(value / 2);
  }
  return values;
}

}  // namespace stemma
