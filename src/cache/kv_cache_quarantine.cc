// What a KvCache does for audits of cached pages, for those who want pages forgotten, and for those
// who follow it from outside. Only a
// cache that shares has pages to audit and to tell of, and that is the radix tree.
#include "base/check.h"
#include "cache/tiering.h"
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
  out.tokens.resize(static_cast<std::size_t>(sequence.published_tokens()));
  tree().copy_tokens(sequence.prefix_, out.tokens);
}

std::optional<AuditHold> KvCache::try_hold(const CachedText& text) {
  if (allocator_.free_pages() == 0) return std::nullopt;
  std::optional<PrefixLock> cached = tree().try_lock(text.ns, text.digest, text.tokens);
  if (!cached.has_value()) return std::nullopt;
  return AuditHold{std::move(*cached), *allocator_.try_allocate(1)};
}

void KvCache::quarantine(const CachedText& text, std::int64_t end_tokens) {
  STEMMA_CHECK_EQ(steps_in_flight_, 0);
  STEMMA_CHECK(end_tokens > 0 && end_tokens % page_size() == 0, "whole pages");
  const auto wrong = std::span(text.tokens).first(static_cast<std::size_t>(end_tokens));
  if (tiering_ != nullptr) return tiering_->quarantine(text.ns, wrong);
  std::vector<PageKey> keys;
  tree().quarantine(text.ns, wrong, end_tokens - page_size(), keys);
}

bool KvCache::is_quarantined(const Sequence& sequence) const {
  return sequence.published_tokens() > 0 && tree().is_quarantined(sequence.prefix_);
}

Result<PurgeId> KvCache::purge(std::span<const NamespaceFamily> namespaces) {
  STEMMA_CHECK_EQ(steps_in_flight_, 0);
  if (tiering_ != nullptr && !tiering_->can_purge(namespaces)) {
    return Error{ErrorCode::kTooLarge, "too many purges wait for a page store; ask again later"};
  }
  for (Sequence* const sequence : live_) {
    if (sequence == nullptr || !shares()) continue;
    const NamespaceDigest& digest = tree().digest(sequence->prefix_.namespace_id());
    if (is_of_any(digest, namespaces)) sequence->publishes_ = false;
  }
  if (tiering_ != nullptr) return tiering_->purge(namespaces);
  last_purge_.emplace();
  if (shares()) last_purge_->pages[0] = tree().purge(namespaces);
  return PurgeId(purges_++);
}

std::optional<PurgeReport> KvCache::purge_report(PurgeId id) const {
  if (tiering_ != nullptr) return tiering_->purge_report(id);
  return id.value() + 1 == purges_ ? last_purge_ : std::nullopt;
}

void KvCache::drain_events(PrefixEventSink& sink) {
  if (shares()) tree().drain_events(sink);
}

void KvCache::resend_events() {
  if (shares()) tree().resend_events();
}

}  // namespace stemma
