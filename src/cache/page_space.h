// PageSpace: the pages of one tier as whoever needs some sees them: free ones first, then the
// coldest that the tier's tree can spare.
//
// Thread:     engine thread only.
// Memory:     none.
// Cost:       O(pages got + evicted x log leaves).
// Not here:   which pages are cold (prefix/), who gets them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/check.h"
#include "stemma/page_allocator.h"
#include "stemma/prefix_cache.h"

namespace stemma {

class PageSpace {
 public:
  // Both must outlive it.
  PageSpace(PageAllocator& allocator, PrefixCache& prefix)
      : allocator_(allocator), prefix_(prefix) {}

  // Free pages, and those that eviction could free.
  std::int64_t available_pages() const {
    return allocator_.free_pages() + prefix_.usage().evictable_tokens / prefix_.page_size();
  }

  // Exactly so many, evicting exactly what is missing; nullopt, and nothing evicted, if there are
  // too few even so. REQUIRES: frees_at_once(), or the free pages suffice.
  std::optional<OwnedPages> try_take(std::int64_t pages) {
    if (pages > available_pages()) return std::nullopt;
    const std::int64_t missing = pages - allocator_.free_pages();
    if (missing > 0) {
      const OwnedPages evicted = prefix_.evict(missing);
      STEMMA_CHECK_EQ(evicted.pages(), missing);
      evicted_pages_ += missing;
    }
    std::optional<OwnedPages> taken = allocator_.try_allocate(pages);
    STEMMA_CHECK(taken.has_value(), "the pages were counted before they were taken");
    taken_pages_ += pages;
    return taken;
  }

  // As many as there are, `pages` at most. REQUIRES: frees_at_once().
  OwnedPages take_up_to(std::int64_t pages) {
    return *try_take(std::min(pages, available_pages()));
  }

  // Frees the coldest that nobody holds, as many as there are, `pages` at most; how many.
  std::int64_t evict(std::int64_t pages) {
    const OwnedPages evicted = prefix_.evict(pages);
    evicted_pages_ += evicted.pages();
    return evicted.pages();
  }

  // As PrefixCache::try_open_namespace; what that evicts is counted, and freed.
  std::optional<NamespaceId> try_open_namespace(const NamespaceDigest& digest) {
    OwnedPages evicted;
    const std::optional<NamespaceId> opened = prefix_.try_open_namespace(digest, &evicted);
    evicted_pages_ += evicted.pages();
    return opened;
  }

  // Whether what is evicted is free at once: not while a step is in flight.
  bool frees_at_once() const noexcept { return allocator_.steps_in_flight() == 0; }

  std::int64_t free_pages() const noexcept { return allocator_.free_pages(); }
  std::int64_t total_pages() const noexcept { return allocator_.total_pages(); }
  // Since construction.
  std::int64_t evicted_pages() const noexcept { return evicted_pages_; }
  std::int64_t taken_pages() const noexcept { return taken_pages_; }

 private:
  PageAllocator& allocator_;
  PrefixCache& prefix_;
  std::int64_t evicted_pages_ = 0;
  std::int64_t taken_pages_ = 0;
};

}  // namespace stemma
