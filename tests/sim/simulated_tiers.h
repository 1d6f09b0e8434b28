// SimulatedTiers: lower tiers whose time is a FakeClock's and whose luck is drawn from a seed.
//
// Jobs take a drawn time on their lane; when in that time the bytes move is drawn too, so that a
// source that changes, or a target that is used early, shows. Stores fail as FaultyStore says. What
// was drawn is counted, so that a test can tell whether it saw what it is for.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "base/temp_directory.h"
#include "base/thread_pool.h"
#include "sim/faulty_store.h"
#include "sim/simulated_disk_store.h"
#include "stemma/lower_tiers.h"
#include "tier/guarded_store.h"
#include "tier/memory_page_store.h"
#include "tier/tier_stack.h"
#include "tier/transfer_lanes.h"

namespace stemma {

class SimulatedLanes final : public TransferLanes {
 public:
  struct Options {
    std::int64_t job_us_max = 200;
    std::int64_t store_job_us_max = 0;  // of the jobs of stores; 0: as of others
    std::int64_t hang_percent = 0;      // of the jobs of stores: end at their deadline
    std::uint64_t seed = 1;
  };
  // Jobs, over all lanes that were ever opened.
  struct Counts {
    std::int64_t opened_lanes = 0;
    std::int64_t hung = 0;
    std::int64_t abandoned = 0;      // ended when nobody needed them any more
    std::int64_t waited_layers = 0;  // of pages on loan
  };

  // `options` may change while jobs run, and holds for those posted afterwards; both outlive this.
  SimulatedLanes(TransferWork& work, std::size_t stores, FakeClock& clock, const Options& options,
                 Counts& counts)
      : work_(work),
        clock_(clock),
        options_(options),
        counts_(counts),
        prng_(options.seed + 1000 * static_cast<std::uint64_t>(counts.opened_lanes++)),
        lane_free_us_(transfer_lanes(stores)) {}

  void post(Transfer& job) override {
    const std::size_t lane = transfer_lane(job);
    std::int64_t& free_us = lane_free_us_[lane];
    const std::int64_t begin_us = std::max(free_us, clock_.now_us());
    const bool of_store = lane >= 2;
    const bool slow = of_store && options_.store_job_us_max > 0;
    free_us = begin_us + prng_.below((slow ? options_.store_job_us_max : options_.job_us_max) + 1);
    if (of_store && prng_.below(100) < options_.hang_percent) {
      free_us = std::max(begin_us, job.deadline_us);
      ++counts_.hung;
    }
    const bool early = prng_.below(2) == 0;
    if (early) work_.run(job);
    posted_.push_back({&job, begin_us, free_us, early});
  }

  Transfer* try_take_done_or_null() override {
    const auto next = first_to_end();
    if (next == posted_.end() || next->end_us > clock_.now_us()) return nullptr;
    Transfer* job = next->job;
    if (job->cancelled.load(std::memory_order_relaxed)) ++counts_.abandoned;
    if (!next->moved) work_.run(*job);
    job->started_us = next->begin_us;  // the bytes moved in no time; the job took its own
    job->ended_us = next->end_us;
    posted_.erase(next);
    return job;
  }

  void wait_done(std::chrono::microseconds time) override {
    const auto next = first_to_end();
    const std::int64_t end_us = clock_.now_us() + time.count();
    const std::int64_t until_us = next == posted_.end() ? end_us : std::min(end_us, next->end_us);
    clock_.advance_us(std::max<std::int64_t>(until_us - clock_.now_us(), 0));
  }

  // The layers arrive one after another, the last of them before the job has ended.
  bool wait_layer(Transfer& job, std::int64_t layer) override {
    const auto posted = std::find_if(posted_.begin(), posted_.end(),
                                     [&](const Posted& other) { return other.job == &job; });
    if (!std::exchange(posted->moved, true)) work_.run(job);
    const std::int64_t job_us = posted->end_us - posted->begin_us;
    const std::int64_t there_us = posted->begin_us + job_us * (layer + 1) / (layer + 2);
    clock_.advance_us(std::max<std::int64_t>(there_us - clock_.now_us(), 0));
    ++counts_.waited_layers;
    return job.wait_layer(layer);
  }

  void stop() override {
    for (Posted& posted : posted_) posted.end_us = clock_.now_us();
  }

 private:
  struct Posted {
    Transfer* job;
    std::int64_t begin_us;
    std::int64_t end_us;
    bool moved;
  };

  std::deque<Posted>::iterator first_to_end() {
    return std::min_element(posted_.begin(), posted_.end(),
                            [](const Posted& a, const Posted& b) { return a.end_us < b.end_us; });
  }

