// ImageTexts: the pages that came from a file of host memory, and the texts that they are of.
//
// Thread:     engine thread only.
// Memory:     about 190 bytes and the tokens of each page.
// Cost:       O(1) a page; reading a text, O(its pages).
// Not here:   where the pages are now (the tree), the file (tier/host_image_file).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "prefix/page_key.h"
#include "stemma/prefix_cache.h"
#include "tier/page_frame.h"

namespace stemma {

class ImageTexts {
 public:
  // Places of pages are 0, 1, … in the order in which they came.
  static constexpr std::int64_t kNone = -1;
  struct Page {
    std::int64_t parent = kNone;  // the place of the page that it continues
    std::int64_t ordinal = 0;     // pages before it in its text
    NamespaceDigest namespace_digest;
    PageKey key;
  };
  explicit ImageTexts(std::int64_t page_size) : page_size_(static_cast<std::size_t>(page_size)) {}

  // The page's place. REQUIRES: it has not come before; it continues the one at `parent`.
  std::int64_t add(const PageIdentity& page, std::int64_t parent) {
    const std::int64_t place = pages();
    pages_.push_back({parent, page.ordinal, page.namespace_digest, page.key});
    places_[page.key] = place;
    tokens_.insert(tokens_.end(), page.tokens.begin(), page.tokens.end());
    return place;
  }

  std::int64_t pages() const { return std::ssize(pages_); }
  const Page& page(std::int64_t place) const { return pages_[static_cast<std::size_t>(place)]; }
  std::optional<std::int64_t> find(const PageKey& key) const {
    const auto found = places_.find(key);
    return found == places_.end() ? std::nullopt : std::optional(found->second);
  }
  // Of what a page continues; of the first of a text, PageKeyHasher::root.
  PageKey parent_key(std::int64_t place) const {
    const Page& own = page(place);
    return own.parent == kNone ? PageKeyHasher::root(own.namespace_digest) : page(own.parent).key;
  }
  std::span<const TokenId> tokens(std::int64_t place) const {
    return std::span(tokens_).subspan(static_cast<std::size_t>(place) * page_size_, page_size_);
  }

  // Makes `text` the tokens up to the end of a page; of kNone, none.
  void read_text(std::int64_t place, std::vector<TokenId>& text) const {
    const std::int64_t pages = place == kNone ? 0 : page(place).ordinal + 1;
    text.resize(static_cast<std::size_t>(pages) * page_size_);
    for (; place != kNone; place = page(place).parent) {
      const auto to = static_cast<std::size_t>(page(place).ordinal) * page_size_;
      std::ranges::copy(tokens(place), text.begin() + static_cast<std::ptrdiff_t>(to));
    }
  }

 private:
  std::size_t page_size_;
  std::vector<Page> pages_;
  std::vector<TokenId> tokens_;  // [pages_, page_size]
  std::unordered_map<PageKey, std::int64_t, PageKeyHash> places_;
};

}  // namespace stemma
