// HashCache: a prefix cache without bytes, for texts of which only the hashes of their pages are
// known: the tree, the allocator and the eviction order are those that serve.
//
// Thread:     one thread a cache.
// Memory:     that of a cache of capacity_pages, and the longest text.
// Cost:       under a microsecond a page.
// Not here:   what is counted (ghost_cache, replay/replayer).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "prefix/radix_prefix_cache.h"
#include "stemma/page_allocator.h"
#include "stemma/prefix_cache.h"
#include "stemma/result.h"

namespace stemma {

// A page is named by a 64-bit hash and a token has 32 bits: two tokens a page keep every hash
// exact.
inline constexpr std::int64_t kHashPageTokens = 2;

// Appends what stands for the pages.
void append_hash_tokens(std::span<const std::int64_t> page_hashes, std::vector<TokenId>& tokens);

struct HashCacheOptions {
  std::string policy = "lru";           // an eviction order's name
  std::int64_t capacity_pages = 0;      // 1 to 2^31 - 1
  std::optional<std::uint64_t> seed;    // of the look-up; absent: drawn
  const Clock* clock = nullptr;         // as of PrefixCacheOptions
  std::int64_t text_pages_reserve = 0;  // up to such texts nothing is allocated in use
};

class HashCache {
 public:
  // kNotFound for an unknown policy, listing the known ones. REQUIRES: the capacity is in range.
  static Result<std::unique_ptr<HashCache>> open(const HashCacheOptions& options);

  // Begins a text: looks it up and holds what is found.
  PrefixLock match(std::span<const std::int64_t> page_hashes);
  // More of the present text.
  void append(std::span<const std::int64_t> page_hashes);
  // Makes resident what the present text has behind `lock`, as much of it as there is room for; all
  // of the text has at least that priority then.
  PrefixLock fill(PrefixLock lock, std::int32_t priority = 0);
  // See PrefixCache::complete, and RadixPrefixCache::complete where texts are samples of others.
  void complete(const PrefixLock& lock, const RequestEnd& end) { cache_->complete(lock, end); }
  void complete(const PrefixLock& lock, const PathPlaces& places, const RequestEnd& end) {
    cache_->complete(lock, places, end);
  }

  // Pages of the present text, and of it those held.
  std::int64_t pages() const noexcept { return std::ssize(tokens_) / kHashPageTokens; }
  static std::int64_t pages(const PrefixLock& lock) noexcept {
    return lock.tokens() / kHashPageTokens;
  }
  // Since the cache was opened.
  std::int64_t evicted_pages() const noexcept { return evicted_pages_; }

  explicit HashCache(const HashCacheOptions& options);

 private:
  PageAllocator allocator_;
  std::unique_ptr<RadixPrefixCache> cache_;
  NamespaceId namespace_id_;
  std::vector<TokenId> tokens_;  // of the present text
  std::int64_t evicted_pages_ = 0;
};

}  // namespace stemma
