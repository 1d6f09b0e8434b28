// TimedTiers: lower tiers of a replay: how many pages host memory and a disk hold, and how long
// moving them takes. There are no bytes: a page is a key and a time.
//
// Pages move between the device and host memory over one link, both ways at once, and to and from
// the disk likewise: one job after another in each direction, each page as long as its bytes take
// at the stated rates, without a time to begin. The disk forgets what was used longest ago. Steps
// wait for whole pages, where an engine may begin when their first layer is there.
//
// Thread:     one thread a replay.
// Memory:     a page on the disk is one of MemoryPageStore, of one byte.
// Cost:       a few look-ups a page of the disk.
// Not here:   which pages move when (KvCache), the clock's course (timed_replay).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "stemma/lower_tiers.h"
#include "tier/transfer_lanes.h"

namespace stemma {

// A century: no replay takes longer, nor does a copy in it. Sums of a few such times fit 64 bits.
inline constexpr double kReplayUsMax = 3.2e15;

struct TimedTierOptions {
  std::int64_t host_pages = 0;  // 0: there are no lower tiers
  std::int64_t disk_pages = 0;  // 0: there is no disk
  double page_bytes = 0;
  double link_gb_s = 50;  // each way, in units of 1e9
  double disk_gb_s = 5;   // likewise
};

class TimedLanes final : public TransferLanes {
 public:
  // All must outlive it. `disk_or_null`: there is none.
  TimedLanes(const TimedTierOptions& options, PageStore* disk_or_null, const Clock& clock);

  // When the next job ends that is not taken; the far future: none is posted.
  std::int64_t next_end_us() const;

  void post(Transfer& job) override;
  Transfer* try_take_done_or_null() override;
  // Whoever moves the clock waits.
  void wait_done(std::chrono::microseconds) override {}
  bool wait_layer(Transfer& job, std::int64_t layer) override;
  void stop() override;

 private:
  struct Lane {
    struct Posted {
      Transfer* job;
      std::int64_t posted_us;
    };
    std::deque<Posted> jobs;  // the first has begun
    std::int64_t begin_us = 0;
    std::int64_t end_us = 0;
  };
  void begin_first(Lane& lane, std::int64_t free_us);
  void end_first(Lane& lane);
  double page_us(const Transfer& job) const;
  Lane* first_to_end_or_null();
  void move(Transfer& job, std::size_t pages);

  TimedTierOptions options_;
  PageStore* disk_or_null_;
  const Clock& clock_;
  std::array<Lane, 4> lanes_;
  std::deque<Transfer*> done_;
};

class TimedTiers final : public LowerTiers {
 public:
  // `clock` must outlive it. REQUIRES: host_pages >= 1; rates and page_bytes are above 0.
  TimedTiers(const TimedTierOptions& options, const Clock& clock);

  std::int64_t host_pages() const override { return options_.host_pages; }
  std::span<PageStore* const> stores() const override { return stores_; }
  std::unique_ptr<TransferLanes> open_lanes(std::int64_t jobs_max) override;

  // As TimedLanes, of those opened last, which still live. REQUIRES: open_lanes was called.
  std::int64_t next_end_us() const { return lanes_->next_end_us(); }

 private:
  TimedTierOptions options_;
  const Clock& clock_;
  std::unique_ptr<PageStore> disk_or_null_;
  std::vector<PageStore*> stores_;
  const TimedLanes* lanes_ = nullptr;
};

}  // namespace stemma
