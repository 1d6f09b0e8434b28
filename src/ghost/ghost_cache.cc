// A page is named by a 64-bit hash and a token has 32 bits: two tokens a page keep every hash
// exact.
#include "ghost/ghost_cache.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/prng.h"
#include "prefix/prefix_cache_factory.h"

namespace stemma {

namespace {

constexpr std::int64_t kPageTokens = 2;

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
  PrefixCacheOptions cache_options{.allocator = ghost->allocator_};
  cache_options.page_size = kPageTokens;
  cache_options.eviction = options.policy;
  cache_options.hash_seed = options.seed;
  STEMMA_ASSIGN_OR_RETURN(ghost->cache_, make_prefix_cache("radix", cache_options));
  const std::optional<NamespaceId> opened = ghost->cache_->try_open_namespace({});
  STEMMA_CHECK(opened.has_value(), "a new cache has room for its first namespace");
  ghost->namespace_id_ = *opened;
  return ghost;
}

GhostCache::GhostCache(const GhostCacheOptions& options)
    : options_(options), allocator_(sampled_capacity_pages(options)) {
  tokens_.reserve(static_cast<std::size_t>(kPageTokens * options.request_pages_max));
}

void GhostCache::use(std::span<const std::int64_t> page_hashes, bool counts) {
  sample(page_hashes);
  const auto pages = static_cast<std::int64_t>(tokens_.size()) / kPageTokens;
  if (pages == 0) return;
  PrefixLock lock = cache_->match(namespace_id_, tokens_);
  const std::int64_t hit_pages = lock.tokens() / kPageTokens;
  if (counts) {
    lookup_pages_ += static_cast<double>(pages);
    hit_pages_ += static_cast<double>(hit_pages);
  }
  const std::int64_t wanted = pages - hit_pages;
  if (wanted == 0) return;
  if (const std::int64_t short_pages = wanted - allocator_.free_pages(); short_pages > 0) {
    const OwnedPages freed = cache_->evict(short_pages);
  }
  const std::int64_t got = std::min(wanted, allocator_.free_pages());
  std::optional<OwnedPages> fresh = allocator_.try_allocate(got);
  STEMMA_CHECK(fresh.has_value(), "free pages can be allocated");
  const auto resident = static_cast<std::size_t>((hit_pages + got) * kPageTokens);
  lock = cache_->insert(std::span(tokens_).first(resident), std::move(lock), *std::move(fresh), {});
}

void GhostCache::sample(std::span<const std::int64_t> page_hashes) {
  const std::uint64_t below = std::numeric_limits<std::uint64_t>::max() /
                              static_cast<std::uint64_t>(options_.pages_per_sample);
  tokens_.clear();
  for (const std::int64_t hash : page_hashes) {
    const auto bits = static_cast<std::uint64_t>(hash);
    if (mix64(bits ^ options_.seed) > below) continue;
    tokens_.push_back(static_cast<TokenId>(bits & 0xFFFFFFFF));
    tokens_.push_back(static_cast<TokenId>(bits >> 32));
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
