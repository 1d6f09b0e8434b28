// FaultyStore: a page store that loses, damages, mixes up, refuses and fails, as drawn from a seed.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "tier/memory_page_store.h"

namespace stemma {

class FaultyStore final : public PageStore {
 public:
  // In percent of the pages.
  struct Faults {
    std::int64_t read_fails = 0;
    std::int64_t read_misses = 0;  // though a lookup found it
    std::int64_t read_flips = 0;   // one bit of the frame
    std::int64_t read_others = 0;  // another valid page's frame
    std::int64_t write_fails = 0;
    std::int64_t write_refuses = 0;
    std::int64_t lookup_fails = 0;  // in percent of the lookups
    std::int64_t purge_fails = 0;   // in percent of the purges
    bool lookup_is_local = true;
  };

  FaultyStore(Tier tier, std::int64_t bytes_max, const Faults& faults, std::uint64_t seed)
      : inner_(tier, bytes_max), faults_(faults), prng_(seed) {}

  void set_faults(const Faults& faults) { faults_ = faults; }
  // What a read came across, since construction.
  std::int64_t flipped() const { return flipped_; }
  std::int64_t mixed_up() const { return mixed_up_; }
  MemoryPageStore& inner() { return inner_; }

  Tier tier() const override { return inner_.tier(); }
  std::string_view name() const override { return "faulty"; }
  void describe(const NamespaceDigest&, std::string_view) override {}
  bool lookup_is_local() const override { return faults_.lookup_is_local; }
  Result<std::int64_t> lookup(std::span<const PageKey> keys, std::int64_t deadline_us) override {
    if (drawn(faults_.lookup_fails)) return Error{ErrorCode::kIo, "a lookup failed on purpose"};
    return inner_.lookup(keys, deadline_us);
  }

  void read(std::span<PageRead> reads, std::int64_t deadline_us) override {
    inner_.read(reads, deadline_us);
    for (PageRead& read : reads) {
      if (read.verdict == PageVerdict::kDone) spoil(read);
    }
  }

  void write(std::span<PageWrite> writes, std::int64_t deadline_us) override {
    for (PageWrite& write : writes) {
      if (drawn(faults_.write_fails)) {
        write.verdict = PageVerdict::kFailed;
      } else if (drawn(faults_.write_refuses)) {
        write.verdict = PageVerdict::kRefused;
      } else {
        inner_.write({&write, 1}, deadline_us);
      }
    }
  }

  void remove(std::span<const PageRemoval> removals, std::int64_t deadline_us) override {
    inner_.remove(removals, deadline_us);
  }
  Status make_removals_last(std::int64_t deadline_us) override {
    return inner_.make_removals_last(deadline_us);
  }
  PurgeOutcome purge(std::span<const NamespaceFamily> namespaces,
                     std::int64_t deadline_us) override {
    if (!drawn(faults_.purge_fails)) return inner_.purge(namespaces, deadline_us);
    return {.status = Error{ErrorCode::kIo, "a purge failed on purpose"}};
  }
  PurgeOutcome purge_behind(std::span<const NamespaceFamily> namespaces, std::int64_t pages_before,
                            std::int64_t deadline_us) override {
    if (!drawn(faults_.purge_fails)) {
      return inner_.purge_behind(namespaces, pages_before, deadline_us);
    }
    return {.status = Error{ErrorCode::kIo, "a purge failed on purpose"}};
  }
  PageStoreUsage usage() const override { return inner_.usage(); }
  void visit_metrics(MetricVisitor&) const override {}

 private:
  bool drawn(std::int64_t percent) { return percent > 0 && prng_.below(100) < percent; }

  void spoil(PageRead& read) {
    if (drawn(faults_.read_fails)) {
      read.verdict = PageVerdict::kFailed;
    } else if (drawn(faults_.read_misses)) {
      read.verdict = PageVerdict::kMissing;
    } else if (drawn(faults_.read_others)) {
      if (last_.size() != read.frame.size()) return;
      std::copy(last_.begin(), last_.end(), read.frame.begin());
      ++mixed_up_;
    } else if (drawn(faults_.read_flips)) {
      const auto bit =
          static_cast<std::size_t>(prng_.below(static_cast<std::int64_t>(8 * read.frame.size())));
      read.frame[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
      ++flipped_;
    } else {
      last_.assign(read.frame.begin(), read.frame.end());
    }
  }

  MemoryPageStore inner_;
  Faults faults_;
  Prng prng_;
  std::vector<std::byte> last_;  // a frame that was read before
  std::int64_t flipped_ = 0;
  std::int64_t mixed_up_ = 0;
};

}  // namespace stemma
