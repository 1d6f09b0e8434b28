// SavedText: a text in host memory that is being written to a file.
//
// Thread:     engine thread only.
// Memory:     its tokens and 36 bytes a page, kept from one text to the next.
// Cost:       O(tokens) to read one.
// Not here:   which of its pages are written (host_image_pages, host_image_windows).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "prefix/page_key.h"
#include "prefix/radix_prefix_cache.h"
#include "tier/page_frame.h"

namespace stemma {

struct SavedText {
  NamespaceDigest digest;
  std::int64_t page_size = 1;
  std::vector<PageKey> keys;  // of its pages
  std::vector<PageId> ids;
  std::vector<TokenId> tokens;

  void read(const RadixPrefixCache& tree, const PrefixLock& held) {
    digest = tree.digest(held.namespace_id());
    page_size = tree.page_size();
    keys.resize(static_cast<std::size_t>(held.tokens() / page_size));
    ids.resize(keys.size());
    tokens.resize(static_cast<std::size_t>(held.tokens()));
    held.copy_page_keys(0, keys);
    held.copy_pages(0, ids);
    tree.copy_tokens(held, tokens);
  }
  std::int64_t pages() const { return std::ssize(keys); }
  PageIdentity identity(std::size_t page) const {
    const auto size = static_cast<std::size_t>(page_size);
    return {.key = keys[page],
            .parent = page == 0 ? PageKeyHasher::root(digest) : keys[page - 1],
            .namespace_digest = digest,
            .ordinal = static_cast<std::int64_t>(page),
            .tokens = std::span(tokens).subspan(page * size, size)};
  }
};

}  // namespace stemma
