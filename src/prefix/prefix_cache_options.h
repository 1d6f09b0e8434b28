// PrefixCacheOptions: what a prefix cache is built from.
//
// Thread:     values.
// Memory:     none.
// Cost:       none.
// Not here:   how many pages there are (the allocator knows), names of caches
// (prefix_cache_factory).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "stemma/page_allocator.h"
#include "stemma/result.h"

namespace stemma {

struct PrefixCacheOptions {
  PageAllocator& allocator;              // of the pages that are published; must outlive the cache
  std::int64_t page_size = 16;           // tokens; >= 1
  std::string eviction = "lru";          // by name; see eviction_order.h
  std::int64_t namespaces_max = 1024;    // >= 1; each costs one node
  std::int64_t slru_protected_hits = 2;  // slru protects a node from this many hits on
  int lookup_hash_bits = 32;             // fewer only to test that collisions do no harm
  std::optional<std::uint64_t> hash_seed =
      std::nullopt;              // of the look-up hash; drawn at random where absent
  const Clock* clock = nullptr;  // of policies that know ages; outlives the cache; absent: its own
  std::int64_t evicted_marks = 0;     // evicted pages that why_ends remembers, about; 0: none
  std::int64_t events_pages_max = 0;  // pages of changes that are kept until drained; 0: none are
  std::int64_t creditors = 0;         // to whom pages may be owed; 0: to nobody
};

// An error that names the first option out of its range.
Status check_options(const PrefixCacheOptions& options);

}  // namespace stemma
