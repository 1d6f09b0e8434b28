// `stemma replay --mode timed`: the trace in its own time, once for each lane.
//
// Thread:     main.
// Memory:     one lane's cache and scheduler at a time.
// Cost:       a reading of the trace and a replay a lane.
// Not here:   the replay (replay/timed_replay).
#pragma once

#include <cstdint>

#include "cli/replay_flags.h"
#include "cli/replay_output.h"
#include "stemma/result.h"

namespace stemma {

// Replays every lane, each a reading of `source`, and prints what came out. Adds the wrong lines of
// one reading that were left out to `skipped_lines`. An error names the flag that is wrong, or the
// trace's line.
Status run_timed_replays(const ReplayFlags& flags, const TraceSource& source, ReplayOutput& output,
                         std::int64_t& skipped_lines);

}  // namespace stemma
