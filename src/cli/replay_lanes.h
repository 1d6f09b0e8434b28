// ReplayLane: one cache that the trace runs through: one for each pair of policy and capacity.
//
// Thread:     main.
// Memory:     a few words.
// Cost:       a reading of the trace if a capacity is unlimited.
// Not here:   running them (replay_pages, replay_timed).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/replay_flags.h"
#include "replay/oracle.h"
#include "stemma/result.h"

namespace stemma {

// A cache that could serve, or one that knows the future.
struct ReplayLane {
  std::string policy;
  std::optional<OracleKind> oracle;
  std::int64_t capacity_pages = 0;
  bool unlimited = false;

  std::string capacity_text() const;  // "1000", "unlimited"
  std::string title() const;          // "lru, 1000 pages"
};

// Policies in the order typed, the capacities of each in theirs. An unlimited cache has as many
// pages as the whole trace can ever need, which is read from `source`. An error names the flag, or
// the trace's line.
Result<std::vector<ReplayLane>> make_replay_lanes(const ReplayFlags& flags,
                                                  const TraceSource& source);

}  // namespace stemma
