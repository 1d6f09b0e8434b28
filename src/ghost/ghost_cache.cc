#include "ghost/ghost_cache.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/prng.h"

namespace stemma {

namespace {

std::int64_t sampled_capacity_pages(const GhostCacheOptions& options) {
  const std::int64_t rounded =
      (options.capacity_pages + options.pages_per_sample / 2) / options.pages_per_sample;
  return std::max<std::int64_t>(rounded, 1);
}

}  // namespace

Result<std::unique_ptr<GhostCache>> GhostCache::open(const GhostCacheOptions& options) {
  constexpr std::int64_t kPagesMax = std::numeric_limits<std::int32_t>::max();
  if (options.capacity_pages < 1 || options.capacity_pages > kPagesMax ||
      options.pages_per_sample < 1) {
    return Error{ErrorCode::kInvalidArgument,
                 "a ghost's capacity_pages and pages_per_sample must be at least 1 (got " +
                     std::to_string(options.capacity_pages) + " and " +
                     std::to_string(options.pages_per_sample) + ")"};
  }
  auto ghost = std::make_unique<GhostCache>(options);
  STEMMA_ASSIGN_OR_RETURN(ghost->cache_,
                          HashCache::open({.policy = options.policy,
                                           .capacity_pages = sampled_capacity_pages(options),
                                           .seed = options.seed,
                                           .text_pages_reserve = options.request_pages_max}));
  return ghost;
}

GhostCache::GhostCache(const GhostCacheOptions& options) : options_(options) {
  sampled_.reserve(static_cast<std::size_t>(options.request_pages_max));
}

void GhostCache::use(std::span<const std::int64_t> page_hashes, bool counts) {
  sample(page_hashes);
  if (sampled_.empty()) return;
  PrefixLock lock = cache_->match(sampled_);
  if (counts) {
    lookup_pages_ += static_cast<double>(sampled_.size());
    hit_pages_ += static_cast<double>(HashCache::pages(lock));
  }
  lock = cache_->fill(std::move(lock));
}

void GhostCache::sample(std::span<const std::int64_t> page_hashes) {
  const std::uint64_t below = std::numeric_limits<std::uint64_t>::max() /
                              static_cast<std::uint64_t>(options_.pages_per_sample);
  sampled_.clear();
  for (const std::int64_t hash : page_hashes) {
    if (mix64(static_cast<std::uint64_t>(hash) ^ options_.seed) <= below) sampled_.push_back(hash);
  }
}

void GhostCache::fade(double share) {
  STEMMA_CHECK(share >= 0 && share <= 1, "a share");
  lookup_pages_ *= share;
  hit_pages_ *= share;
}

double GhostCache::hit_rate() const noexcept {
  return lookup_pages_ <= 0 ? 0.0 : hit_pages_ / lookup_pages_;
}

}  // namespace stemma
