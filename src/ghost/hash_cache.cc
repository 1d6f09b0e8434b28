#include "ghost/hash_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace stemma {

void append_hash_tokens(std::span<const std::int64_t> page_hashes, std::vector<TokenId>& tokens) {
  for (const std::int64_t hash : page_hashes) {
    tokens.push_back(static_cast<TokenId>(hash & 0xFFFFFFFF));
    tokens.push_back(static_cast<TokenId>(hash >> 32));
  }
}

Result<std::unique_ptr<HashCache>> HashCache::open(const HashCacheOptions& options) {
  auto opened = std::make_unique<HashCache>(options);
  PrefixCacheOptions cache_options{.allocator = opened->allocator_};
  cache_options.page_size = kHashPageTokens;
  cache_options.eviction = options.policy;
  cache_options.hash_seed = options.seed;
  cache_options.clock = options.clock;
  STEMMA_ASSIGN_OR_RETURN(opened->cache_, RadixPrefixCache::open(cache_options));
  const std::optional<NamespaceId> ns = opened->cache_->try_open_namespace({});
  STEMMA_CHECK(ns.has_value(), "a new cache has room for its first namespace");
  opened->namespace_id_ = *ns;
  return opened;
}

HashCache::HashCache(const HashCacheOptions& options) : allocator_(options.capacity_pages) {
  tokens_.reserve(static_cast<std::size_t>(kHashPageTokens * options.text_pages_reserve));
}

PrefixLock HashCache::match(std::span<const std::int64_t> page_hashes) {
  tokens_.clear();
  append(page_hashes);
  return cache_->match(namespace_id_, tokens_);
}

void HashCache::append(std::span<const std::int64_t> page_hashes) {
  append_hash_tokens(page_hashes, tokens_);
}

PrefixLock HashCache::fill(PrefixLock lock, std::int32_t priority) {
  const std::int64_t missing = pages() - pages(lock);
  if (missing == 0 && priority == 0) return lock;
  if (const std::int64_t short_pages = missing - allocator_.free_pages(); short_pages > 0) {
    evicted_pages_ += cache_->evict(short_pages).pages();
  }
  const std::int64_t got = std::min(missing, allocator_.free_pages());
  std::optional<OwnedPages> fresh = allocator_.try_allocate(got);
  STEMMA_CHECK(fresh.has_value(), "free pages can be allocated");
  const auto resident = static_cast<std::size_t>(lock.tokens() + got * kHashPageTokens);
  return cache_->insert(std::span(tokens_).first(resident), std::move(lock), *std::move(fresh),
                        {.priority = priority});
}

}  // namespace stemma
