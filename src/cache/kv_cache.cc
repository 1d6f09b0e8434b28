// A sequence's row is always the pages of what everybody shares, of its own locked prefix and of
// its tail, in that order. Every function below that changes one of them changes the row with it
// (I2).
#include "stemma/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "alloc/request_table.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/math.h"
#include "base/or_no_thread.h"
#include "cache/backups.h"
#include "cache/grafts.h"
#include "cache/page_row.h"
#include "cache/page_space.h"
#include "cache/tiering.h"
#include "cache/windows.h"
#include "prefix/prefix_cache_factory.h"

namespace stemma {

Result<std::unique_ptr<KvCache>> KvCache::open(const KvCacheOptions& options,
                                               const Clock* clock_or_null,
                                               LowerTiers* tiers_or_null) {
  STEMMA_RETURN_IF_ERROR(validate(options));
  auto own_clock = clock_or_null == nullptr ? std::make_unique<MonotonicClock>() : nullptr;
  const Clock& clock = clock_or_null == nullptr ? *own_clock : *clock_or_null;
  auto cache = std::unique_ptr<KvCache>(new KvCache(options, std::move(own_clock), clock));
  const std::int64_t creditors = Backups::device_creditors(options.window_tokens > 0);
  STEMMA_ASSIGN_OR_RETURN(
      cache->prefix_,
      make_prefix_cache(options.cache,
                        PrefixCacheOptions{.allocator = cache->allocator_,
                                           .page_size = options.page_size,
                                           .eviction = options.eviction,
                                           .namespaces_max = options.namespaces_max,
                                           .lookup_hash_bits = 32,
                                           .hash_seed = std::nullopt,
                                           .clock = &cache->clock_,
                                           .evicted_marks = options.evicted_marks,
                                           .events_pages_max = options.events_pages_max,
                                           .creditors = creditors}));
  cache->space_ = std::make_unique<PageSpace>(cache->allocator_, *cache->prefix_);
  if (tiers_or_null != nullptr) {
    STEMMA_RETURN_IF_ERROR(or_no_thread([&] { return cache->open_tiering(*tiers_or_null); }));
  }
  return cache;
}

KvCache::KvCache(const KvCacheOptions& options, std::unique_ptr<Clock> own_clock,
                 const Clock& clock)
    : options_(options),
      own_clock_(std::move(own_clock)),
      clock_(clock),
      allocator_(options.pages),
      rows_(std::make_unique<RequestTable>(
          RequestTable::Extent{.rows = options.requests_max, .pages_max = row_pages_max(options)})),
      windows_(options.window_tokens > 0 ? std::make_unique<Windows>(options, allocator_)
                                         : nullptr),
      grafts_(std::make_unique<Grafts>()),
      live_(static_cast<std::size_t>(options.requests_max), nullptr) {}

Status KvCache::open_tiering(LowerTiers& lower) {
  if (options_.cache != "radix") {
    return Error{ErrorCode::kInvalidArgument,
                 "lower tiers need the cache \"radix\" (got \"" + options_.cache + "\")"};
  }
  if ((options_.window_tokens > 0) != (lower.host_windowed_pages() > 0)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("window_tokens is {}, and lower tiers have {} windowed pages",
                             options_.window_tokens, lower.host_windowed_pages())};
  }
  WindowedPages* const windowed = windows_ == nullptr ? nullptr : &windows_->pages();
  STEMMA_ASSIGN_OR_RETURN(
      tiering_,
      Tiering::open(
          options_, lower,
          {.tree = tree(), .grafts = *grafts_, .space = *space_, .windowed_or_null = windowed},
          clock_));
  return {};
}

KvCache::~KvCache() {
  const bool idle = std::all_of(live_.begin(), live_.end(),
                                [](const Sequence* sequence) { return sequence == nullptr; });
  STEMMA_CHECK(idle, "a Sequence must not outlive its KvCache");
}

