// MemoryPageStore: frames in a map: the plainest page store, to compare others with, and to stand
// for them where no disk and no server are wanted.
//
// Thread:     as PageStore: one lock around each call.
// Memory:     `bytes_max`, and the map.
// Cost:       a copy of the frame.
// Not here:   anything that survives the process.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "stemma/page_store.h"

namespace stemma {

class MemoryPageStore final : public PageStore {
 public:
  // Beyond `bytes_max` the page goes that was used longest ago.
  MemoryPageStore(Tier tier, std::int64_t bytes_max) : tier_(tier), bytes_max_(bytes_max) {}

  Tier tier() const override { return tier_; }
  std::string_view name() const override { return "memory"; }
  void describe(const NamespaceDigest&, std::string_view) override {}
  Result<std::int64_t> lookup(std::span<const PageKey> keys, std::int64_t deadline_us) override;
  bool lookup_is_local() const override { return true; }
  void read(std::span<PageRead> reads, std::int64_t deadline_us) override;
  void write(std::span<PageWrite> writes, std::int64_t deadline_us) override;
  void remove(std::span<const PageRemoval> removals, std::int64_t deadline_us) override;
  PurgeOutcome purge(std::span<const NamespaceFamily> namespaces,
                     std::int64_t deadline_us) override;
  PurgeOutcome purge_behind(std::span<const NamespaceFamily> namespaces, std::int64_t pages_before,
                            std::int64_t deadline_us) override;
  PageStoreUsage usage() const override;
  void visit_metrics(MetricVisitor&) const override {}

 private:
  struct Stored {
    std::vector<std::byte> frame;
    std::list<PageKey>::iterator use;
  };
  void touch(Stored& stored);
  bool make_room(std::int64_t bytes);

  mutable std::mutex mutex_;
  Tier tier_;
  std::int64_t bytes_max_;
  std::int64_t bytes_ = 0;
  std::map<PageKey, Stored> pages_;
  std::list<PageKey> uses_;  // the one used longest ago first
};

}  // namespace stemma
