// What a KvCache does for audits of cached pages, for tenants with quotas, for those who want pages
// forgotten, and for those who follow it from outside. Only a cache that shares has pages to audit,
// to keep and to tell of, and that is the radix tree.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "cache/audit_hold.h"
#include "cache/grafts.h"
#include "cache/tiering.h"
#include "cache/windows.h"
#include "prefix/radix_prefix_cache.h"
#include "stemma/kv_cache.h"

namespace stemma {

RadixPrefixCache& KvCache::tree() const {
  STEMMA_CHECK(prefix_->name() == "radix", "only pages that are shared can be found again");
  return static_cast<RadixPrefixCache&>(*prefix_);
}

void KvCache::copy_text(const Sequence& sequence, CachedText& out) const {
  STEMMA_CHECK(sequence.cache_ == this && sequence.published_tokens() > 0, "it shares pages here");
  out.ns = sequence.prefix_.namespace_id();
  out.digest = tree().digest(out.ns);
  out.shared = {};
  out.tokens.resize(static_cast<std::size_t>(sequence.published_tokens()));
  const auto shared = static_cast<std::size_t>(sequence.shared_.tokens());
  if (shared > 0) {
    out.shared = {tree().digest(grafts_->shared_ns(out.ns)), grafts_->shared_tokens(out.ns)};
    tree().copy_tokens(sequence.shared_, std::span(out.tokens).first(shared));
  }
  if (sequence.prefix_.tokens() == 0) return;
  tree().copy_tokens(sequence.prefix_, std::span(out.tokens).subspan(shared));
}

// Locks the pages of one part of a text, and appends them to the hold's.
bool KvCache::try_hold_part(NamespaceId ns, const NamespaceDigest& digest,
                            std::span<const TokenId> tokens, PrefixLock& lock,
                            std::vector<PageId>& pages) {
  if (tokens.empty()) return true;
  std::optional<PrefixLock> held = tree().try_lock(ns, digest, tokens);
  if (!held.has_value()) return false;
  lock = *std::move(held);
  const std::size_t before = pages.size();
  pages.resize(before + static_cast<std::size_t>(lock.tokens() / page_size()));
  lock.copy_pages(0, std::span(pages).subspan(before));
  pages.resize(before + tokens.size() / static_cast<std::size_t>(page_size()));
  return true;
}

bool KvCache::has_scratch_page() const {
  const bool windowed = windows_ == nullptr || windows_->pages().free_pages() > 0;
  return windowed && allocator_.free_pages() > 0;
}

// A name may stand for another namespace by now: then nothing is found.
std::optional<AuditHold> KvCache::try_hold(const CachedText& text, AuditRow& row) {
  if (!has_scratch_page()) return std::nullopt;
  if (grafts_->shared_tokens(text.ns) != text.shared.tokens) return std::nullopt;
  AuditHold hold;
  row.full.clear();
  const GraftedText parts = grafts_->split(text.ns, text.tokens);
  if (!try_hold_part(parts.shared_ns, text.shared.digest, parts.shared, hold.locks[0], row.full) ||
      !try_hold_part(text.ns, text.digest, parts.own, hold.locks[1], row.full)) {
    return std::nullopt;
  }
  const std::int64_t end_token = std::ssize(row.full) * page_size();
  row.first_token = end_token - page_size();
  if (windows_ != nullptr) {
    row.first_token = windows_->copy_last(row.full, row.windowed);
    if (row.first_token == end_token) return std::nullopt;
    hold.windowed_scratch = TakenWindowedPages::try_take(windows_->pages(), 1);
  }
  hold.scratch = *allocator_.try_allocate(1);
  return hold;
}

// What was computed behind a page that all share is wrong too, also in namespaces that only page
// stores or host memory know. Whether all share the pages of a namespace that is read itself shows
// by who goes on from it: in this life, or when somebody comes who did in an earlier one.
void KvCache::quarantine(const CachedText& text, std::int64_t end_tokens) {
  STEMMA_CHECK_EQ(steps_in_flight_, 0);
  STEMMA_CHECK(end_tokens > 0 && end_tokens % page_size() == 0, "whole pages");
  const GraftedText parts =
      grafts_->split(text.ns, std::span(text.tokens).first(static_cast<std::size_t>(end_tokens)));
  const bool is_shared = parts.own.empty();
  const bool is_behind = !is_shared && parts.shared_ns.valid();
  const NamespaceId ns = is_shared ? parts.shared_ns : text.ns;
  std::vector<NamespaceId> dependents;
  if (!is_behind) dependents = grafts_->dependents_of(tree().digest(ns), end_tokens);
  const bool forgets = is_shared || !dependents.empty() ||
                       (!is_behind && !grafts_->try_note_wrong(text.digest, end_tokens));
  if (forgets && tiering_ != nullptr) tiering_->forget_stored();
  quarantine_part(ns, is_shared ? parts.shared : parts.own);
  if (forgets) quarantine_all(dependents);
}

// The last page of `wrong` is.
void KvCache::quarantine_part(NamespaceId ns, std::span<const TokenId> wrong) {
  if (tiering_ != nullptr) return tiering_->quarantine(ns, wrong);
  std::vector<PageKey> keys;
  tree().quarantine(ns, wrong, std::ssize(wrong) - page_size(), keys);
}

void KvCache::quarantine_all(std::span<const NamespaceId> namespaces) {
  if (tiering_ != nullptr) return tiering_->quarantine_all(namespaces);
  std::vector<PageKey> keys;
  static_cast<void>(tree().quarantine_all(namespaces, keys));
}

bool KvCache::is_quarantined(const Sequence& sequence) const {
  return (sequence.shared_.tokens() > 0 && tree().is_quarantined(sequence.shared_)) ||
         (sequence.prefix_.tokens() > 0 && tree().is_quarantined(sequence.prefix_));
}

Result<PurgeId> KvCache::purge(std::span<const NamespaceFamily> namespaces) {
  STEMMA_CHECK_EQ(steps_in_flight_, 0);
  if (tiering_ != nullptr && !tiering_->can_purge(namespaces)) {
    return Error{ErrorCode::kTooLarge, "too many purges wait for a page store; ask again later"};
  }
  for (Sequence* const sequence : live_) {
    if (sequence != nullptr && is_of_any(sequence->namespace_id(), namespaces)) {
      sequence->stop_publishing();
    }
  }
  if (tiering_ != nullptr) return tiering_->purge(namespaces);
  last_purge_.emplace();
  if (shares()) last_purge_->pages[0] = tree().purge(namespaces);
  return PurgeId(purges_++);
}

bool KvCache::is_of_any(NamespaceId ns, std::span<const NamespaceFamily> families) const {
  if (!shares()) return false;
  const NamespaceId shared = grafts_->shared_ns(ns);
  return stemma::is_of_any(tree().digest(ns), families) ||
         (shared.valid() && stemma::is_of_any(tree().digest(shared), families));
}

std::optional<PurgeReport> KvCache::purge_report(PurgeId id) const {
  if (tiering_ != nullptr) return tiering_->purge_report(id);
  return id.value() + 1 == purges_ ? last_purge_ : std::nullopt;
}

void KvCache::set_quota(const NamespaceFamily& tenant, std::int64_t pages) {
  const TenantQuota quota = {.family = tenant, .quota_pages = pages};
  set_quotas({&quota, 1});
}

void KvCache::set_quotas(std::span<const TenantQuota> quotas) {
  if (!shares()) return;
  tree().set_quotas(quotas);
  if (tiering_ == nullptr) return;
  std::vector<TenantQuota> of_host(quotas.begin(), quotas.end());
  for (TenantQuota& quota : of_host) {
    quota.quota_pages = ceil_div(quota.quota_pages * tiering_->host_pages(), total_pages());
  }
  tiering_->set_host_quotas(of_host);
}

std::vector<TenantQuota> KvCache::quotas(Tier tier) const {
  const RadixPrefixCache* const tree = tree_or_null(tier);
  return tree == nullptr ? std::vector<TenantQuota>() : tree->quotas();
}

void KvCache::drain_events(PrefixEventSink& sink) {
  if (shares()) tree().drain_events(sink);
}

void KvCache::resend_events() {
  if (shares()) tree().resend_events();
}

}  // namespace stemma
