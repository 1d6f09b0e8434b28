#include "cli/replay_pages.h"

#include <fmt/format.h>

#include <iostream>
#include <set>
#include <utility>

#include "cli/flag_errors.h"
#include "cli/ghost_rate.h"
#include "cli/json_lines.h"
#include "cli/replay_progress.h"
#include "replay/ghost_feed.h"
#include "replay/replay_json.h"

namespace stemma {

namespace {

using Json = nlohmann::ordered_json;

ReplayReport difference(const ReplayReport& now, const ReplayReport& before) {
  return {.requests = now.requests - before.requests,
          .lookup_pages = now.lookup_pages - before.lookup_pages,
          .hit_pages = now.hit_pages - before.hit_pages,
          .evicted_pages = now.evicted_pages - before.evicted_pages};
}

}  // namespace

PagesReplay::PagesReplay(const ReplayFlags& flags, ReplayOutput& output)
    : flags_(flags), output_(output) {}

Status PagesReplay::run(std::span<const ReplayLane> lanes, ReplayTrace& trace) {
  STEMMA_RETURN_IF_ERROR(open_lanes(lanes));
  STEMMA_RETURN_IF_ERROR(read_all(trace));
  trace.warn_if_misfit(flags_);
  finish_lanes();
  if (!flags_.json) {
    print_table();
    return {};
  }
  for (const Lane& lane : lanes_) print_json(lane, trace.page_tokens());
  return {};
}

Status PagesReplay::open_lanes(std::span<const ReplayLane> wanted) {
  STEMMA_RETURN_IF_ERROR(open_ghosts(wanted));
  ReplayBounds::Wish wish = ReplayBounds::wish_of(flags_);
  for (const ReplayLane& what : wanted) {
    Lane lane = {.what = what, .replayer_or_null = nullptr, .report = {}, .at_minute_begin = {}};
    if (lane.what.oracle.has_value()) {
      wish = ReplayBounds::Wish::kOn;
    } else {
      STEMMA_ASSIGN_OR_RETURN(lane.replayer_or_null, or_too_large("--capacity-pages", "pages", [&] {
                                return Replayer::open({.policy = lane.what.policy,
                                                       .capacity_pages = lane.what.capacity_pages});
                              }));
    }
    lanes_.push_back(std::move(lane));
  }
  bounds_.emplace(wish);
  if (flags_.bounds == "off") bounds_->hide();
  return {};
}

// Of every policy that could serve, at every capacity that is a number.
Status PagesReplay::open_ghosts(std::span<const ReplayLane> wanted) {
  if (flags_.ghost_rate == 0) return {};
  GhostPanelOptions options;
  options.curve.pages_per_sample = pages_per_sample_of(flags_.ghost_rate);
  std::set<std::string> policies;
  std::set<std::int64_t> capacities;
  for (const ReplayLane& lane : wanted) {
    if (!has_ghost(lane)) continue;
    policies.insert(lane.policy);
    capacities.insert(lane.capacity_pages);
  }
  if (capacities.empty()) {
    return Error{ErrorCode::kInvalidArgument, "--ghost-rate: wants capacities that are numbers"};
  }
  options.policies.assign(policies.begin(), policies.end());
  options.capacities.assign(capacities.begin(), capacities.end());
  options.curve.capacity_pages_max = *capacities.rbegin();
  STEMMA_ASSIGN_OR_RETURN(ghosts_or_null_, open_ghost_panel(options));
  return {};
}

bool PagesReplay::has_ghost(const ReplayLane& lane) {
  return !lane.unlimited && !lane.oracle.has_value();
}

std::optional<double> PagesReplay::ghost_hit_rate(const Lane& lane) const {
  if (ghosts_or_null_ == nullptr || !has_ghost(lane.what)) return std::nullopt;
  return ghosts_or_null_->try_hit_rate(lane.what.policy, lane.what.capacity_pages);
}

Status PagesReplay::read_all(ReplayTrace& trace) {
  const MonotonicClock clock;
  ReplayProgress progress(clock, std::cerr, ReplayProgress::choose(flags_.progress),
                          trace.size_bytes());
  TraceRequest request;
  for (;; ++requests_) {
    STEMMA_ASSIGN_OR_RETURN(const bool more, trace.next(request));
    if (!more) break;
    feed(request);
    progress.update([&]() -> ReplayProgress::State {
      const Replayer* first = lanes_.front().replayer_or_null.get();
      return {.read_bytes = trace.read_bytes(),
              .requests = requests_,
              .hit_rate = first == nullptr ? 0.0 : first->report().hit_rate(),
              .lane = lanes_.front().what.title()};
    });
  }
  return {};
}

void PagesReplay::feed(const TraceRequest& request) {
  if (requests_ == 0) first_ms_ = request.timestamp_ms;
  latest_ms_ = request.timestamp_ms;
  const auto minute = static_cast<std::int64_t>((latest_ms_ - first_ms_) / 60'000);
  if (minute != minute_) end_minute();
  minute_ = minute;
  bounds_->add(request);
  if (ghosts_or_null_ != nullptr) ghosts_or_null_->feed(ghost_request_of(request));
  for (Lane& lane : lanes_) {
    if (lane.replayer_or_null != nullptr) feed_lane(lane, request);
  }
}

void PagesReplay::feed_lane(Lane& lane, const TraceRequest& request) {
  const std::int64_t hits_before = lane.replayer_or_null->report().hit_pages;
  lane.replayer_or_null->feed(request);
  if (!output_.wants_requests()) return;
  Json line = Json::object();
  line["request"] = requests_;
  line["arrival_ms"] = request.timestamp_ms - first_ms_;
  line["lookup_pages"] = request.page_hashes.size();
  line["hit_pages"] = lane.replayer_or_null->report().hit_pages - hits_before;
  output_.request(lane.what, line);
}

void PagesReplay::end_minute() {
  if (!output_.wants_minutes()) return;
  for (Lane& lane : lanes_) {
    if (lane.replayer_or_null == nullptr) continue;
    Json line = Json::object();
    line["minute"] = minute_;
    append_report(difference(lane.replayer_or_null->report(), lane.at_minute_begin), line);
    lane.at_minute_begin = lane.replayer_or_null->report();
    output_.minute(lane.what, line);
  }
}

void PagesReplay::finish_lanes() {
  end_minute();
  for (Lane& lane : lanes_) {
    lane.report = lane.what.oracle.has_value()
                      ? bounds_->run(*lane.what.oracle, lane.what.capacity_pages)
                      : lane.replayer_or_null->report();
    output_.hit_rate(lane.what, lane.report.hit_rate());
  }
  output_.add_bound(*bounds_);
  bounds_->warn_if_dropped(flags_.trace());
}

void PagesReplay::print_json(const Lane& lane, std::int64_t page_size) {
  Json line = lane_json(flags_, lane.what, page_size);
  append_report(lane.report, line);
  if (const auto ghost = ghost_hit_rate(lane); ghost.has_value()) {
    line["ghost_hit_rate"] = *ghost;
    line["ghost_points_off"] = 100 * (*ghost - lane.report.hit_rate());
  }
  line["seconds"] = seconds();
  line["mode"] = flags_.mode;
  if (!lane.what.oracle.has_value()) bounds_->append_to(line, lane.what.capacity_pages);
  std::cout << json_line(line) << '\n';
}

void PagesReplay::print_table() {
  std::cout << fmt::format("{:<14} {:>12} {:>10} {:>12} {:>12} {:>9} {:>12}", "policy", "capacity",
                           "requests", "pages", "hits", "hit rate", "evicted");
  if (ghosts_or_null_ != nullptr) std::cout << fmt::format(" {:>9}", "ghost");
  for (const OracleKind kind : kOracleKinds) {
    if (bounds_->shown()) std::cout << fmt::format(" {:>13}", oracle_name(kind));
  }
  std::cout << '\n';
  for (const Lane& lane : lanes_) {
    const ReplayReport& report = lane.report;
    std::cout << fmt::format("{:<14} {:>12} {:>10} {:>12} {:>12} {:>8.2f}% {:>12}",
                             lane.what.policy, lane.what.capacity_text(), report.requests,
                             report.lookup_pages, report.hit_pages, 100 * report.hit_rate(),
                             report.evicted_pages);
    if (const auto ghost = ghost_hit_rate(lane); ghost.has_value()) {
      std::cout << fmt::format(" {:>8.2f}%", 100 * *ghost);
    } else if (ghosts_or_null_ != nullptr) {
      std::cout << fmt::format(" {:>9}", "");
    }
    const auto rates =
        lane.what.oracle.has_value() ? std::nullopt : bounds_->hit_rates(lane.what.capacity_pages);
    for (std::size_t i = 0; rates.has_value() && i < rates->size(); ++i) {
      std::cout << fmt::format(" {:>12.2f}%", 100 * (*rates)[i]);
    }
    std::cout << '\n';
  }
}

}  // namespace stemma
