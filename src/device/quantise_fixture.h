// Matrices of rounded weights for tests: of every format, those that files choose codes for too.
//
// Thread:     pure functions, spread over a pool.
// Memory:     the matrix once.
// Cost:       that of rounding.
// Not here:   products (gemm_fixture.h).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/float16.h"
#include "base/thread_pool.h"
#include "device/packed_weights.h"

namespace stemma {

// A file's choice of codes, from each group's least value to its largest: [n, groups].
struct ChosenCodes {
  std::vector<BFloat16> scales;
  std::vector<std::int8_t> shifts;
};

inline ChosenCodes chosen_codes(std::span<const float> weights, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kGroup = PackedWeights::kGroupInputs;
  ChosenCodes chosen;
  for (std::int64_t row = 0; row < n; ++row) {
    for (std::int64_t first = 0; first < k; first += kGroup) {
      const auto begin = weights.begin() + row * k + first;
      const auto [least, largest] = std::minmax_element(begin, begin + std::min(kGroup, k - first));
      const float below = std::min(0.0f, *least);
      chosen.scales.push_back(to_bfloat16((std::max(0.0f, *largest) - below) / 15));
      const float scale = to_float(chosen.scales.back());
      const auto zero = scale == 0 ? 0 : std::clamp(std::lrint(-below / scale), 0L, 15L);
      chosen.shifts.push_back(static_cast<std::int8_t>(8 - zero));
    }
  }
  return chosen;
}

// `weights` [n, k] in that format.
inline PackedWeights quantised_matrix(std::span<const float> weights, std::int64_t n,
                                      std::int64_t k, WeightFormat format, ThreadPool& pool) {
  StoredMatrix stored = {.weights = weights.data(), .type = WeightType::kF32, .n = n, .k = k};
  ChosenCodes chosen;
  if (format == WeightFormat::kInt4Shifted) {
    chosen = chosen_codes(weights, n, k);
    stored.scales_or_null = chosen.scales.data();
    stored.shifts_or_null = chosen.shifts.data();
  }
  RoundingError unused;
  auto packed = PackedWeights::quantise(stored, format, pool, unused);
  EXPECT_TRUE(packed.ok());
  return std::move(packed).value();
}

}  // namespace stemma
