// RankGroup: the ranks that compute one model together, and what they tell each other.
//
// Every rank makes the same calls in the same order, with the same sizes: each call waits for all
// ranks. Nothing is added up on the way: what a rank gives arrives bit for bit (I13).
//
// Thread:     one thread at a time calls.                  Invariants: I13 (docs/INVARIANTS.md).
// Memory:     none here; what an implementation needs, it says.
// Cost:       moving the bytes, and waiting for the slowest rank.
// Not here:   which part of a model a rank holds (model/shard), what is gathered
// (model/rank_rows), ranks as processes (mpi_ranks).
#pragma once

#include <cstddef>
#include <span>

#include "stemma/result.h"

namespace stemma {

class RankGroup {
 public:
  virtual ~RankGroup() = default;

  // This rank's number: 0 ... ranks() - 1. Rank 0 leads.
  virtual int rank() const = 0;
  // How many there are; at least 2.
  virtual int ranks() const = 0;

  // Every rank gives equally many bytes; each gets those of all, in the order of ranks. kInternal,
  // here and below, if ranks cannot be reached any more: no call will succeed then.
  // REQUIRES: `all` holds ranks() times as many bytes as `own`, and does not overlap it.
  virtual Status all_gather(std::span<const std::byte> own, std::span<std::byte> all) = 0;

  // The same where only rank 0 gets them; on other ranks `all` is not looked at.
  virtual Status gather(std::span<const std::byte> own, std::span<std::byte> all) = 0;

  // Rank 0's bytes are everybody's afterwards. The other ranks may wait for them for hours, and
  // use next to no CPU while they do.
  virtual Status broadcast(std::span<std::byte> bytes) = 0;
};

// What the ranks say together, the same on each: nothing if none has an error, else that of the
// first rank that has one; of another rank than 0 it begins with "rank N: ". Bounded: long details
// are cut.
Status agree(RankGroup& ranks, const Status& own);

}  // namespace stemma
