// What a KvCache does with lower tiers: nothing where there are none.
#include "base/check.h"
#include "base/clock.h"
#include "cache/tiering.h"
#include "stemma/kv_cache.h"

namespace stemma {

void KvCache::poll_transfers() {
  STEMMA_CHECK_EQ(steps_in_flight_, 0);
  if (tiering_ != nullptr) tiering_->poll();
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
  constexpr std::chrono::microseconds kNap(500);
  if (tiering_ == nullptr) return;
  for (bool all = false; clock_.now_us() < deadline_us;) {
    tiering_->poll();
    if (!all) all = tiering_->settle_more();
    if (all && !tiering_->underway()) break;
    tiering_->wait_landed(kNap);
  }
  tiering_->end_settling();
}

std::optional<PromotionId> KvCache::try_promote(NamespaceId ns, std::span<const TokenId> tokens) {
  if (tiering_ == nullptr) return std::nullopt;
  return tiering_->try_promote(ns, tokens.first(tokens.size() - 1));
}

bool KvCache::worth_waiting(PromotionId id) const {
  return tiering_->promotions().worth_waiting(id);
}

void KvCache::promotion_started(PromotionId id) {
  tiering_->promotions().started(id);
}

std::int64_t KvCache::promotion_pages(PromotionId id) const {
  return tiering_->promotions().owned_pages(id);
}

BroughtTokens KvCache::promoted_tokens(PromotionId id) const {
  return tiering_->promotions().brought(id);
}

void KvCache::release_promotion(PromotionId id, PromotionUse use) {
  tiering_->promotions().release(id, use);
}

void KvCache::give_up_promotions(PromotionUse use, PromotionId keep) {
  if (tiering_ != nullptr) tiering_->promotions().give_up(use, keep);
}

bool KvCache::try_prefetch(NamespaceId ns, std::span<const TokenId> tokens) {
  return tiering_ == nullptr || tiering_->try_prefetch(ns, tokens.first(tokens.size() - 1));
}

std::int64_t KvCache::probe_host(NamespaceId ns, std::span<const TokenId> tokens) const {
  return tiering_ == nullptr ? 0 : tiering_->probe_host(ns, tokens.first(tokens.size() - 1));
}

void KvCache::note_computed(std::int64_t first_token, std::int64_t tokens, std::int64_t us) {
  if (tiering_ != nullptr) tiering_->costs().computed(first_token, tokens, us);
}

void KvCache::visit_tier_metrics(MetricVisitor& visitor) const {
  if (tiering_ != nullptr) tiering_->visit_metrics(visitor);
}

// Both trees' epochs only grow: the sum stands still exactly as long as both do.
std::uint64_t KvCache::epoch() const {
  return prefix_->epoch() + (tiering_ == nullptr ? 0 : tiering_->epoch());
}

}  // namespace stemma
