#include "replay/replayer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "prefix/prefix_cache_factory.h"

namespace stemma {

namespace {

void append_replay_tokens(const std::vector<std::int64_t>& page_hashes,
                          std::vector<TokenId>& tokens) {
  for (const std::int64_t hash : page_hashes) {
    tokens.push_back(static_cast<TokenId>(hash & 0xFFFFFFFF));
    tokens.push_back(static_cast<TokenId>(hash >> 32));
  }
}

}  // namespace

void make_replay_tokens(const TraceRequest& request, std::vector<TokenId>& tokens) {
  tokens.clear();
  append_replay_tokens(request.page_hashes, tokens);
}

Status Replayer::check_capacity(std::int64_t capacity_pages) {
  if (capacity_pages >= 1 && capacity_pages < (std::int64_t{1} << 31)) return {};
  return Error{ErrorCode::kInvalidArgument,
               "--capacity-pages must be from 1 to 2147483647 or 'unlimited' (got " +
                   std::to_string(capacity_pages) + ")"};
}

Result<std::unique_ptr<Replayer>> Replayer::open(const ReplayOptions& options) {
  STEMMA_RETURN_IF_ERROR(check_capacity(options.capacity_pages));
  auto replayer = std::make_unique<Replayer>(options.capacity_pages);
  PrefixCacheOptions cache_options{.allocator = replayer->allocator_};
  cache_options.page_size = kReplayPageTokens;
  cache_options.eviction = options.policy;
  cache_options.clock = &replayer->clock_;
  Result<std::unique_ptr<PrefixCache>> cache = make_prefix_cache("radix", cache_options);
  if (!cache.ok()) return Error{cache.error().code, "--policy: " + cache.error().detail};
  replayer->cache_ = std::move(cache).value();
  const std::optional<NamespaceId> opened = replayer->cache_->try_open_namespace({});
  STEMMA_CHECK(opened.has_value(), "a new cache has room for its first namespace");
  replayer->namespace_id_ = *opened;
  return replayer;
}

void Replayer::feed(const TraceRequest& request) {
  make_replay_tokens(request, tokens_);
  const auto pages = static_cast<std::int64_t>(request.page_hashes.size());
  const auto now_us = static_cast<std::int64_t>(request.timestamp_ms * 1000);
  clock_.advance_us(std::max<std::int64_t>(now_us - clock_.now_us(), 0));
  PrefixLock lock = cache_->match(namespace_id_, tokens_);
  const std::int64_t hit_pages = lock.tokens() / kReplayPageTokens;
  ++report_.requests;
  report_.lookup_pages += pages;
  report_.hit_pages += hit_pages;

  if (const std::int64_t missing = pages - hit_pages; missing > 0) {
    lock = compute(missing, std::move(lock));
  }
  if (!request.output_page_hashes.empty() && lock.tokens() == std::ssize(tokens_)) {
    append_replay_tokens(request.output_page_hashes, tokens_);
    lock = compute(std::ssize(request.output_page_hashes), std::move(lock));
  }
  cache_->complete(lock,
                   {.prompt_tokens = request.input_tokens, .output_tokens = request.output_tokens});
}

// Makes as many of the missing pages resident as there is room for.
PrefixLock Replayer::compute(std::int64_t wanted, PrefixLock lock) {
  if (const std::int64_t short_pages = wanted - allocator_.free_pages(); short_pages > 0) {
    report_.evicted_pages += cache_->evict(short_pages).pages();
  }
  const std::int64_t got = std::min(wanted, allocator_.free_pages());
  std::optional<OwnedPages> fresh = allocator_.try_allocate(got);
  STEMMA_CHECK(fresh.has_value(), "free pages can be allocated");
  const auto resident_tokens = static_cast<std::size_t>(lock.tokens() + got * kReplayPageTokens);
  return cache_->insert(std::span(tokens_).first(resident_tokens), std::move(lock),
                        *std::move(fresh), {});
}

}  // namespace stemma
