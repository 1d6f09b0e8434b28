// MapStore: a PageStore of frames in a map that a test may look at and change.
//
// Thread:     one at a time; a store that is called from lanes is looked at when they are done.
// Memory:     the frames.
// Cost:       a copy a frame.
// Not here:   anything that ships (tier/memory_page_store).
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "stemma/metrics.h"
#include "stemma/page_store.h"

namespace stemma {

class MapStore : public PageStore {
 public:
  using Frames = std::map<PageKey, std::vector<std::byte>>;

  Tier tier() const override { return Tier::kDisk; }
  std::string_view name() const override { return "map"; }
  void describe(const NamespaceDigest&, std::string_view) override {}
  Result<std::int64_t> lookup(std::span<const PageKey> keys, std::int64_t) override {
    if (broken) return Error{ErrorCode::kIo, "broken"};
    std::int64_t found = 0;
    while (found < std::ssize(keys) && frames.contains(keys[static_cast<std::size_t>(found)])) {
      ++found;
    }
    return found;
  }
  bool lookup_is_local() const override { return true; }
  void read(std::span<PageRead> reads, std::int64_t) override {
    for (PageRead& read : reads) {
      const bool is_there = frames.contains(read.key);
      read.verdict = is_there ? PageVerdict::kDone : PageVerdict::kMissing;
      if (is_there) std::ranges::copy(frames.at(read.key), read.frame.begin());
    }
  }
  void write(std::span<PageWrite> writes, std::int64_t) override {
    for (PageWrite& write : writes) {
      const bool is_taken = write.key != refused;
      write.verdict = is_taken ? PageVerdict::kDone : PageVerdict::kRefused;
      if (is_taken) frames[write.key].assign(write.frame.begin(), write.frame.end());
    }
  }
  std::int64_t renew(std::span<const PageKey> keys, std::int64_t deadline_us) override {
    renewed.assign(keys.begin(), keys.end());
    return lookup(keys, deadline_us).value();
  }
  void remove(std::span<const PageRemoval> removals, std::int64_t) override {
    for (const PageRemoval& removal : removals) frames.erase(removal.key);
  }
  Status make_removals_last(std::int64_t) override {
    if (removals_last) return {};
    return Error{ErrorCode::kIo, "it may be back"};
  }
  PurgeOutcome purge(std::span<const NamespaceFamily> namespaces, std::int64_t) override {
    if (broken) return {.status = Error{ErrorCode::kIo, "broken"}, .advanced = purge_advances};
    purged.assign(namespaces.begin(), namespaces.end());
    return {.pages = std::ssize(std::exchange(frames, {}))};
  }
  PageStoreUsage usage() const override { return {}; }
  void visit_metrics(MetricVisitor&) const override {}

  Frames frames;
  std::vector<PageKey> renewed;         // asked for by the last renewal
  std::vector<NamespaceFamily> purged;  // named by the last purge
  PageKey refused;
  bool broken = false;
  bool removals_last = true;
  bool purge_advances = false;  // where it is broken
};

}  // namespace stemma
