// CudaRanks: ranks that compute one model on GPUs, each on its own, and how their GPUs exchange
// what they computed. Nothing is added up on the way: a gather copies bits (I13).
//
// Two implementations: over NCCL, between the GPUs; and staged, through pinned memory and the
// RankGroup, where there is no NCCL: every gather then waits for the device and for all ranks.
//
// Every rank makes the same calls in the same order, with the same sizes. A rank that cannot go on
// in a step makes no more gathers in it, but concludes it: nobody is left waiting.
//
// Thread:     as the stream that it was made for.          Invariants: I13 (docs/INVARIANTS.md).
// Memory:     staged pinned memory for the parts of all ranks; NCCL its own, on the device.
// Cost:       of a gather the link between the GPUs, or staged two copies, a wait for the stream
//             and a gather of the RankGroup.
// Not here:   what is gathered (cuda/cuda_rank_rows), what the hosts tell each other (rank_group).
#pragma once

#include <cstddef>
#include <memory>

#include "device/cuda_device.h"
#include "device/rank_group.h"
#include "stemma/result.h"

namespace stemma {

class CudaRanks {
 public:
  explicit CudaRanks(RankGroup& group) : group_(group) {}
  virtual ~CudaRanks() = default;
  CudaRanks(const CudaRanks&) = delete;
  CudaRanks& operator=(const CudaRanks&) = delete;

  int rank() const { return group_.rank(); }
  int ranks() const { return group_.ranks(); }

  // Whether gathers can be recorded.
  virtual bool records() const = 0;

  // Meets the other ranks. Before the first gather, by all ranks, none of which may fail before.
  // An error is the same on each: kUnsupported where some have NCCL and some have not.
  Status meet();

  // Queues: every rank gives `part_bytes` at `own`; behind that `all` has those of all, one behind
  // the other in the order of ranks. Both are the device's. An error is this rank's alone, or, of
  // staged ranks, that of another one.
  // REQUIRES: they do not overlap; nothing failed since the last conclude.
  virtual Status all_gather(const void* own, void* all, std::size_t part_bytes) = 0;

  // Ends what is queued of a step: `own` says how that went here. The same on all ranks: nothing,
  // or the first error, as agree. Every rank calls it once for every step, whatever happened.
  virtual Status conclude(const Status& own) = 0;

  // After conclude gave an error, on all ranks: ends what waits for gathers that never come, so
  // that the stream comes to its end, and, where all devices still work, makes gathers possible
  // again. REQUIRES: no graph has a gather recorded.
  virtual void start_over() = 0;

  // Waits for `event`, which is behind the gathers of a step, for a minute at most where others
  // may never do their part. An error may be this rank's alone; give_up is called then.
  virtual Status wait(const CudaEvent& event) = 0;

  // Ends what waits for gathers that never come, on this rank alone: the next gather says that
  // there are no others. REQUIRES: no graph has a gather recorded.
  virtual void give_up() = 0;

 protected:
  // The same once it is known that all ranks are of one implementation.
  virtual Status meet_alike() = 0;
  RankGroup& group() const { return group_; }

 private:
  RankGroup& group_;
};

// How ranks of a stream are made; nullptr from it: there are none of this kind here.
using CudaRanksMaker = std::unique_ptr<CudaRanks> (*)(CudaStream& stream, RankGroup& group);

// All must outlive what it gives; `part_bytes_max`: of a gather. kOutOfMemory.
Result<std::unique_ptr<CudaRanks>> make_staged_ranks(CudaDevice& device, CudaStream& stream,
                                                     RankGroup& group, std::size_t part_bytes_max);

// Over NCCL; nullptr where build or machine have none. Each rank must have a GPU of its own. The
// same must outlive it.
std::unique_ptr<CudaRanks> make_nccl_ranks(CudaStream& stream, RankGroup& group);

}  // namespace stemma