std::optional<NamespaceId> KvCache::try_open_namespace(const NamespaceDigest& digest,
                                                       const SharedPrefix* shared_or_null) {
  NamespaceId shared;
  if (shared_or_null != nullptr && shares()) {
    STEMMA_CHECK(shared_or_null->tokens > 0 && shared_or_null->tokens % page_size() == 0,
                 "whole pages are shared");
    const auto opened = try_open_namespace(shared_or_null->digest);
    if (!opened.has_value()) return std::nullopt;
    shared = *opened;
  }
  const auto ns = space_->try_open_namespace(digest);
  if (!ns.has_value()) {
    if (shared.valid()) close_namespace(shared);
    return std::nullopt;
  }
  if (tiering_ != nullptr) tiering_->open_namespace(*ns, digest);
  grafts_->set(*ns, shared, shared.valid() ? *shared_or_null : SharedPrefix());
  if (shares()) tree().set_grafted(*ns, shared.valid());
  if (tiering_ != nullptr && shared.valid() &&
      grafts_->take_wrong(shared_or_null->digest, shared_or_null->tokens)) {
    tiering_->forget_stored();
    quarantine_all({&*ns, 1});  // what host memory has of an earlier life
  }
  return ns;
}

void KvCache::close_namespace(NamespaceId ns) {
  if (tiering_ != nullptr) tiering_->close_namespace(ns);
  prefix_->close_namespace(ns);
  const NamespaceId shared = grafts_->shared_ns(ns);
  if (shared.valid()) close_namespace(shared);
}

std::int64_t KvCache::common_tokens(NamespaceId a, NamespaceId b, std::int64_t tokens) const {
  return grafts_->common_tokens(a, b, tokens);
}

std::int64_t KvCache::probe(NamespaceId ns, std::span<const TokenId> tokens) const {
  STEMMA_CHECK(!tokens.empty(), "a prompt has at least one token");
  return find(grafts_->of(ns), tokens.first(tokens.size() - 1)).usable_tokens;
}

// A namespace without a name has nothing.
FoundText KvCache::find(const Graft& graft, std::span<const TokenId> tokens) const {
  const bool windowed = windows_ != nullptr && shares();
  const std::span<PageId> row = windowed ? windows_->row_scratch() : std::span<PageId>();
  const GraftedText text = graft.split(tokens);
  const auto probe_part = [&](NamespaceId part_ns, std::span<const TokenId> part,
                              std::int64_t first_token) {
    if (!part_ns.valid()) return PrefixProbe();
    if (!windowed) return prefix_->probe(part_ns, part);
    const auto rest = row.subspan(static_cast<std::size_t>(first_token / page_size()));
    return tree().probe(part_ns, part, rest);
  };
  FoundText found;
  const auto add = [&found](const PrefixProbe& part) {
    found.tokens += part.matched_tokens;
    found.evictable_tokens += part.evictable_tokens;
  };
  if (!text.shared.empty()) add(probe_part(text.shared_ns, text.shared, 0));
  if (found.tokens == std::ssize(text.shared))
    add(probe_part(graft.own_ns, text.own, found.tokens));
  found.usable_tokens = found.tokens;
  if (windowed) {
    const auto pages = static_cast<std::size_t>(found.tokens / page_size());
    found.usable_tokens = windows_->usable_pages(row.first(pages)) * page_size();
  }
  return found;
}

void KvCache::want(NamespaceId ns, std::span<const TokenId> tokens, std::int64_t turn) {
  STEMMA_CHECK(!tokens.empty(), "a prompt has at least one token");
  const GraftedText text = grafts_->split(ns, tokens.first(tokens.size() - 1));
  if (text.shared_ns.valid()) {
    tree().want(text.shared_ns, text.shared, WantedTurn{.turn = turn, .shared = true});
  }
  prefix_->want(ns, text.own, turn);
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
  std::span<const TokenId> wanted = tokens.first(tokens.size() - 1);
  FoundText found;
  if (windows_ != nullptr) {
    found = find(grafts_->of(ns), wanted);
    wanted = wanted.first(static_cast<std::size_t>(found.usable_tokens));
  }
  Sequence sequence(this, row->release(), match(ns, wanted), std::ssize(tokens));
  rows_->grow(sequence.row_, sequence.published_tokens() / page_size());
  name_published(sequence, 0);
  if (windows_ != nullptr) {
    sequence.window_.ends = {std::ssize(tokens), found.tokens};
    windows_->enter(sequence.window_, sequence.pages(), sequence.published_tokens());
  }
  return sequence;
}

