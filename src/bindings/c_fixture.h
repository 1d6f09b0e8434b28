// What tests of the C ABI have in common: texts, and a small pool's options.
//
// Thread:     none.
// Memory:     none of its own.
// Cost:       none worth noting.
// Not here:   tests (c_test, c_tiers_test).
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "stemma/c.h"

namespace stemma {

using Text = std::vector<std::int32_t>;

inline constexpr std::int64_t kPageSize = 4;

// `count` tokens that follow each other.
inline Text text(std::int32_t first, std::size_t count) {
  Text tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Of two layers, with rows of eight f32.
inline stemma_pool_options pool_options(std::int64_t pages) {
  stemma_pool_options options;
  stemma_pool_options_init(&options, sizeof(options));
  options.layers = 2;
  options.pages = pages;
  options.page_size = kPageSize;
  options.heads = 1;
  options.head_dim = 8;
  options.dtype = STEMMA_F32;
  return options;
}

}  // namespace stemma
