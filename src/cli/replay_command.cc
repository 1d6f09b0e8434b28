#include "cli/replay_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "cli/replay_plot.h"
#include "replay/oracle.h"
#include "replay/replayer.h"
#include "replay/trace_future.h"
#include "replay/trace_reader.h"

namespace stemma {

namespace {

// One cache that the trace runs through: one that could serve, or one that knows the future.
struct Lane {
  ReplayOptions options;
  bool unlimited = false;
  std::unique_ptr<Replayer> replayer_or_null;
  std::optional<OracleKind> oracle;
  ReplayReport report;
};

// The pages of the whole trace: as many as a cache in which nothing is evicted can ever need.
Result<std::int64_t> count_pages(const ReplayFlags& flags) {
  STEMMA_ASSIGN_OR_RETURN(TraceReader reader,
                          TraceReader::open(flags.trace, flags.format, flags.skip_bad));
  TraceRequest request;
  std::int64_t pages = 0;
  for (;;) {
    STEMMA_ASSIGN_OR_RETURN(const bool more, reader.next(request));
    if (!more) return pages;
    pages += static_cast<std::int64_t>(request.page_hashes.size());
  }
}

Result<std::int64_t> parse_capacity(const std::string& text) {
  std::int64_t pages = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pages);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Error{ErrorCode::kInvalidArgument,
                 "--capacity-pages wants numbers of pages or 'unlimited' (got '" + text + "')"};
  }
  return pages;
}

Result<std::vector<Lane>> open_lanes(const ReplayFlags& flags) {
  std::vector<Lane> lanes;
  std::optional<std::int64_t> pages_in_trace;  // once it is asked for
  for (const std::string& policy : flags.policies) {
    for (const std::string& capacity : flags.capacities) {
      Lane lane;
      lane.options.policy = policy;
      lane.unlimited = capacity == "unlimited";
      if (lane.unlimited) {
        if (!pages_in_trace.has_value()) {
          STEMMA_ASSIGN_OR_RETURN(pages_in_trace, count_pages(flags));
        }
        lane.options.capacity_pages = std::max<std::int64_t>(*pages_in_trace, 1);
      } else {
        STEMMA_ASSIGN_OR_RETURN(lane.options.capacity_pages, parse_capacity(capacity));
      }
      lane.oracle = try_parse_oracle(policy);
      if (lane.oracle.has_value()) {
        STEMMA_RETURN_IF_ERROR(Replayer::check_capacity(lane.options.capacity_pages));
      } else {
        STEMMA_ASSIGN_OR_RETURN(lane.replayer_or_null, Replayer::open(lane.options));
      }
      lanes.push_back(std::move(lane));
    }
  }
  return lanes;
}

void print_json(const ReplayFlags& flags, const Lane& lane, std::int64_t page_size,
                double seconds) {
  const ReplayReport& report = lane.report;
  nlohmann::ordered_json line;
  line["trace"] = flags.trace;
  line["policy"] = lane.options.policy;
  line["page_size"] = page_size;
  if (lane.unlimited) {
    line["capacity_pages"] = "unlimited";
  } else {
    line["capacity_pages"] = lane.options.capacity_pages;
  }
  line["requests"] = report.requests;
  line["lookup_pages"] = report.lookup_pages;
  line["hit_pages"] = report.hit_pages;
  line["hit_rate"] = report.hit_rate();
  line["evicted_pages"] = report.evicted_pages;
  line["seconds"] = seconds;
  std::cout << line.dump() << '\n';
}

void print_row(const Lane& lane) {
  const ReplayReport& report = lane.report;
  const std::string capacity =
      lane.unlimited ? "unlimited" : fmt::format("{}", lane.options.capacity_pages);
  std::cout << fmt::format("{:<14} {:>12} {:>10} {:>12} {:>12} {:>8.2f}% {:>12}\n",
                           lane.options.policy, capacity, report.requests, report.lookup_pages,
                           report.hit_pages, 100 * report.hit_rate(), report.evicted_pages);
}

