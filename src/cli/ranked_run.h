// RankedRun: what commands do differently where several ranks compute a model together
// (--tensor-parallel).
//
// Every rank is a process with the same command line. Rank 0 does what the command is for; the
// others open the model with it and compute what it asks for. Errors are said once, by rank 0.
//
// Thread:     the main thread.
// Memory:     none.
// Cost:       none.
// Not here:   the steps (model/leading_runner), the processes (device/mpi_ranks).
#pragma once

#include <memory>

#include "device/rank_group.h"
#include "engine/served_model.h"
#include "model/device_backend.h"
#include "stemma/result.h"

namespace stemma {

// Whether this process does what others lead. nullptr: it computes alone.
bool follows(const RankGroup* ranks_or_null);

// All that a rank does that others lead: opens the model of `options` on its device (nullptr: CPUs)
// and computes until rank 0 ends. An error only if rank 0 could not say it.
Status follow(Result<ServedModelOptions> options,
              const Result<std::unique_ptr<DeviceBackend>>& device, RankGroup& ranks);

// `error`, of which the ranks that are opening the model have been told, so that nobody waits.
// REQUIRES: ServedModel::open was not called.
Error told(RankGroup* ranks_or_null, Error error);

}  // namespace stemma
