// PageKey chains: the names of pages outside the tree. A key names one namespace and one prefix of
// tokens (I7):
//
//   key(first page) = SHA-256(namespace digest || tokens),  key(next) = SHA-256(key || tokens)
//
// with each token as 4 bytes, least significant first. Where some layers have a window, their part
// of a page has a key of its own, SHA-256(SHA-256(key before || 'w') || tokens).
//
// Thread:     one thread a hasher.
// Memory:     one hasher.
// Cost:       about 0.2 us for a page of 16 tokens.
// Not here:   which pages need a key (radix_prefix_cache computes them lazily), frames (tier/).
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "base/digest.h"
#include "stemma/prefix_cache.h"

namespace stemma {

// Keys are digests: any eight bytes of one are as good a hash as all of them.
struct PageKeyHash {
  std::size_t operator()(const PageKey& key) const noexcept {
    std::size_t hash = 0;
    std::memcpy(&hash, key.bytes.data(), sizeof(hash));
    return hash;
  }
};

class PageKeyHasher {
 public:
  // The key of the page of `tokens` that follows the page of key `parent`.
  PageKey next(const PageKey& parent, std::span<const TokenId> tokens);

  // What a page of the windowed layers follows in the place of `parent`: so its key is never that
  // of the other layers' page of the same tokens.
  PageKey windowed_parent(const PageKey& parent);

  // What the first page of a namespace follows.
  static PageKey root(const NamespaceDigest& digest) { return PageKey{digest.bytes}; }

 private:
  Sha256 hasher_;
};

// Keys of one text, page by page, from its namespace on: for whoever has no tree at hand.
class PageKeyChain {
 public:
  explicit PageKeyChain(const NamespaceDigest& digest) : last_(PageKeyHasher::root(digest)) {}

  // The key of the next page.
  PageKey append(std::span<const TokenId> page_tokens) {
    last_ = hasher_.next(last_, page_tokens);
    return last_;
  }

 private:
  PageKeyHasher hasher_;
  PageKey last_;
};

}  // namespace stemma
