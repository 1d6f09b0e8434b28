// LeadingLanes: lanes over several ranks, as the cache on rank 0 sees them: a job that is posted
// begins on every rank, and has ended when every rank's part of it has (docs/decisions/0017).
//
// An error on any rank is the job's. Where ranks cannot be reached any more, everything fails that
// is underway or is posted; no step is computed then either, so that pages that a rank may still
// be writing are never read.
//
// Jobs of one lane end in the order in which they were posted, as on one rank.
//
// Ranks are asked only when a job has ended here or was cancelled, so that copies that are underway
// cost a step nothing.
//
// Thread:     the engine's, which also computes the steps: messages of both come in one order.
//                                                 Invariants: I6, I8, I9, I11
//                                                 (docs/INVARIANTS.md).
// Memory:     a pointer a job; messages.
// Cost:       two broadcasts a job; two and a gather a question.
// Not here:   a rank's part (rank_transfers), steps (model/leading_runner).
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "tier/rank_transfers.h"

namespace stemma {

class LeadingLanes final : public TransferLanes {
 public:
  // Opens lanes for `jobs_max` jobs on all ranks. `own` is rank 0's part. All must outlive it.
  // REQUIRES: ranks.rank() == 0, and the others follow.
  LeadingLanes(RankTransfers& own, RankGroup& ranks, const Clock& clock, std::int64_t jobs_max);
  ~LeadingLanes() override { stop(); }
  LeadingLanes(const LeadingLanes&) = delete;
  LeadingLanes& operator=(const LeadingLanes&) = delete;

  void post(Transfer& job) override;
  Transfer* try_take_done_or_null() override;
  void wait_done(std::chrono::microseconds time) override;
  // Of this rank's part: every rank's step waits for that of its own.
  bool wait_layer(Transfer& job, std::int64_t layer) override {
    return !lost() && own_.wait_layer(job.place, layer);
  }
  bool wait_layer_on(Transfer& job, CudaStream& stream, std::int64_t layer) override {
    return !lost() && own_.wait_layer_on(job.place, stream, layer);
  }
  // Of all ranks' parts.
  bool came_right(Transfer& job, std::int64_t layer) override;
  void stop() override;

 private:
  struct Posted {
    Transfer* job = nullptr;
    bool cancelled = false;  // and the others know
  };

  bool lost() const { return !reached_.ok(); }
  void tell_all(RankTask task);
  void reach(Status reached);
  void ask(std::chrono::microseconds time);
  void land_asked();
  void land(std::int64_t place);
  void lose_ended();

  RankTransfers& own_;
  RankGroup& ranks_;
  const Clock& clock_;
  std::vector<Posted> posted_;          // by place
  std::vector<std::int64_t> underway_;  // places, in the order of posting
  std::vector<Transfer*> done_;         // in the order of their ends
  Status reached_;                      // an error: some rank cannot be any more
  bool stopped_ = false;
  TransferQuestion question_;
  std::vector<std::int64_t> words_;
};

}  // namespace stemma
