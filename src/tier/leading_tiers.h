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
#include "tier/leading_host_image.h"
#include "tier/leading_lanes.h"
#include "tier/rank_transfers.h"

namespace stemma {

// A store that every rank has, as rank 0 sees it: numbers are those of its own; it has what all
// have. Of stores that answer from memory all are asked at once, of others by a job.
class LeadingStore final : public PageStore {
 public:
  // The store of that number, `own` being rank 0's. All must outlive it.
  LeadingStore(PageStore& own, std::size_t number, RankTransfers& transfers, RankGroup& ranks)
      : own_(own), number_(number), transfers_(transfers), ranks_(ranks) {}

  Tier tier() const override { return own_.tier(); }
  std::string_view name() const override { return own_.name(); }
  void describe(const NamespaceDigest& digest, std::string_view description) override {
    own_.describe(digest, description);
  }
  // The engine's thread. REQUIRES: lookup_is_local().
  Result<std::int64_t> lookup(std::span<const PageKey> keys, std::int64_t deadline_us) override;
  bool lookup_is_local() const override { return own_.lookup_is_local(); }
  void read(std::span<PageRead> reads, std::int64_t deadline_us) override {
    own_.read(reads, deadline_us);
  }
  void write(std::span<PageWrite> writes, std::int64_t deadline_us) override {
    own_.write(writes, deadline_us);
  }
  std::int64_t renew(std::span<const PageKey> keys, std::int64_t deadline_us) override {
    return own_.renew(keys, deadline_us);
  }
  void remove(std::span<const PageRemoval> removals, std::int64_t deadline_us) override {
    own_.remove(removals, deadline_us);
  }
  Status make_removals_last(std::int64_t deadline_us) override {
    return own_.make_removals_last(deadline_us);
  }
  PurgeOutcome purge(std::span<const NamespaceFamily> namespaces,
                     std::int64_t deadline_us) override {
    return own_.purge(namespaces, deadline_us);
  }
  PurgeOutcome purge_behind(std::span<const NamespaceFamily> namespaces, std::int64_t pages_before,
                            std::int64_t deadline_us) override {
    return own_.purge_behind(namespaces, pages_before, deadline_us);
  }
  PageStoreUsage usage() const override { return own_.usage(); }
  void visit_metrics(MetricVisitor& visitor) const override { own_.visit_metrics(visitor); }

 private:
  PageStore& own_;
  std::size_t number_;
  RankTransfers& transfers_;
  RankGroup& ranks_;
  std::vector<std::int64_t> words_;
};

class LeadingTiers final : public LowerTiers {
 public:
  // `own` are rank 0's. All must outlive it. REQUIRES: those of the other ranks have as many pages
  // and the same stores; ranks.rank() == 0.
  LeadingTiers(LowerTiers& own, RankGroup& ranks, const Clock& clock);

  std::int64_t host_pages() const override { return own_.host_pages(); }
  std::int64_t host_windowed_pages() const override { return own_.host_windowed_pages(); }
  std::span<PageStore* const> stores() const override { return store_list_; }
  std::unique_ptr<TransferLanes> open_lanes(std::int64_t jobs_max) override {
    return std::make_unique<LeadingLanes>(transfers_, ranks_, clock_, jobs_max);
  }
  const HostImage* host_image_or_null() const override { return own_.host_image_or_null(); }
  const HostImage* windowed_host_image_or_null() const override {
    return own_.windowed_host_image_or_null();
  }
  HostImageRanks* host_image_ranks_or_null() override { return &host_files_; }
  PurgeFile* purge_file_or_null() override { return own_.purge_file_or_null(); }
  void describe(const NamespaceDigest& digest, std::string_view description) override {
    own_.describe(digest, description);
  }

 private:
  LowerTiers& own_;
  RankGroup& ranks_;
  const Clock& clock_;
  RankTransfers transfers_;
  LeadingHostImage host_files_;
  std::vector<std::unique_ptr<LeadingStore>> stores_;
  std::vector<PageStore*> store_list_;
};

}  // namespace stemma
