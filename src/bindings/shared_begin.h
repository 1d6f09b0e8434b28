// Beginnings that all texts of a namespace share, as callers of other languages name them: by their
// tokens.
//
// Thread:     any.
// Memory:     none.
// Cost:       a hash of each page; a comparison of each token.
// Not here:   what is shared and what is not (cache/grafts).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "prefix/namespace_digest.h"
#include "prefix/page_key.h"

namespace stemma {

// Whether two texts are the same as far as both go.
inline bool begin_alike(std::span<const TokenId> a, std::span<const TokenId> b) {
  const std::size_t tokens = std::min(a.size(), b.size());
  return std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(tokens), b.begin());
}

// The digest of what goes on from `tokens`, which lie in the namespace `shared`, and would be in
// `own` without them. REQUIRES: tokens are whole pages, at least one.
inline NamespaceDigest grafted_on(const NamespaceDigest& own, const NamespaceDigest& shared,
                                  std::span<const TokenId> tokens, std::int64_t page_size) {
  const auto page = static_cast<std::size_t>(page_size);
  PageKeyChain chain(shared);
  PageKey last;
  for (std::size_t begin = 0; begin < tokens.size(); begin += page) {
    last = chain.append(tokens.subspan(begin, page));
  }
  return grafted(own, last);
}

}  // namespace stemma
