// GhostCache: a small copy of a cache, of one policy and capacity, fed with a sample of the pages
// (mini-simulation: Waldspurger et al., ATC'17).
//
// A page is in the sample by its hash, for all requests alike; the tree, the allocator and the
// eviction order are those that serve, with the sampled pages of each request as its pages and room
// for as large a share of the capacity. What it counts is off by the luck of the sample: compare it
// with another ghost of the same seed, not with the real cache (ghost_panel does).
//
// Thread:     one thread a ghost.
// Memory:     that of a cache of capacity_pages / pages_per_sample pages.
// Cost:       about 5 ns a page, and that of a cache for sampled ones (ghost_bench).
// Not here:   the lru curve (ghost_curve).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "ghost/ghost_request.h"
#include "ghost/hash_cache.h"
#include "stemma/result.h"

namespace stemma {

struct GhostCacheOptions {
  std::string policy = "lru";          // an eviction order's name
  std::int64_t capacity_pages = 0;     // of the cache that it stands for; >= 1
  std::int64_t pages_per_sample = 20;  // >= 1
  std::uint64_t seed = 0;              // of the sample
  std::int64_t request_pages_max = 0;  // as of GhostCurveOptions
};

class GhostCache {
 public:
  // kNotFound for an unknown policy, listing the known ones; kInvalidArgument for what is out of
  // its range.
  static Result<std::unique_ptr<GhostCache>> open(const GhostCacheOptions& options);

  // A whole request. Ends are what hazard, tlru and s3fifo go by, so these are told of requests in
  // no other way.
  void feed(const GhostRequest& request);

  // Where requests run side by side: one looks up pages, given by the hashes of their prefixes in
  // order, and leaves them resident. REQUIRES, as insert: an order by a key (eviction_order).
  void look_up(std::span<const std::int64_t> page_hashes) { use(page_hashes, /*counts=*/true); }

  // Pages become resident, or are used again, without having been looked up.
  void insert(std::span<const std::int64_t> page_hashes) { use(page_hashes, /*counts=*/false); }

  // Counts of the past weigh `share` of what they did. REQUIRES: 0 <= share <= 1.
  void fade(double share);

  // Hits over look-ups of sampled pages; 0 before the first.
  double hit_rate() const noexcept;

  // Hits of sampled pages, times the pages that each stands for.
  double hit_pages() const noexcept {
    return hit_pages_ * static_cast<double>(options_.pages_per_sample);
  }

  explicit GhostCache(const GhostCacheOptions& options);

 private:
  void use(std::span<const std::int64_t> page_hashes, bool counts);
  PrefixLock match(bool counts);
  void sample(std::span<const std::int64_t> page_hashes, std::int64_t first_place);
  void complete(const PrefixLock& lock, const GhostRequest& request);

  GhostCacheOptions options_;
  bool keyed_ = true;  // the policy
  FakeClock clock_;    // at the present request
  std::unique_ptr<HashCache> cache_;
  std::vector<std::int64_t> sampled_;  // of the present request
  std::vector<std::int64_t> places_;   // of sampled_ in it; more of them where it has output
  double lookup_pages_ = 0;
  double hit_pages_ = 0;
};

}  // namespace stemma
