// LeadingTiers: the lower tiers of several ranks, as the cache on rank 0 sees them: its own, whose
// lanes are all ranks'. A store has a page where every rank's store has its frame of it.
//
// Thread:     as LowerTiers.
// Memory:     the messages of its lanes.
// Cost:       that of LeadingLanes.
// Not here:   what other ranks do (rank_transfers).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "stemma/lower_tiers.h"
#include "tier/leading_lanes.h"
#include "tier/rank_transfers.h"

namespace stemma {

// A store that every rank has, as rank 0 sees it: numbers are those of its own, and what there is,
// all are asked, which is a job (TransferKind::kLookup) and never done here.
class LeadingStore final : public PageStore {
 public:
  // `own` is rank 0's, and must outlive it.
  explicit LeadingStore(PageStore& own) : own_(own) {}

  Tier tier() const override { return own_.tier(); }
  std::string_view name() const override { return own_.name(); }
  void describe(const NamespaceDigest& digest, std::string_view description) override {
    own_.describe(digest, description);
  }
  Result<std::int64_t> lookup(std::span<const PageKey> keys, std::int64_t deadline_us) override {
    return own_.lookup(keys, deadline_us);
  }
  bool lookup_is_local() const override { return false; }
  void read(std::span<PageRead> reads, std::int64_t deadline_us) override {
    own_.read(reads, deadline_us);
  }
  void write(std::span<PageWrite> writes, std::int64_t deadline_us) override {
    own_.write(writes, deadline_us);
  }
  void remove(std::span<const PageRemoval> removals, std::int64_t deadline_us) override {
    own_.remove(removals, deadline_us);
  }
  PurgeOutcome purge(std::span<const NamespaceFamily> namespaces,
                     std::int64_t deadline_us) override {
    return own_.purge(namespaces, deadline_us);
  }
  PageStoreUsage usage() const override { return own_.usage(); }
  void visit_metrics(MetricVisitor& visitor) const override { own_.visit_metrics(visitor); }

 private:
  PageStore& own_;
};

class LeadingTiers final : public LowerTiers {
 public:
  // `own` are rank 0's. All must outlive it. REQUIRES: those of the other ranks have as many pages
  // and the same stores; ranks.rank() == 0.
  LeadingTiers(LowerTiers& own, RankGroup& ranks, const Clock& clock)
      : own_(own), ranks_(ranks), clock_(clock), transfers_(own, ranks, clock) {
    for (PageStore* const store : own.stores()) {
      stores_.push_back(std::make_unique<LeadingStore>(*store));
      store_list_.push_back(stores_.back().get());
    }
  }

  std::int64_t host_pages() const override { return own_.host_pages(); }
  std::int64_t host_windowed_pages() const override { return own_.host_windowed_pages(); }
  std::span<PageStore* const> stores() const override { return store_list_; }
  std::unique_ptr<TransferLanes> open_lanes(std::int64_t jobs_max) override {
    return std::make_unique<LeadingLanes>(transfers_, ranks_, clock_, jobs_max);
  }
  void describe(const NamespaceDigest& digest, std::string_view description) override {
    own_.describe(digest, description);
  }

 private:
  LowerTiers& own_;
  RankGroup& ranks_;
  const Clock& clock_;
  RankTransfers transfers_;
  std::vector<std::unique_ptr<LeadingStore>> stores_;
  std::vector<PageStore*> store_list_;
};

}  // namespace stemma