Status feed_all(const ReplayFlags& flags, TraceReader& reader, std::vector<Lane>& lanes) {
  const bool with_oracles = std::any_of(lanes.begin(), lanes.end(),
                                        [](const Lane& lane) { return lane.oracle.has_value(); });
  TraceRequest request;
  TraceFuture future;
  std::int64_t requests = 0;
  for (;; ++requests) {
    STEMMA_ASSIGN_OR_RETURN(const bool more, reader.next(request));
    if (!more) break;
    if (with_oracles) future.add(request);
    for (Lane& lane : lanes) {
      if (lane.replayer_or_null != nullptr) lane.replayer_or_null->feed(request);
    }
  }
  if (requests == 0) {
    return Error{ErrorCode::kInvalidArgument, flags.trace + ": holds no requests"};
  }
  for (Lane& lane : lanes) {
    lane.report = lane.oracle.has_value()
                      ? Oracle(future, *lane.oracle, lane.options.capacity_pages).run()
                      : lane.replayer_or_null->report();
  }
  return {};
}

// One curve a policy, of the capacities that are numbers.
std::vector<HitRateCurve> curves_of(const std::vector<Lane>& lanes) {
  std::vector<HitRateCurve> curves;
  for (const Lane& lane : lanes) {
    if (curves.empty() || curves.back().policy != lane.options.policy) {
      curves.push_back({lane.options.policy, {}});
    }
    if (lane.unlimited) continue;
    curves.back().points.emplace_back(lane.options.capacity_pages, lane.report.hit_rate());
  }
  for (HitRateCurve& curve : curves) std::sort(curve.points.begin(), curve.points.end());
  return curves;
}

}  // namespace

ReplayCommand::ReplayCommand(CLI::App& app)
    : command_(app.add_subcommand("replay", "Run a trace through the cache and report what hits")) {
  command_->add_option("--trace", flags_.trace, "trace file; a page is one block of the trace")
      ->required();
  command_->add_option("--format", flags_.format, "mooncake qwen-bailian prompts")
      ->capture_default_str();
  command_
      ->add_option("--capacity-pages", flags_.capacities,
                   "pages the cache may hold, or 'unlimited'; several with commas")
      ->delimiter(',')
      ->capture_default_str();
  command_
      ->add_option("--policy", flags_.policies,
                   "eviction order: lru lfu fifo mru filo slru priority; or a bound that knows the "
                   "trace: belady belady_forced knows_whether; several with commas")
      ->delimiter(',')
      ->capture_default_str();
  command_->add_option("--plot", flags_.plot,
                       "SVG file for curves of hit rate against capacity (needs gnuplot)");
  command_->add_flag("--skip-bad", flags_.skip_bad,
                     "leave out wrong lines and say how many there were");
  command_->add_flag("--json", flags_.json, "one JSON object for each policy and capacity");
}

Status ReplayCommand::run() {
  const MonotonicClock clock;
  STEMMA_ASSIGN_OR_RETURN(TraceReader reader,
                          TraceReader::open(flags_.trace, flags_.format, flags_.skip_bad));
  STEMMA_ASSIGN_OR_RETURN(std::vector<Lane> lanes, open_lanes(flags_));
  const std::int64_t begin_us = clock.now_us();
  STEMMA_RETURN_IF_ERROR(feed_all(flags_, reader, lanes));
  const double seconds = static_cast<double>(clock.now_us() - begin_us) * 1e-6;
  if (!flags_.plot.empty()) {
    STEMMA_RETURN_IF_ERROR(plot_hit_rates(flags_.plot, flags_.trace, curves_of(lanes)));
  }
  if (!flags_.json) {
    std::cout << fmt::format("{:<14} {:>12} {:>10} {:>12} {:>12} {:>9} {:>12}\n", "policy",
                             "capacity", "requests", "pages", "hits", "hit rate", "evicted");
  }
  for (const Lane& lane : lanes) {
    if (flags_.json) {
      print_json(flags_, lane, reader.page_tokens(), seconds);
    } else {
      print_row(lane);
    }
  }
  if (reader.skipped_lines() > 0) {
    std::cerr << fmt::format("stemma: {}: {} wrong lines left out\n", flags_.trace,
                             reader.skipped_lines());
  }
  return {};
}

}  // namespace stemma
