// RowLedger: which bytes a token's rows of K and V are, given what the token is: a number that
// names its namespace and every token up to it. Whoever finds a token cached can so tell whether
// what lies in its slot was computed for exactly that prefix.
//
// Thread:     tests.
// Memory:     the bytes of each row that was ever asked for.
// Cost:       a row that is new: a store into a pool of one token.
// Not here:   what the number is (embedded_model), where rows lie (embedded_engine).
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "stemma/c.h"

namespace stemma {

// The bytes of one token in one layer of a pool, heads, K and V and scales behind each other.
inline std::string row_at(const stemma_layer& view, std::size_t element_bytes, std::int64_t slot) {
  std::string bytes;
  const std::int64_t page = slot / view.page_size;
  const std::int64_t offset = slot % view.page_size;
  const auto add = [&](const void* begin, std::int64_t elements, std::size_t each) {
    if (begin == nullptr) return;
    bytes.append(static_cast<const char*>(begin), static_cast<std::size_t>(elements) * each);
  };
  for (std::int64_t head = 0; head < view.heads; ++head) {
    const std::int64_t at =
        page * view.page_stride + offset * view.token_stride + head * view.head_stride;
    const auto first = static_cast<std::size_t>(at) * element_bytes;
    add(static_cast<const char*>(view.k) + first, view.head_dim, element_bytes);
    add(static_cast<const char*>(view.v) + first, view.value_dim, element_bytes);
    const std::int64_t scale =
        page * view.scale_page_stride + offset + head * view.scale_head_stride;
    if (view.k_scales != nullptr) add(view.k_scales + scale, 1, sizeof(float));
    if (view.v_scales != nullptr) add(view.v_scales + scale, 1, sizeof(float));
  }
  return bytes;
}

inline std::size_t element_bytes_of(std::int32_t dtype) {
  if (dtype == STEMMA_F32) return 4;
  return dtype == STEMMA_F16 || dtype == STEMMA_BF16 ? 2 : 1;
}

// Numbers of K and V that every format stores.
struct RowNumbers {
  std::vector<float> k;
  std::vector<float> v;
};

class RowLedger {
 public:
  // `options` are those of the pool whose rows it tells.
  explicit RowLedger(stemma_pool_options options) : options_(options) {
    options.pages = 1;
    options.page_size = 1;
    EXPECT_EQ(stemma_pool_open(&options, &pool_), STEMMA_OK) << stemma_last_error();
  }
  ~RowLedger() { stemma_pool_close(pool_); }
  RowLedger(const RowLedger&) = delete;
  RowLedger& operator=(const RowLedger&) = delete;

  // Of the token that `name` names, in a layer.
  RowNumbers numbers(std::uint64_t name, std::int64_t layer) const {
    Prng prng(mix64(name ^ mix64(static_cast<std::uint64_t>(layer) + 11)));
    RowNumbers row;
    const auto draw = [&prng](std::vector<float>& into, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        into.push_back(static_cast<float>(prng.below(201) - 100) / 4);
      }
    };
    draw(row.k, options_.heads * options_.head_dim);
    if (options_.kind == STEMMA_MHA) draw(row.v, options_.heads * options_.head_dim);
    return row;
  }

  // What a pool has of them, wherever they lie in it.
  const std::string& bytes(std::uint64_t name, std::int64_t layer) {
    const auto [place, is_new] = known_.try_emplace({name, layer});
    if (!is_new) return place->second;
    store(pool_, layer, 0, name);
    stemma_layer view = {};
    view.struct_size = sizeof(view);
    EXPECT_EQ(stemma_pool_layer(pool_, layer, &view), STEMMA_OK);
    place->second = row_at(view, element_bytes_of(options_.dtype), 0);
    return place->second;
  }

  // Computes the token into a slot.
  void store(stemma_pool* pool, std::int64_t layer, std::int64_t slot, std::uint64_t name) const {
    const RowNumbers row = numbers(name, layer);
    const void* const v = row.v.empty() ? nullptr : row.v.data();
    ASSERT_EQ(stemma_pool_store(pool, layer, &slot, 1, row.k.data(), v, STEMMA_F32,
                                options_.heads * options_.head_dim),
              STEMMA_OK)
        << stemma_last_error();
  }

  const stemma_pool_options& options() const { return options_; }

 private:
  stemma_pool_options options_;
  stemma_pool* pool_ = nullptr;
  std::map<std::pair<std::uint64_t, std::int64_t>, std::string> known_;
};

}  // namespace stemma
