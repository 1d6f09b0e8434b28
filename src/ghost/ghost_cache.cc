#include "ghost/ghost_cache.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/prng.h"
#include "prefix/eviction_order.h"

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
  STEMMA_ASSIGN_OR_RETURN(const EvictionOrder order, EvictionOrder::make(options.policy));
  ghost->keyed_ = order.keyed();
  STEMMA_ASSIGN_OR_RETURN(ghost->cache_,
                          HashCache::open({.policy = options.policy,
                                           .capacity_pages = sampled_capacity_pages(options),
                                           .seed = options.seed,
                                           .clock = &ghost->clock_,
                                           .text_pages_reserve = options.request_pages_max}));
  return ghost;
}

GhostCache::GhostCache(const GhostCacheOptions& options) : options_(options) {
  sampled_.reserve(static_cast<std::size_t>(options.request_pages_max));
  places_.reserve(static_cast<std::size_t>(options.request_pages_max));
}

void GhostCache::feed(const GhostRequest& request) {
  clock_.advance_us(std::max<std::int64_t>(request.now_us - clock_.now_us(), 0));
  places_.clear();
  sample(request.page_hashes, 0);
  if (keyed_ && sampled_.empty() && request.output_page_hashes.empty()) return;
  PrefixLock lock = match(/*counts=*/true);
  lock = cache_->fill(std::move(lock));
  if (HashCache::pages(lock) == cache_->pages()) {
    sample(request.output_page_hashes, std::ssize(request.page_hashes));
    cache_->append(sampled_);
    lock = cache_->fill(std::move(lock));
  }
  if (!keyed_) complete(lock, request);
}

// A request of which no page is in the sample ends too: the policy counts them. What found no room
// is no part of the text.
void GhostCache::complete(const PrefixLock& lock, const GhostRequest& request) {
  const auto held = static_cast<std::size_t>(HashCache::pages(lock));
  const std::span<const std::int64_t> places(places_);
  PathPlaces path;
  path.text_pages = std::ssize(request.page_hashes) + std::ssize(request.output_page_hashes);
  if (held < places.size()) path.text_pages = places[held];
  path.sampled = places.first(held);
  cache_->complete(lock, path, request.end);
}

void GhostCache::use(std::span<const std::int64_t> page_hashes, bool counts) {
  STEMMA_CHECK(keyed_, "policies that go by ends are told of whole requests");
  places_.clear();
  sample(page_hashes, 0);
  if (sampled_.empty()) return;
  PrefixLock lock = match(counts);
  lock = cache_->fill(std::move(lock));
}

// Looks up what is sampled.
PrefixLock GhostCache::match(bool counts) {
  PrefixLock lock = cache_->match(sampled_);
  if (counts) {
    lookup_pages_ += static_cast<double>(sampled_.size());
    hit_pages_ += static_cast<double>(HashCache::pages(lock));
  }
  return lock;
}

void GhostCache::sample(std::span<const std::int64_t> page_hashes, std::int64_t first_place) {
  const std::uint64_t below = std::numeric_limits<std::uint64_t>::max() /
                              static_cast<std::uint64_t>(options_.pages_per_sample);
  sampled_.clear();
  for (std::size_t i = 0; i < page_hashes.size(); ++i) {
    const std::int64_t hash = page_hashes[i];
    if (mix64(static_cast<std::uint64_t>(hash) ^ options_.seed) > below) continue;
    sampled_.push_back(hash);
    places_.push_back(first_place + static_cast<std::int64_t>(i));
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
