// `stemma replay --mode timed`: the trace in its own time, once for each lane.
//
// Thread:     main.
// Memory:     one lane's cache and scheduler at a time.
// Cost:       a replay a lane; for each but the first another reading of the trace.
// Not here:   the replay (replay/timed_replay).
#pragma once

#include <cstdint>

#include "cli/replay_flags.h"
#include "cli/replay_output.h"
#include "cli/replay_trace.h"
#include "stemma/result.h"

namespace stemma {

// Replays every lane and prints what came out: the first from `trace`, which is of `source`, each
// other from a reading of its own. `skipped_lines` becomes the wrong lines of one reading that were
// left out. An error names the flag that is wrong, or the trace's line.
Status run_timed_replays(const ReplayFlags& flags, const TraceSource& source, ReplayTrace& trace,
                         ReplayOutput& output, std::int64_t& skipped_lines);

}  // namespace stemma
