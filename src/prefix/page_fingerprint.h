// Page fingerprints: a 64-bit hash of all tokens up to the end of a page, for policies that know
// pages again when they come back.
//
// Thread:     pure functions.
// Memory:     none.
// Cost:       a multiplication or two for each pair of tokens.
// Not here:   the identity of a page's content (page_key): two texts may share a fingerprint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/prng.h"
#include "stemma/ids.h"

namespace stemma {

// That of the empty text: the same for the same namespace.
inline std::uint64_t root_fingerprint(std::uint64_t namespace_seed) noexcept {
  return mix64(namespace_seed);
}

// That of a page with these tokens; `above` is that of the page before it. Pairs of tokens are
// mixed apart from each other, so that a processor works on several at once.
inline std::uint64_t next_fingerprint(std::uint64_t above,
                                      std::span<const TokenId> tokens) noexcept {
  std::uint64_t hash = above;
  for (std::size_t i = 0; i < tokens.size(); i += 2) {
    const auto low = static_cast<std::uint32_t>(tokens[i]);
    const auto high = i + 1 < tokens.size() ? static_cast<std::uint32_t>(tokens[i + 1]) : 0U;
    hash += mix64((std::uint64_t{high} << 32 | low) + i * 0x9E3779B97F4A7C15u);
  }
  return mix64(hash);
}

}  // namespace stemma