// What is shared, and where that is whole what goes on from it. Without the shared part nobody
// finds that: so it is used last, here as wherever more of the two is found or published.
Sequence::Published KvCache::match(NamespaceId ns, std::span<const TokenId> tokens) {
  GraftedText text = grafts_->split(ns, tokens);
  if (tiering_ != nullptr) tiering_->note_shared(ns, text);
  Sequence::Published found;
  if (text.shared_ns.valid()) {
    found.shared = prefix_->match(text.shared_ns, text.shared);
    if (tiering_ != nullptr) tiering_->matched(found.shared);
    if (found.shared.tokens() < grafts_->shared_tokens(ns)) {
      text.own = {};
    } else {
      tree().follow(ns, found.shared);
    }
  }
  found.own = prefix_->match(ns, text.own);
  if (text.shared_ns.valid() && !text.own.empty()) tree().touch(found.shared, {});
  if (tiering_ != nullptr) tiering_->matched(found.own);
  return found;
}

// Writes the row's pages from `first_page` on, as far as they are published.
void KvCache::name_published(Sequence& sequence, std::int64_t first_page) {
  const std::int64_t shared_pages = sequence.shared_.tokens() / page_size();
  const std::int64_t pages = sequence.published_tokens() / page_size();
  auto row = rows_->pages(sequence.row_)
                 .subspan(static_cast<std::size_t>(first_page),
                          static_cast<std::size_t>(pages - first_page));
  if (first_page < shared_pages) {
    const auto written = static_cast<std::size_t>(sequence.shared_.copy_pages(first_page, row));
    row = row.subspan(written);
    first_page = shared_pages;
  }
  sequence.prefix_.copy_pages(first_page - shared_pages, row);
}

bool KvCache::reserve(Sequence& sequence, std::int64_t tokens) {
  STEMMA_CHECK(sequence.cache_ == this, "the sequence began here");
  STEMMA_CHECK_LE(tokens, options_.context_tokens_max);
  const std::int64_t wanted = ceil_div(tokens, page_size()) - held_pages(sequence);
  if (wanted <= 0) {
    return true;
  }
  if (!can_get(wanted)) {
    return false;
  }
  OwnedPages added = *space_->try_take(wanted);
  const std::span<PageId> grown = rows_->grow(sequence.row_, wanted);
  added.copy_to(grown);
  if (windows_ != nullptr) {
    const bool hung = windows_->pages().try_hang(grown);
    STEMMA_CHECK(hung, "the pages were counted before they were taken");
  }
  sequence.tail_.append(std::move(added));
  return true;
}

std::int64_t KvCache::reservable_tokens(const Sequence& sequence) const {
  std::int64_t more = reservable_pages();
  if (windows_ != nullptr) more = std::min(more, windows_->pages().available_pages());
  return (held_pages(sequence) + more) * page_size();
}

bool KvCache::can_get(std::int64_t pages) const {
  return pages <= reservable_pages() &&
         (windows_ == nullptr || pages <= windows_->pages().available_pages());
}

void KvCache::commit(Sequence& sequence, std::span<const TokenId> computed) {
  STEMMA_CHECK(sequence.cache_ == this && !sequence.on_loan(), "the sequence began here");
  const auto computed_tokens = static_cast<std::int64_t>(computed.size());
  STEMMA_CHECK_LE(computed_tokens, sequence.capacity_tokens());
  const std::int64_t full_tokens = round_down(computed_tokens, page_size());
  const std::int64_t first_page = sequence.published_tokens() / page_size();
  const std::int64_t new_pages = full_tokens / page_size() - first_page;
  if (!shares() || !sequence.publishes_ || new_pages <= 0) {
    return;
  }
  const GraftedText text = grafts_->split(sequence.prefix_.namespace_id(),
                                          computed.first(static_cast<std::size_t>(full_tokens)));
  if (windows_ != nullptr) {
    windows_->take_off(sequence.pages().subspan(static_cast<std::size_t>(first_page),
                                                static_cast<std::size_t>(new_pages)));
  }
  bool shared_grew = false;
  if (sequence.shared_.valid()) {
    shared_grew = publish(sequence, sequence.shared_, text.shared);
    const bool begins_own = sequence.prefix_.tokens() == 0 && !text.own.empty();
    if (begins_own) tree().follow(sequence.prefix_.namespace_id(), sequence.shared_);
  }
  const bool own_grew = publish(sequence, sequence.prefix_, text.own);
  if (own_grew && sequence.shared_.valid()) {
    tree().touch(sequence.shared_, {.priority = sequence.priority_});
  }
  STEMMA_CHECK_EQ(sequence.published_tokens(), full_tokens);
  name_published(sequence, first_page);
  if (windows_ != nullptr) windows_->put_back(sequence.window_, sequence.pages(), first_page);
  if (tiering_ == nullptr) return;
  if (shared_grew) tiering_->published(sequence.shared_);
  if (own_grew) tiering_->published(sequence.prefix_);
  if (windows_ != nullptr) back_up_windows(sequence, first_page * page_size());
}

