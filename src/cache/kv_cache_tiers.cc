// What a KvCache does with lower tiers: nothing where there are none.
#include <algorithm>
#include <utility>

#include "alloc/request_table.h"
#include "base/check.h"
#include "base/clock.h"
#include "cache/grafts.h"
#include "cache/text_report.h"
#include "cache/tiering.h"
#include "cache/windows.h"
#include "prefix/page_key.h"
#include "prefix/radix_prefix_cache.h"
#include "stemma/kv_cache.h"

namespace stemma {
namespace {

// How long to sleep at a time for copies to end.
constexpr std::chrono::microseconds kNap(500);

// What a request can come to hold of a text that it begins with. Where a text is longer than
// requests may be, nobody would hold what else of it came up, nor has a row room for it.
std::span<const TokenId> holdable(const KvCacheOptions& options, std::span<const TokenId> tokens) {
  const std::int64_t held = std::min(std::ssize(tokens), options.context_tokens_max) - 1;
  return tokens.first(static_cast<std::size_t>(held));
}

// The key of the page of `tokens` behind what is held, if anything, of a text in this namespace.
PageKey key_behind(const PrefixLock& held, const NamespaceDigest& digest,
                   std::span<const TokenId> tokens) {
  PageKey last = PageKeyHasher::root(digest);
  const auto pages = held.tokens() / std::ssize(tokens);
  if (pages > 0) held.copy_page_keys(pages - 1, {&last, 1});
  return PageKeyHasher().next(last, tokens);
}

}  // namespace

bool KvCache::poll_transfers() {
  if (tiering_ == nullptr) return false;
  if (steps_in_flight_ > 0) return tiering_->poll_beside_steps();
  tiering_->loans().clear();  // of a step that was planned and not run
  return tiering_->poll();
}

bool KvCache::arrivals_wait() {
  return tiering_ != nullptr && tiering_->arrivals_wait();
}

bool KvCache::transfers_underway() const {
  return tiering_ != nullptr && tiering_->underway();
}

bool KvCache::pages_arriving(std::int64_t within_us) const {
  return tiering_ != nullptr && tiering_->pages_arriving(clock_.now_us() - within_us);
}

void KvCache::wait_transfers(std::chrono::microseconds time) {
  if (tiering_ != nullptr) tiering_->wait_landed(time);
}

void KvCache::settle(std::int64_t deadline_us) {
  if (tiering_ == nullptr) return;
  for (bool all = false; clock_.now_us() < deadline_us;) {
    tiering_->poll();
    if (!all) all = tiering_->settle_more();
    if (all && !tiering_->underway() && !tiering_->removing_before_end()) break;
    tiering_->wait_landed(kNap);
  }
  tiering_->end_settling();
  tiering_->save_host();
}

// Where what everybody shares is not whole on the device, that is what the request waits for; what
// goes on from it comes by itself, in what place and pages are left. Without the shared part it
// would not be found: it is not brought then.
std::optional<PromotionId> KvCache::try_promote(NamespaceId ns, std::span<const TokenId> tokens) {
  if (tiering_ == nullptr) return std::nullopt;
  const GraftedText text = grafts_->split(ns, holdable(options_, tokens));
  if (!text.shared_ns.valid()) return tiering_->try_promote(ns, text.own);
  tiering_->note_shared(ns, text);
  const FoundText found = find(grafts_->of(text.shared_ns), text.shared);
  // Events tell of what comes.
  if (!text.own.empty()) tree().follow(ns, text.shared_ns, text.shared);
  if (found.tokens == std::ssize(text.shared)) {
    const auto own = tiering_->try_promote(ns, text.own);
    const bool windows_gone = found.usable_tokens < found.tokens;
    if (own.has_value() || !windows_gone) return own;
    return tiering_->try_promote(text.shared_ns, text.shared);
  }
  const auto shared = tiering_->try_promote(text.shared_ns, text.shared);
  if (!shared.has_value()) return std::nullopt;
  tiering_->bring_behind(ns, text.own);
  return shared;
}

// Of the part that try_promote would begin.
bool KvCache::can_promote(NamespaceId ns, std::span<const TokenId> tokens) const {
  if (tiering_ == nullptr) return true;
  const GraftedText text = grafts_->split(ns, holdable(options_, tokens));
  if (!text.shared_ns.valid()) return tiering_->can_promote(ns, text.own);
  const FoundText found = find(grafts_->of(text.shared_ns), text.shared);
  const bool whole = found.tokens == std::ssize(text.shared);
  if (whole && tiering_->can_promote(ns, text.own)) return true;
  if (whole && found.usable_tokens == found.tokens) return false;
  return tiering_->can_promote(text.shared_ns, text.shared);
}

bool KvCache::worth_waiting(PromotionId id) const {
  return tiering_->promotions().worth_waiting(id);
}

bool KvCache::may_bring_more(PromotionId id, NamespaceId ns,
                             std::span<const TokenId> tokens) const {
  return tiering_->may_bring_more(id, ns, grafts_->split(ns, holdable(options_, tokens)).own);
}

bool KvCache::can_lend(PromotionId id) const {
  return tiering_->promotions().lendable_or_null(id) != nullptr;
}

// The promotion may bring another request's text: what it has in common with this one is lent.
std::int64_t KvCache::lend(Sequence& sequence, std::span<const TokenId> tokens, PromotionId id) {
  STEMMA_CHECK(!sequence.on_loan() && sequence.tail_.pages() == 0, "it holds what begin found");
  const std::int64_t held = sequence.published_tokens();
  Transfer* job = tiering_->promotions().lendable_or_null(id);
  if (job == nullptr) return held;
  // It brings what everybody shares, or what goes on from it: is that what comes next? Neither goes
  // on in the other's pages, whatever its text.
  const NamespaceId ns = sequence.prefix_.namespace_id();
  const GraftedText text = grafts_->split(ns, tokens.first(tokens.size() - 1));
  const bool next_is_shared = held < std::ssize(text.shared);
  if (job->digest != tree().digest(next_is_shared ? text.shared_ns : ns)) return held;
  const auto part = next_is_shared ? text.shared : text.own;
  const std::int64_t begins = next_is_shared ? 0 : std::ssize(text.shared);
  const std::int64_t skipped = (held - begins) / page_size() - job->first_page;
  if (skipped < 0 || skipped >= job->pages()) return held;
  const auto brought =
      std::span(job->tokens).subspan(static_cast<std::size_t>(skipped * page_size()));
  const auto wanted = part.subspan(static_cast<std::size_t>(held - begins));
  const auto parted = std::mismatch(brought.begin(), brought.end(), wanted.begin(), wanted.end());
  const std::int64_t pages = (parted.first - brought.begin()) / page_size();
  if (pages == 0) return held;
  // The same tokens there are another page where what comes before them differs.
  const PrefixLock& before = next_is_shared ? sequence.shared_ : sequence.prefix_;
  const auto next_page = wanted.first(static_cast<std::size_t>(page_size()));
  if (job->keys[static_cast<std::size_t>(skipped)] != key_behind(before, job->digest, next_page)) {
    return held;
  }
  const auto from = job->to.begin() + skipped;
  std::copy(from, from + pages, rows_->grow(sequence.row_, pages).begin());
  sequence.lent_pages_ = pages;
  tiering_->loans().add(*job, id.value());
  tiering_->counters().lent += pages;
  return held + pages * page_size();
}

LayerGate* KvCache::arriving_or_null() {
  return tiering_ == nullptr || tiering_->loans().empty() ? nullptr : &tiering_->loans();
}

bool KvCache::await_lent() {
  if (tiering_ == nullptr || tiering_->loans().empty()) return true;
  STEMMA_CHECK_EQ(steps_in_flight_, 0);
  return tiering_->end_loans(kNap);
}

bool KvCache::end_loan(Sequence& sequence, std::span<const TokenId> tokens) {
  const std::int64_t first = sequence.published_tokens() / page_size();
  const std::int64_t end = first + std::exchange(sequence.lent_pages_, 0);
  extend(sequence, tokens.first(static_cast<std::size_t>(end * page_size())));
  const std::int64_t published = sequence.published_tokens() / page_size();
  name_published(sequence, first);
  if (published == end) return true;
  sequence.tail_.reset();
  rows_->shrink(sequence.row_, published);
  ++tiering_->counters().void_loans;
  return false;
}

void KvCache::promotion_started(PromotionId id) {
  tiering_->promotions().started(id);
}

std::int64_t KvCache::promotion_pages(PromotionId id) const {
  return tiering_->promotions().promised_pages(id);
}

PromotionOutcome KvCache::promotion_outcome(PromotionId id) const {
  return tiering_->promotions().outcome(id);
}

void KvCache::release_promotion(PromotionId id, PromotionUse use) {
  tiering_->promotions().release(id, use);
}

void KvCache::give_up_promotions(PromotionUse use, PromotionId keep) {
  if (tiering_ != nullptr) tiering_->promotions().give_up(use, keep);
}

bool KvCache::try_prefetch(NamespaceId ns, std::span<const TokenId> tokens) {
  if (tiering_ == nullptr) return true;
  const GraftedText text = grafts_->split(ns, holdable(options_, tokens));
  tiering_->note_shared(ns, text);
  const bool shared =
      !text.shared_ns.valid() || tiering_->try_prefetch(text.shared_ns, text.shared);
  return tiering_->try_prefetch(ns, text.own) && shared;
}

std::int64_t KvCache::probe_host(NamespaceId ns, std::span<const TokenId> tokens) const {
  return find_below(Tier::kHost, ns, tokens);
}

std::int64_t KvCache::probe_stores(NamespaceId ns, std::span<const TokenId> tokens) {
  return find_below(Tier::kDisk, ns, tokens);
}

bool KvCache::asks_stores(NamespaceId ns) const {
  if (tiering_ == nullptr) return false;
  const NamespaceId shared_ns = grafts_->shared_ns(ns);
  return tiering_->asks_stores(tree().digest(ns)) ||
         (shared_ns.valid() && tiering_->asks_stores(tree().digest(shared_ns)));
}

// In host memory, or in page stores.
std::int64_t KvCache::find_below(Tier tier, NamespaceId ns, std::span<const TokenId> tokens) const {
  if (tiering_ == nullptr) return 0;
  const Graft graft = grafts_->of(ns);
  return TextReporter(*this).find_below(graft, tokens, [&](bool shared, auto part) {
    const NamespaceId part_ns = shared ? graft.shared_ns : ns;
    return tier == Tier::kHost ? tiering_->probe_host(part_ns, part)
                               : tiering_->probe_stores(tree().digest(part_ns), part);
  });
}

std::int64_t KvCache::now_us() const {
  return clock_.now_us();
}

void KvCache::note_computed(std::int64_t first_token, std::int64_t tokens, std::int64_t us) {
  if (tiering_ != nullptr) tiering_->costs().computed(first_token, tokens, us);
}

// These epochs only grow: the sum stands still exactly as long as each of them does.
std::uint64_t KvCache::epoch() const {
  return prefix_->epoch() + (windows_ == nullptr ? 0 : windows_->pages().epoch()) +
         (tiering_ == nullptr ? 0 : tiering_->epoch());
}

}  // namespace stemma
