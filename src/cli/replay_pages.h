// PagesReplay: `stemma replay --mode blocks`: one request after another through every cache, the
// trace being read once for all.
//
// Thread:     main.
// Memory:     a cache for each lane, and what bounds hold.
// Cost:       under a microsecond a page and lane.
// Not here:   what a cache does with a request (replay/replayer).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cli/replay_bounds.h"
#include "cli/replay_flags.h"
#include "cli/replay_lanes.h"
#include "cli/replay_output.h"
#include "cli/replay_trace.h"
#include "ghost/ghost_panel.h"
#include "replay/replayer.h"

namespace stemma {

class PagesReplay {
 public:
  // Both must outlive this.
  PagesReplay(const ReplayFlags& flags, ReplayOutput& output);

  // Reads the trace, runs the lanes and prints what came out.
  Status run(std::span<const ReplayLane> lanes, ReplayTrace& trace);

 private:
  struct Lane {
    ReplayLane what;
    std::unique_ptr<Replayer> replayer_or_null;  // nullptr for one that knows the future
    ReplayReport report;
    ReplayReport at_minute_begin;
  };

  Status open_lanes(std::span<const ReplayLane> wanted);
  Status open_ghosts(std::span<const ReplayLane> wanted);
  static bool has_ghost(const ReplayLane& lane);
  // What the lane's ghost says, if it has one.
  std::optional<double> ghost_hit_rate(const Lane& lane) const;
  Status read_all(ReplayTrace& trace);
  void feed(const TraceRequest& request);
  void feed_lane(Lane& lane, const TraceRequest& request);
  void end_minute();
  void finish_lanes();
  void print_json(const Lane& lane, std::int64_t page_size);
  void print_table();
  double seconds() const { return (latest_ms_ - first_ms_) / 1000; }

  const ReplayFlags& flags_;
  ReplayOutput& output_;
  std::vector<Lane> lanes_;
  std::optional<ReplayBounds> bounds_;
  std::unique_ptr<GhostPanel> ghosts_or_null_;
  std::int64_t requests_ = 0;
  double first_ms_ = 0;  // timestamps
  double latest_ms_ = 0;
  std::int64_t minute_ = 0;  // of the present request, since the first
};

}  // namespace stemma
