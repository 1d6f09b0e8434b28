// ReplayOutput: where what a replay finds goes: lines or a table on standard output, files of
// requests and minutes, plots.
//
// Thread:     main.
// Memory:     for a plot, three numbers a minute and lane.
// Cost:       that of writing.
// Not here:   what is found (replay_pages, replay_timed).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/json_lines.h"
#include "cli/replay_bounds.h"
#include "cli/replay_flags.h"
#include "cli/replay_lanes.h"
#include "cli/replay_plot.h"
#include "stemma/result.h"

namespace stemma {

// A minute of one lane.
struct MinuteHits {
  std::int64_t minute = 0;
  std::int64_t lookup_pages = 0;
  std::int64_t hit_pages = 0;
};

class ReplayOutput {
 public:
  // `flags` must outlive this. An error if a file cannot be written, or is another one that the
  // flags name.
  static Result<ReplayOutput> open(const ReplayFlags& flags);

  // Whether requests, minutes are asked for, the latter by a file or by the plot.
  bool wants_requests() const { return per_request_.wanted(); }
  bool wants_minutes() const { return per_minute_.wanted() || !flags_->plot.empty(); }

  // `line` (an object) goes to the file behind the lane's policy and capacity.
  void request(const ReplayLane& lane, const nlohmann::ordered_json& line);
  // The same for a minute, which has `minute`, `lookup_pages` and `hit_pages`. REQUIRES:
  // wants_minutes(); a lane's minutes ascend.
  void minute(const ReplayLane& lane, const nlohmann::ordered_json& line);
  // A lane's hit rate, for the plot.
  void hit_rate(const ReplayLane& lane, double rate);

  // Belady's hit rates at the capacities drawn, unless they are there as a policy's. To be called
  // when all hit rates are in.
  void add_bound(ReplayBounds& bounds);

  // Ends the files and draws the plot.
  Status finish();

 private:
  explicit ReplayOutput(const ReplayFlags& flags) : flags_(&flags) {}
  bool draws_minutes_of(const ReplayLane& lane) const;

  const ReplayFlags* flags_;
  JsonLines per_request_;
  JsonLines per_minute_;
  // In the order in which they first came.
  std::vector<std::pair<std::string, RatePoints>> by_capacity_;             // a policy each
  std::vector<std::pair<std::string, std::vector<MinuteHits>>> by_minute_;  // a lane each
};

// What every line about a lane begins with.
nlohmann::ordered_json lane_json(const ReplayFlags& flags, const ReplayLane& lane,
                                 std::int64_t page_size);

}  // namespace stemma
