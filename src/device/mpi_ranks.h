// MpiRanks: ranks as processes that `mpirun` started, which talk over MPI.
//
// Thread:     opened and destroyed by one thread, used by one at a time.
// Memory:     MPI's own.
// Cost:       gathering is MPI's all-gather and spins while it waits, as other ranks are computing
//             the same step; waiting for rank 0's broadcast spins for a short while only and then
//             looks a few hundred times a second.
// Not here:   starting processes (mpirun), what they tell each other (model/).
#pragma once

#include <memory>

#include "device/rank_group.h"
#include "stemma/result.h"

namespace stemma {

// The ranks of this program. Destroying it waits until every rank does so. kUnsupported where the
// build has no MPI, and where as many ranks as one of them wants are not there: an error on all,
// which names the flag --tensor-parallel. REQUIRES: at most once in a process; ranks >= 2.
Result<std::unique_ptr<RankGroup>> open_mpi_ranks(int ranks);

}  // namespace stemma