  TransferWork& work_;
  FakeClock& clock_;
  const Options& options_;
  Counts& counts_;
  Prng prng_;
  std::vector<std::int64_t> lane_free_us_;
  std::deque<Posted> posted_;  // in the order of posting: so are those that end together
};

struct SimulatedTierOptions {
  std::int64_t host_pages = 64;
  KvLayout host_layout = KvLayout::kPageFirst;
  std::vector<Tier> stores;                          // kDisk, kRemote
  std::int64_t store_bytes = std::int64_t{1} << 30;  // of each
  FaultyStore::Faults faults;                        // of each
  bool real_disk = false;  // the disk is the real store over a simulated one, of disk_bytes
  std::int64_t disk_bytes = std::int64_t{1} << 20;
  SimulatedLanes::Options lanes;
};

class SimulatedTiers final : public LowerTiers {
 public:
  // `windowed_or_null`: the pool of layers with a window.
  SimulatedTiers(const SimulatedTierOptions& options, KvPool& device, FakeClock& clock,
                 KvPool* windowed_or_null = nullptr)
      : options_(options), clock_(clock) {
    std::uint64_t seed = options.lanes.seed;
    std::vector<std::unique_ptr<PageStore>> stores;
    for (const Tier tier : options.stores) {
      if (tier == Tier::kDisk && options.real_disk) {
        auto store = std::make_unique<SimulatedDiskStore>(options.disk_bytes, clock, ++seed);
        disk_or_null_ = store.get();
        faulty_.push_back(nullptr);
        stores.push_back(std::make_unique<GuardedStore>(std::move(store), clock));
        continue;
      }
      auto store = std::make_unique<FaultyStore>(tier, options.store_bytes, options.faults, ++seed);
      faulty_.push_back(store.get());
      stores.push_back(std::move(store));
    }
    ThreadPool threads(1);
    std::int64_t host_bytes = options.host_pages * bytes_of_page(device);
    if (windowed_or_null != nullptr) {
      const std::int64_t windowed_pages =
          options.host_pages * windowed_or_null->shape().pages / device.shape().pages + 1;
      host_bytes += windowed_pages * bytes_of_page(*windowed_or_null);
    }
    auto stack = TierStack::open({.host_bytes = host_bytes, .host_layout = options.host_layout},
                                 device, std::move(stores), threads, clock, windowed_or_null);
    stack_ = std::move(stack).value();
    stack_->set_purge_file(PurgeFile::open(directory_.file("purges")).value());
  }

  std::int64_t host_pages() const override { return stack_->host_pages(); }
  std::int64_t host_windowed_pages() const override { return stack_->host_windowed_pages(); }
  std::span<PageStore* const> stores() const override { return stack_->stores(); }
  std::unique_ptr<TransferLanes> open_lanes(std::int64_t) override {
    return std::make_unique<SimulatedLanes>(stack_->work(), faulty_.size(), clock_, options_.lanes,
                                            counts_);
  }

  PurgeFile* purge_file_or_null() override { return stack_->purge_file_or_null(); }

  // Of jobs from now on; a new seed holds for lanes that are opened from now on.
  void set_lanes(const SimulatedLanes::Options& lanes) { options_.lanes = lanes; }
  const SimulatedLanes::Counts& counts() const { return counts_; }
  HostPool& host() { return stack_->host(); }
  HostPool& windowed_host() { return *stack_->windowed_host_or_null(); }
  // REQUIRES: that store is not the real disk.
  FaultyStore& store(std::size_t number) { return *faulty_[number]; }
  // The real disk store, where there is one.
  SimulatedDiskStore* disk_or_null() { return disk_or_null_; }

 private:
  static std::int64_t bytes_of_page(const KvPool& pool) {
    return pool.shape().layers * pool.layer_bytes();
  }

  // Where nothing waits for a disk, if there is such a place.
  static std::string memory_directory() {
    std::error_code ignored;
    const bool is_there = std::filesystem::is_directory("/dev/shm", ignored);
    return is_there ? "/dev/shm" : std::filesystem::temp_directory_path().string();
  }

  SimulatedTierOptions options_;
  TempDirectory directory_{memory_directory()};
  SimulatedLanes::Counts counts_;
  FakeClock& clock_;
  std::vector<FaultyStore*> faulty_;  // by store; nullptr: the real disk
  SimulatedDiskStore* disk_or_null_ = nullptr;
  std::unique_ptr<TierStack> stack_;
};

}  // namespace stemma