// Of the places where a text is likely to be gone on from, those that were published now.
void KvCache::back_up_windows(const Sequence& sequence, std::int64_t first_token) {
  const std::int64_t published = sequence.published_tokens();
  const std::int64_t shared = sequence.shared_.tokens();
  if (first_token < shared) tiering_->likely_end(sequence.shared_, shared);
  for (const std::int64_t likely : sequence.window_.ends) {
    const std::int64_t end = round_down(likely, page_size());
    if (std::max(first_token, shared) < end && end <= published) {
      tiering_->likely_end(sequence.prefix_, end - shared);
    }
  }
}

void KvCache::advance(Sequence& sequence, std::int64_t computed_tokens) {
  if (windows_ == nullptr) return;
  STEMMA_CHECK(sequence.cache_ == this, "the sequence began here");
  windows_->advance(sequence.window_, sequence.pages(), sequence.published_tokens() / page_size(),
                    computed_tokens);
}

void KvCache::copy_windowed(const Sequence& sequence, std::int64_t first_token,
                            std::span<PageId> out) const {
  windows_->copy_held(sequence.window_, sequence.pages(), first_token, out);
}

// `held` is one of the sequence's locks; `tokens`, whole pages, are all that its namespace is to
// have of the text. False if it has that.
bool KvCache::publish(Sequence& sequence, PrefixLock& held, std::span<const TokenId> tokens) {
  const std::int64_t new_pages = (std::ssize(tokens) - held.tokens()) / page_size();
  if (new_pages == 0) return false;
  held = prefix_->insert(tokens, std::move(held), sequence.tail_.take_front(new_pages),
                         InsertOptions{.priority = sequence.priority_});
  return true;
}

// Locks what is published of `tokens` beyond what the sequence has. Its row is left as it is.
void KvCache::extend(Sequence& sequence, std::span<const TokenId> tokens) {
  const NamespaceId ns = sequence.prefix_.namespace_id();
  const GraftedText text = grafts_->split(ns, tokens);
  if (sequence.shared_.valid()) {
    sequence.shared_ = prefix_->extend(std::move(sequence.shared_), text.shared);
    if (sequence.shared_.tokens() < grafts_->shared_tokens(ns)) return;
    tree().follow(ns, sequence.shared_);
  }
  sequence.prefix_ = prefix_->extend(std::move(sequence.prefix_), text.own);
  if (sequence.shared_.valid()) tree().touch(sequence.shared_, {});
}

// What the tree has beyond what is computed takes the place of the whole tail: of a page that is
// only begun, and of pages reserved ahead.
std::int64_t KvCache::adopt(Sequence& sequence, std::span<const TokenId> tokens,
                            std::int64_t computed_tokens) {
  STEMMA_CHECK(sequence.cache_ == this, "the sequence began here");
  commit(sequence, tokens.first(static_cast<std::size_t>(computed_tokens)));
  const auto wanted = tokens.first(tokens.size() - 1);
  const std::int64_t published = sequence.published_tokens();
  const std::int64_t found =
      find(grafts_->of(sequence.prefix_.namespace_id()), wanted).usable_tokens;
  if (!shares() || !sequence.publishes_ || found <= computed_tokens ||
      found < sequence.capacity_tokens()) {
    return computed_tokens;
  }
  const auto held = static_cast<std::int64_t>(sequence.pages().size());
  if (windows_ != nullptr) {
    windows_->leave(sequence.window_, sequence.pages(), published / page_size());
  }
  extend(sequence, wanted.first(static_cast<std::size_t>(found)));
  STEMMA_CHECK_EQ(sequence.published_tokens(), found);
  sequence.tail_.reset();
  static_cast<void>(rows_->grow(sequence.row_, found / page_size() - held));
  name_published(sequence, published / page_size());
  if (windows_ != nullptr) windows_->enter(sequence.window_, sequence.pages(), found);
  return found;
}

