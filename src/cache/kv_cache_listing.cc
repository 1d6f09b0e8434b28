// What a KvCache can tell people: which nodes its trees have, their texts, and who holds pages.
#include <algorithm>

#include "base/check.h"
#include "cache/grafts.h"
#include "cache/text_report.h"
#include "cache/tiering.h"
#include "cache/windows.h"
#include "prefix/radix_prefix_cache.h"
#include "stemma/kv_cache.h"
#include "stemma/metrics.h"

namespace stemma {

const RadixPrefixCache* KvCache::tree_or_null(Tier tier) const {
  STEMMA_CHECK(tier == Tier::kDevice || tier == Tier::kHost, "page stores have no tree");
  if (tier == Tier::kHost) return tiering_ == nullptr ? nullptr : &tiering_->host_tree();
  return shares() ? &tree() : nullptr;
}

PrefixEndReport KvCache::why_ends(NamespaceId ns, std::span<const TokenId> tokens) const {
  return TextReporter(*this).why_ends(grafts_->of(ns), tokens);
}

std::int64_t KvCache::found_beside(NamespaceId ns, const NamespaceDigest& digest,
                                   std::span<const TokenId> tokens) const {
  const GraftedText text = grafts_->split(ns, tokens);
  const auto shared = std::ssize(text.shared);
  if (text.shared_ns.valid()) {
    const std::int64_t found = prefix_->probe(text.shared_ns, text.shared).matched_tokens;
    if (found < shared) return found;
  }
  return shared + tree().probe_by_digest(digest, text.own).matched_tokens;
}

TreeListing KvCache::list_nodes(Tier tier, std::int64_t nodes_max) const {
  const RadixPrefixCache* const own = tree_or_null(tier);
  if (own == nullptr) return {};
  const Tier other = tier == Tier::kDevice ? Tier::kHost : Tier::kDevice;
  return own->hottest_nodes(nodes_max, tree_or_null(other));
}

std::optional<NodeText> KvCache::node_text(Tier tier, NodeId id) const {
  const RadixPrefixCache* const own = tree_or_null(tier);
  return own == nullptr ? std::nullopt : own->try_text(id);
}

CacheHolds KvCache::holds() const {
  CacheHolds holds;
  if (shares()) holds.locks = tree().locks();
  holds.sequences = std::count_if(live_.begin(), live_.end(),
                                  [](const Sequence* sequence) { return sequence != nullptr; });
  if (tiering_ != nullptr) {
    tiering_->for_each_underway([&](const TransferTicket& ticket) {
      const Transfer& job = ticket.job();
      holds.transfers.push_back({.kind = transfer_kind_name(job.kind),
                                 .pages = job.pages(),
                                 .first_page = job.first_page,
                                 .digest = job.digest});
    });
  }
  return holds;
}

void KvCache::visit_metrics(MetricVisitor& visitor) const {
  visitor.gauge("stemma_page_size_tokens", page_size());
  visitor.gauge("stemma_device_pages", total_pages());
  visitor.gauge("stemma_device_free_pages", free_pages());
  visitor.gauge("stemma_device_evictable_pages", usage().evictable_tokens / page_size());
  visitor.gauge("stemma_device_locked_pages", usage().locked_tokens / page_size());
  if (windows_ != nullptr) {
    const WindowedPages& windowed = windows_->pages();
    visitor.gauge("stemma_windowed_pages", windowed.total_pages());
    visitor.gauge("stemma_windowed_free_pages", windowed.free_pages());
    visitor.gauge("stemma_windowed_available_pages", windowed.available_pages());
    visitor.counter("stemma_windowed_evicted_pages_total", windowed.evicted_pages());
  }
  if (tiering_ != nullptr) {
    visitor.gauge("stemma_transfers_underway", tiering_->transfers());
    tiering_->visit_metrics(visitor);
  }
}

}  // namespace stemma
