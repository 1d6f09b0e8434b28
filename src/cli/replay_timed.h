// `stemma replay --mode timed`: the trace in its own time, once for each lane.
//
// Thread:     main.
// Memory:     one lane's cache and scheduler at a time.
// Cost:       a replay a lane; for each but the first another reading of the trace.
// Not here:   the replay (replay/timed_replay).
#pragma once

#include <cstdint>
#include <span>

#include "cli/replay_flags.h"
#include "cli/replay_lanes.h"
#include "cli/replay_output.h"
#include "cli/replay_trace.h"
#include "stemma/result.h"

namespace stemma {

// Whether every lane can be what the flags say, for traces of pages of so many tokens, before one
// of them runs. The error names the flag. Whether there is memory for it is not known before.
Status check_timed_lanes(const ReplayFlags& flags, std::span<const ReplayLane> lanes,
                         std::int64_t page_tokens);

// Replays every lane and prints what came out: the first from `trace`, which is of `source`, each
// other from a reading of its own. Returns how many wrong lines of the trace were left out. An
// error names the flag that is wrong, or the trace's line.
Result<std::int64_t> run_timed_replays(const ReplayFlags& flags, std::span<const ReplayLane> lanes,
                                       const TraceSource& source, ReplayTrace& trace,
                                       ReplayOutput& output);

}  // namespace stemma