void KvCache::finish(Sequence sequence, std::span<const TokenId> computed,
                     std::int64_t publish_tokens_max) {
  const auto computed_tokens = static_cast<std::int64_t>(computed.size());
  const std::int64_t published = std::min(computed_tokens, publish_tokens_max);
  commit(sequence, computed.first(static_cast<std::size_t>(published)));
  if (!sequence.publishes_) return sequence.reset();  // no end that a policy should learn from
  if (windows_ != nullptr && tiering_ != nullptr) {
    tiering_->likely_end(sequence.prefix_, sequence.prefix_.tokens());
  }
  const std::int64_t shared = grafts_->shared_tokens(sequence.prefix_.namespace_id());
  RequestEnd end = {
      .prompt_tokens = std::max<std::int64_t>(sequence.prompt_tokens_ - shared, 0),
      .output_tokens = std::max<std::int64_t>(computed_tokens - sequence.prompt_tokens_, 0),
      .begun_us = sequence.begun_us_,
      .priority = sequence.priority_,
      .retention = sequence.retention_,
      .session_closed = sequence.session_closed_};
  prefix_->complete(sequence.prefix_, end);
  end.prompt_tokens = std::min(sequence.prompt_tokens_, shared);
  end.output_tokens = 0;
  if (sequence.shared_.valid()) prefix_->complete(sequence.shared_, end);
  sequence.reset();
}

std::int64_t KvCache::begin_step() {
  ++steps_in_flight_;
  if (windows_ != nullptr) windows_->pages().begin_step();
  return allocator_.begin_step();
}

void KvCache::retire_step(std::int64_t step) {
  allocator_.retire_step(step);
  if (windows_ != nullptr) windows_->pages().retire_step();
  --steps_in_flight_;
}

void KvCache::reset() {
  STEMMA_CHECK_EQ(free_rows(), rows_->rows());
  give_up_promotions(PromotionUse::kComputing);
  if (tiering_ != nullptr) tiering_->give_up_owed();
  while (tiering_ != nullptr && tiering_->holds_device()) {
    wait_transfers(std::chrono::milliseconds(10));
    poll_transfers();
    STEMMA_CHECK(steps_in_flight_ == 0 || !arrivals_wait(), "pages come up between steps");
  }
  prefix_->reset();
}

std::int64_t KvCache::evict(std::int64_t pages) {
  STEMMA_CHECK(pages >= 0 && steps_in_flight_ == 0, "what a step reads stays");
  return space_->evict(pages);
}

void KvCache::keep_free(std::int64_t pages) {
  const std::int64_t missing = pages - allocator_.free_pages() - allocator_.retiring_pages();
  if (missing > 0) space_->evict(missing);
  if (windows_ != nullptr) windows_->pages().keep_free(pages);
}

std::int64_t KvCache::available_pages() const {
  return space_->available_pages();
}

std::int64_t KvCache::available_pages_beside(NamespaceId ns,
                                             std::span<const TokenId> tokens) const {
  FoundText found = find(grafts_->of(ns), tokens.first(tokens.size() - 1));
  if (found.usable_tokens < found.tokens) {  // begin holds what can be gone on from
    found = find(grafts_->of(ns), tokens.first(static_cast<std::size_t>(found.usable_tokens)));
  }
  return available_pages() - found.evictable_tokens / page_size();
}

std::int64_t KvCache::available_windowed_pages() const {
  return windows_->pages().available_pages();
}

std::int64_t KvCache::evicted_pages() const {
  return space_->evicted_pages();
}

std::int64_t KvCache::free_rows() const {
  return rows_->free_rows();
}

std::int64_t KvCache::held_pages(const Sequence& sequence) const {
  return sequence.published_tokens() / page_size() + sequence.lent_pages_ + sequence.tail_.pages();
}

std::int64_t KvCache::reservable_pages() const {
  return steps_in_flight_ == 0 ? available_pages() : allocator_.free_pages();
}

}  // namespace stemma
