// SimulatedDiskStore: the real disk store over a simulated disk, for a simulation whose lanes have
// their own time. An operation that hangs moves the disk's clock, not the engine's: until the
// engine's time has come up with it, the disk is one that answers to nobody.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "stemma/page_store.h"
#include "store/disk_page_store.h"
#include "store/simulated_disk.h"

namespace stemma {

class SimulatedDiskStore final : public PageStore {
 public:
  SimulatedDiskStore(std::int64_t bytes_max, const FakeClock& engine_clock, std::uint64_t seed)
      : bytes_max_(bytes_max), engine_clock_(engine_clock), disk_(seed, clock_) {
    open();
  }

  // A process that ends and another that begins: over whatever the directory has.
  void open() {
    catch_up();
    store_.reset();
    auto opened = DiskPageStore::open(disk_.open(), clock_,
                                      {.bytes_max = bytes_max_, .slab_bytes = 64 << 10});
    if (opened.ok()) store_ = *std::move(opened);
  }
  // The power goes and comes back: what was not synced is lost, or torn into pieces of that size.
  void crash(std::size_t tear_bytes) {
    disk_.crash(tear_bytes);
    disk_.faults.power_off_at = SimulatedFaults().power_off_at;
    open();
  }
  // The power goes after so many operations more.
  void power_off_after(std::int64_t operations) {
    disk_.faults.power_off_at = disk_.operations + operations;
  }
  void stay_on() { disk_.faults.power_off_at = SimulatedFaults().power_off_at; }
  bool is_off() const { return disk_.operations >= disk_.faults.power_off_at; }

  // Keeps a loss of power that is to come.
  void set_faults(SimulatedFaults faults) {
    faults.power_off_at = disk_.faults.power_off_at;
    disk_.faults = faults;
  }
  SimulatedDisk& disk() { return disk_; }
  bool is_open() const { return store_ != nullptr; }
  bool is_read_only() const { return is_open() && store_->read_only(); }

  Tier tier() const override { return Tier::kDisk; }
  std::string_view name() const override { return "simulated disk"; }
  bool lookup_is_local() const override { return true; }
  void describe(const NamespaceDigest& digest, std::string_view description) override {
    if (is_open()) store_->describe(digest, description);
  }
  Result<std::int64_t> lookup(std::span<const PageKey> keys, std::int64_t deadline_us) override {
    if (!is_open()) return std::int64_t{0};
    return store_->lookup(keys, deadline_us);
  }
  void read(std::span<PageRead> reads, std::int64_t deadline_us) override {
    catch_up();
    if (is_open()) store_->read(reads, deadline_us);
  }
  void write(std::span<PageWrite> writes, std::int64_t deadline_us) override {
    catch_up();
    if (is_open()) store_->write(writes, deadline_us);
  }
  void remove(std::span<const PageRemoval> removals, std::int64_t deadline_us) override {
    catch_up();
    if (is_open()) store_->remove(removals, deadline_us);
  }
  Status make_removals_last(std::int64_t deadline_us) override {
    catch_up();
    if (is_open()) return store_->make_removals_last(deadline_us);
    return Error{ErrorCode::kIo, "the store is not open"};
  }
  PurgeOutcome purge(std::span<const NamespaceFamily> namespaces,
                     std::int64_t deadline_us) override {
    catch_up();
    if (is_open()) return store_->purge(namespaces, deadline_us);
    return {.status = Error{ErrorCode::kIo, "the store is not open"}};
  }
  PurgeOutcome purge_behind(std::span<const NamespaceFamily> namespaces, std::int64_t pages_before,
                            std::int64_t deadline_us) override {
    catch_up();
    if (is_open()) return store_->purge_behind(namespaces, pages_before, deadline_us);
    return {.status = Error{ErrorCode::kIo, "the store is not open"}};
  }
  PageStoreUsage usage() const override { return is_open() ? store_->usage() : PageStoreUsage(); }
  void visit_metrics(MetricVisitor& visitor) const override {
    if (is_open()) store_->visit_metrics(visitor);
  }

 private:
  void catch_up() {
    clock_.advance_us(std::max<std::int64_t>(engine_clock_.now_us() - clock_.now_us(), 0));
  }

  std::int64_t bytes_max_;
  const FakeClock& engine_clock_;
  FakeClock clock_;
  SimulatedDisk disk_;
  std::unique_ptr<DiskPageStore> store_;
};

}  // namespace stemma
