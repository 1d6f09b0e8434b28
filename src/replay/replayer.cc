#include "replay/replayer.h"

#include <algorithm>
#include <utility>

namespace stemma {

Status Replayer::check_capacity(std::int64_t capacity_pages) {
  if (capacity_pages >= 1 && capacity_pages <= kCapacityPagesMax) return {};
  return Error{ErrorCode::kInvalidArgument,
               "--capacity-pages must be from 1 to " + std::to_string(kCapacityPagesMax) +
                   " or 'unlimited' (got " + std::to_string(capacity_pages) + ")"};
}

Result<std::unique_ptr<Replayer>> Replayer::open(const ReplayOptions& options) {
  STEMMA_RETURN_IF_ERROR(check_capacity(options.capacity_pages));
  auto replayer = std::make_unique<Replayer>();
  Result<std::unique_ptr<HashCache>> cache =
      HashCache::open({.policy = options.policy,
                       .capacity_pages = options.capacity_pages,
                       .seed = std::nullopt,
                       .clock = &replayer->clock_});
  if (!cache.ok()) return Error{cache.error().code, "--policy: " + cache.error().detail};
  replayer->cache_ = std::move(cache).value();
  return replayer;
}

void Replayer::feed(const TraceRequest& request) {
  const auto now_us = static_cast<std::int64_t>(request.timestamp_ms * 1000);
  clock_.advance_us(std::max<std::int64_t>(now_us - clock_.now_us(), 0));
  PrefixLock lock = cache_->match(request.page_hashes);
  ++report_.requests;
  report_.lookup_pages += cache_->pages();
  report_.hit_pages += HashCache::pages(lock);
  lock = cache_->fill(std::move(lock), request.priority);
  if (HashCache::pages(lock) == cache_->pages()) {
    cache_->append(request.output_page_hashes);
    lock = cache_->fill(std::move(lock), request.priority);
  }
  report_.evicted_pages = cache_->evicted_pages();
  cache_->complete(lock, {.prompt_tokens = request.input_tokens,
                          .output_tokens = request.output_tokens,
                          .priority = request.priority});
}

}  // namespace stemma
