// SharedPrefixes: beginnings of texts that the operator lets every tenant share.
//
// The file has one JSON object a line, {"messages": […]} (with "tools", where chats have them) or
// {"prompt": "…"}: what POST /v1/cache/warm takes. The whole pages of each live in one namespace;
// behind them a tenant's part begins a new root, whose digest names the last of these pages and the
// tenant's own namespace. What a hit tells by its time is then what the operator has said anyway.
//
// Thread:     immutable once loaded.
// Memory:     the tokens of the prefixes.
// Cost:       find compares the prompt with each prefix.
// Not here:   how pages are shared (cache/grafts), whose namespace is whose (preparation).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stemma/engine.h"
#include "stemma/prefix_cache.h"

namespace stemma {

class SharedPrefixes {
 public:
  // Of none.
  SharedPrefixes() = default;
  // `digest` is that of the namespace in which they live.
  SharedPrefixes(const NamespaceDigest& digest, std::int64_t page_size)
      : digest_(digest), page_size_(page_size) {}

  // As many of the tokens as fill pages; nothing where they fill none.
  void add(std::span<const TokenId> tokens);

  struct Match {
    SharedPrefix prefix;
    PageKey last_key;  // of its last page
  };
  // The longest one that the tokens begin with; nullptr: none.
  const Match* find_or_null(std::span<const TokenId> tokens) const;

  // The namespace of what goes on from a prefix, for who has `own` otherwise; of the same family.
  static NamespaceDigest behind(const Match& match, const NamespaceDigest& own);

 private:
  struct Entry {
    std::vector<TokenId> tokens;
    Match match;
  };

  NamespaceDigest digest_;
  std::int64_t page_size_ = 1;
  std::vector<Entry> entries_;  // longest first
};

}  // namespace stemma
