// GuardedStore: a page store behind a breaker for its reads and one for its writes. While a lane of
// it keeps failing, or misses its deadlines, calls come back at once, and a lookup is an error: a
// request does not wait for what will not come, no ticket is kept for it, and nobody takes what is
// not known for missing.
//
//   lookup, read   the breaker of reads; a call of which no page was answered is a failure, one
//                  that took until its deadline opens the breaker by itself
//   write, purge   the breaker of writes, likewise
//
// For the disk's store (disk_page_store), under whose name it counts; others have breakers of their
// own.
//
// Thread:     as PageStore.                                  Invariants: I9 (docs/INVARIANTS.md).
// Memory:     a few words.
// Cost:       two uncontended locks a call.
// Not here:   how long a lane is left alone (breaker).
#pragma once

#include <memory>
#include <string_view>

#include "stemma/page_store.h"
#include "tier/breaker.h"

namespace stemma {

class GuardedStore final : public PageStore {
 public:
  // `clock` must outlive it.
  GuardedStore(std::unique_ptr<PageStore> inner, const Clock& clock,
               const BreakerOptions& options = {});

  Tier tier() const override { return inner_->tier(); }
  std::string_view name() const override { return inner_->name(); }
  void describe(const NamespaceDigest& digest, std::string_view description) override {
    inner_->describe(digest, description);
  }
  bool lookup_is_local() const override { return inner_->lookup_is_local(); }
  Result<std::int64_t> lookup(std::span<const PageKey> keys, std::int64_t deadline_us) override;
  void read(std::span<PageRead> reads, std::int64_t deadline_us) override;
  void write(std::span<PageWrite> writes, std::int64_t deadline_us) override;
  std::int64_t renew(std::span<const PageKey> keys, std::int64_t deadline_us) override {
    return inner_->renew(keys, deadline_us);
  }
  void remove(std::span<const PageRemoval> removals, std::int64_t deadline_us) override {
    inner_->remove(removals, deadline_us);
  }
  Status make_removals_last(std::int64_t deadline_us) override {
    return inner_->make_removals_last(deadline_us);
  }
  PurgeOutcome purge(std::span<const NamespaceFamily> namespaces,
                     std::int64_t deadline_us) override {
    return purge_behind(namespaces, 0, deadline_us);
  }
  PurgeOutcome purge_behind(std::span<const NamespaceFamily> namespaces, std::int64_t pages_before,
                            std::int64_t deadline_us) override;
  PageStoreUsage usage() const override { return inner_->usage(); }
  void visit_metrics(MetricVisitor& visitor) const override;

 private:
  void report(Breaker& breaker, bool answered, std::int64_t deadline_us);

  std::unique_ptr<PageStore> inner_;
  const Clock& clock_;
  Breaker reads_;
  Breaker writes_;
};

}  // namespace stemma
