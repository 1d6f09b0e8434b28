// A sequence's row is always its locked prefix's pages followed by its tail's, in that order. Every
// function below that changes prefix or tail changes the row with it (I2).
#include "stemma/kv_cache.h"

#include <algorithm>
#include <utility>

#include "alloc/request_table.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/math.h"
#include "cache/page_space.h"
#include "prefix/prefix_cache_factory.h"

namespace stemma {

Result<std::unique_ptr<KvCache>> KvCache::open(const KvCacheOptions& options,
                                               const Clock* clock_or_null) {
  STEMMA_RETURN_IF_ERROR(validate(options));
  auto own_clock = clock_or_null == nullptr ? std::make_unique<MonotonicClock>() : nullptr;
  const Clock& clock = clock_or_null == nullptr ? *own_clock : *clock_or_null;
  auto cache = std::unique_ptr<KvCache>(new KvCache(options, std::move(own_clock), clock));
  STEMMA_ASSIGN_OR_RETURN(
      cache->prefix_,
      make_prefix_cache(options.cache, PrefixCacheOptions{.allocator = cache->allocator_,
                                                          .page_size = options.page_size,
                                                          .eviction = options.eviction,
                                                          .lookup_hash_bits = 32,
                                                          .hash_seed = std::nullopt,
                                                          .clock = &cache->clock_}));
  cache->space_ = std::make_unique<PageSpace>(cache->allocator_, *cache->prefix_);
  return cache;
}

KvCache::KvCache(const KvCacheOptions& options, std::unique_ptr<Clock> own_clock,
                 const Clock& clock)
    : options_(options),
      own_clock_(std::move(own_clock)),
      clock_(clock),
      allocator_(options.pages),
      rows_(std::make_unique<RequestTable>(RequestTable::Extent{
          .rows = options.requests_max,
          .pages_max = ceil_div(options.context_tokens_max, options.page_size)})),
      live_(static_cast<std::size_t>(options.requests_max), nullptr) {}

KvCache::~KvCache() {
  const bool idle = std::all_of(live_.begin(), live_.end(),
                                [](const Sequence* sequence) { return sequence == nullptr; });
  STEMMA_CHECK(idle, "a Sequence must not outlive its KvCache");
}

std::optional<NamespaceId> KvCache::try_open_namespace(const NamespaceDigest& digest) {
  return prefix_->try_open_namespace(digest);
}

void KvCache::close_namespace(NamespaceId ns) {
  prefix_->close_namespace(ns);
}

std::int64_t KvCache::probe(NamespaceId ns, std::span<const TokenId> tokens) const {
  STEMMA_CHECK(!tokens.empty(), "a prompt has at least one token");
  return prefix_->probe(ns, tokens.first(tokens.size() - 1)).matched_tokens;
}

void KvCache::want(NamespaceId ns, std::span<const TokenId> tokens, std::int64_t turn) {
  STEMMA_CHECK(!tokens.empty(), "a prompt has at least one token");
  prefix_->want(ns, tokens.first(tokens.size() - 1), turn);
}

void KvCache::forget_wants() {
  prefix_->forget_wants();
}

std::optional<Sequence> KvCache::begin(NamespaceId ns, std::span<const TokenId> tokens) {
  STEMMA_CHECK(!tokens.empty(), "a prompt has at least one token");
  auto row = rows_->try_take();
  if (!row.has_value()) {
    return std::nullopt;
  }
  PrefixLock prefix = prefix_->match(ns, tokens.first(tokens.size() - 1));
  const std::span<PageId> pages = rows_->grow(row->id(), prefix.tokens() / page_size());
  STEMMA_CHECK_EQ(prefix.copy_pages(0, pages), static_cast<std::int64_t>(pages.size()));
  return Sequence(this, row->release(), std::move(prefix), std::ssize(tokens));
}

bool KvCache::reserve(Sequence& sequence, std::int64_t tokens) {
  STEMMA_CHECK(sequence.cache_ == this, "the sequence began here");
  STEMMA_CHECK_LE(tokens, options_.context_tokens_max);
  const std::int64_t wanted = ceil_div(tokens, page_size()) - held_pages(sequence);
  if (wanted <= 0) {
    return true;
  }
  if (wanted > reservable_pages()) {
    return false;
  }
  OwnedPages added = *space_->try_take(wanted);
  added.copy_to(rows_->grow(sequence.row_, wanted));
  sequence.tail_.append(std::move(added));
  return true;
}

std::int64_t KvCache::reservable_tokens(const Sequence& sequence) const {
  return (held_pages(sequence) + reservable_pages()) * page_size();
}

void KvCache::commit(Sequence& sequence, std::span<const TokenId> computed) {
  STEMMA_CHECK(sequence.cache_ == this, "the sequence began here");
  const auto computed_tokens = static_cast<std::int64_t>(computed.size());
  STEMMA_CHECK_LE(computed_tokens, sequence.capacity_tokens());
  const std::int64_t full_tokens = round_down(computed_tokens, page_size());
  const std::int64_t first_page = sequence.published_tokens() / page_size();
  const std::int64_t new_pages = full_tokens / page_size() - first_page;
  if (!shares() || new_pages <= 0) {
    return;
  }
  const auto tokens = computed.first(static_cast<std::size_t>(full_tokens));
  sequence.prefix_ =
      prefix_->insert(tokens, std::move(sequence.prefix_), sequence.tail_.take_front(new_pages),
                      InsertOptions{.priority = sequence.priority_});
  STEMMA_CHECK_EQ(sequence.published_tokens(), full_tokens);
  const auto row = rows_->pages(sequence.row_).subspan(static_cast<std::size_t>(first_page));
  const std::int64_t written =
      sequence.prefix_.copy_pages(first_page, row.first(static_cast<std::size_t>(new_pages)));
  STEMMA_CHECK_EQ(written, new_pages);
}

void KvCache::finish(Sequence sequence, std::span<const TokenId> computed,
                     std::int64_t publish_tokens_max) {
  const auto computed_tokens = static_cast<std::int64_t>(computed.size());
  const std::int64_t published = std::min(computed_tokens, publish_tokens_max);
  commit(sequence, computed.first(static_cast<std::size_t>(published)));
  prefix_->complete(sequence.prefix_, {.prompt_tokens = sequence.prompt_tokens_,
                                       .output_tokens = std::max<std::int64_t>(
                                           computed_tokens - sequence.prompt_tokens_, 0),
                                       .begun_us = sequence.begun_us_,
                                       .priority = sequence.priority_,
                                       .retention = sequence.retention_,
                                       .session_closed = sequence.session_closed_});
  sequence.reset();
}

std::int64_t KvCache::begin_step() {
  ++steps_in_flight_;
  return allocator_.begin_step();
}

void KvCache::retire_step(std::int64_t step) {
  allocator_.retire_step(step);
  --steps_in_flight_;
}

void KvCache::reset() {
  STEMMA_CHECK_EQ(free_rows(), rows_->rows());
  prefix_->reset();
}

std::int64_t KvCache::available_pages() const {
  return space_->available_pages();
}

std::int64_t KvCache::evicted_pages() const {
  return space_->evicted_pages();
}

std::int64_t KvCache::free_rows() const {
  return rows_->free_rows();
}

std::int64_t KvCache::held_pages(const Sequence& sequence) const {
  return sequence.prefix_.tokens() / page_size() + sequence.tail_.pages();
}

std::int64_t KvCache::reservable_pages() const {
  return steps_in_flight_ == 0 ? available_pages() : allocator_.free_pages();
}

}  // namespace stemma
