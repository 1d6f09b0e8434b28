// RankTransfers: one rank's part of the transfers that rank 0 begins (docs/decisions/0017).
//
// Rank 0 decides what moves. Page ids, of the device and of host memory, mean the same on every
// rank, each of which has its own heads of a page: so a rank does a job as it is told, on lanes of
// its own, between its own pools and stores, and says what became of it when it is asked. What it
// stores is in a namespace that names the rank: another's frame is never taken for its own (I7).
//
// Thread:     the one that uses the ranks; lanes have their own.
//                                                    Invariants: I6, I7, I8 (docs/INVARIANTS.md).
// Memory:     as many jobs as rank 0 may have, whose lists keep their room.
// Cost:       a copy of what a job says; a gather a question.
// Not here:   what is asked when, and what becomes of it (leading_lanes).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "device/rank_group.h"
#include "device/rank_message.h"
#include "stemma/kv_batch.h"
#include "stemma/lower_tiers.h"
#include "tier/rank_host_image.h"
#include "tier/transfer.h"
#include "tier/transfer_lanes.h"

namespace stemma {

// What rank 0 says and asks of jobs underway, by their places.
struct TransferQuestion {
  std::int64_t wait_us = 0;             // for one of those asked for to end, at most
  std::vector<std::int64_t> cancelled;  // jobs whose outcome nobody needs any more
  std::vector<std::int64_t> asked;      // jobs that are to be reported on

  void write(std::vector<std::int64_t>& words) const;
  void read(std::span<const std::int64_t> words);
};

// A question of how many of the keys, from the first on, a store of each rank has; -1 is the answer
// of one that cannot say.
void write_lookup(std::size_t store, std::span<const PageKey> keys,
                  std::vector<std::int64_t>& words);

class RankTransfers final : public RankListener, public LayerGate {
 public:
  // `tiers` are this rank's. All must outlive it.
  RankTransfers(LowerTiers& tiers, RankGroup& ranks, const Clock& clock)
      : tiers_(tiers), ranks_(ranks), clock_(clock) {}
  ~RankTransfers() override { stop(); }
  RankTransfers(const RankTransfers&) = delete;
  RankTransfers& operator=(const RankTransfers&) = delete;

  // Does what rank 0 tells of transfers, on rank 0 itself too; of the file of its host memory, on
  // the others.
  Status told(RankTask task, std::span<const std::int64_t> words) override;

  // For a step of a rank that follows: waits until `layer` of all that is being promoted here has
  // come, or will not: the step is computed whatever comes, and rank 0 asks afterwards.
  bool wait(std::int64_t layer) override;
  bool wait_on(CudaStream& stream, std::int64_t layer) override;

  // Opens its lanes for as many jobs; on other ranks than 0 that is told.
  void open(std::int64_t jobs_max);

  // What a rank reported on the jobs of the last question, one after another, or in one word
  // whether layers came right, or how many pages its store has. REQUIRES: this is rank 0, and all
  // could be reached.
  std::span<const std::int64_t> reports_of(int rank) const;

  // This rank's part of a job, and whether it has ended as far as take_ended has seen. It stays
  // until another job has its place.
  const Transfer& job(std::int64_t place) const { return part_of(place).job; }
  bool has_ended(std::int64_t place) const { return !part_of(place).underway; }
  // As TransferLanes, of this rank's part.
  bool wait_layer(std::int64_t place, std::int64_t layer) {
    return lanes_->wait_layer(part_of(place).job, layer);
  }
  bool wait_layer_on(std::int64_t place, CudaStream& stream, std::int64_t layer) {
    return lanes_->wait_layer_on(part_of(place).job, stream, layer);
  }
  // Nobody needs what it brings.
  void cancel(std::int64_t place);
  // Looks which parts have ended, if need be waiting for one until the time is over.
  void take_ended(std::chrono::microseconds time = {});

  // Ends all that was begun, then the lanes.
  void stop();

 private:
  struct Part {
    Transfer job;
    bool underway = false;
  };

  void begin(std::span<const std::int64_t> words);
  Status report(std::span<const std::int64_t> words);
  std::int64_t look_up(std::span<const std::int64_t> words);
  Status use_host_file(std::span<const std::int64_t> words);
  Status gather_reports();
  template <typename Visit>
  void for_each_promoted(Visit visit);
  const Part& part_of(std::int64_t place) const;
  Part& part_of(std::int64_t place);

  LowerTiers& tiers_;
  RankGroup& ranks_;
  const Clock& clock_;
  std::vector<std::unique_ptr<Part>> parts_;  // by the place of a job
  std::unique_ptr<TransferLanes> lanes_;      // nullptr: none are open
  RankHostImage host_file_;
  TransferQuestion question_;
  std::vector<PageKey> keys_;              // that are looked up
  std::vector<std::int64_t> reports_;      // this rank's
  std::vector<std::int64_t> all_reports_;  // on rank 0, of each rank
};

}  // namespace stemma
