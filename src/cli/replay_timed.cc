#include "cli/replay_timed.h"

#include <fmt/format.h>

#include <iostream>
#include <numeric>
#include <optional>
#include <utility>

#include "cli/flag_errors.h"
#include "cli/json_lines.h"
#include "cli/replay_bounds.h"
#include "cli/replay_lanes.h"
#include "cli/replay_progress.h"
#include "replay/replay_json.h"
#include "replay/timed_replay.h"

namespace stemma {

namespace {

using Json = nlohmann::ordered_json;

using Cells = std::vector<std::string>;

std::string percent(double share) {
  return fmt::format("{:.2f}%", 100 * share);
}

std::string ms(const LatencyHistogram& times, double share) {
  return fmt::format("{:.1f}", static_cast<double>(times.quantile_us(share)) / 1000);
}

// The first cell to the left, the others to the right of their columns.
std::string row_of(const Cells& cells) {
  std::string row;
  for (const std::string& cell : cells) {
    row += row.empty() ? fmt::format("{:<14}", cell) : fmt::format(" {:>9}", cell);
  }
  return row;
}

// What is below the device, and how large its pages are.
Status read_tiers(const ReplayFlags& flags, TimedReplayOptions& options) {
  // As many tokens in one copy up as an engine brings in 64 pages of its own.
  constexpr std::int64_t kLoadTokensMax = 1024;
  const auto policy = parse_write_policy(flags.write_policy);
  if (!policy.ok()) return named("--write-policy", policy.error());
  KvCacheOptions& kv = options.engine.kv;
  kv.tiers.write_policy = *policy;
  kv.tiers.load_pages_max = std::max<std::int64_t>(kLoadTokensMax / kv.page_size, 1);
  options.tiers.page_bytes = options.timing.kv_token_bytes * static_cast<double>(kv.page_size);
  if (options.tiers.host_pages == 0 || options.tiers.page_bytes > 0) return {};
  return Error{ErrorCode::kInvalidArgument,
               "--host-pages: the timing model says no kv_token_bytes, which tiers move"};
}

// A capture knows what its outputs left in the cache.
bool publishes_outputs(const ReplayFlags& flags) {
  return flags.insert_outputs || flags.traces.format == "capture";
}

Result<TimedReplayOptions> options_of(const ReplayFlags& flags, const ReplayLane& lane,
                                      std::int64_t page_size) {
  TimedReplayOptions options = {
      .engine = flags.engine, .timing = {}, .time_scale = flags.time_scale, .tiers = flags.tiers};
  KvCacheOptions& kv = options.engine.kv;
  kv.page_size = page_size;
  kv.pages = lane.capacity_pages;
  kv.eviction = lane.policy;
  kv.context_tokens_max = flags.context_tokens();
  SchedulerOptions& scheduler = options.engine.scheduler;
  const auto policy = parse_schedule_policy(flags.schedule_policy);
  if (!policy.ok()) return named("--schedule-policy", policy.error());
  scheduler.policy = *policy;
  scheduler.publish_outputs = publishes_outputs(flags);
  if (lane.unlimited) scheduler.watermark_pages = 0;  // there are pages for all of the trace
  STEMMA_ASSIGN_OR_RETURN(options.timing, read_timing_model(flags.timing));
  STEMMA_RETURN_IF_ERROR(read_tiers(flags, options));
  return options;
}

// Behind the flag that it is of, or behind the mode whose options it names.
Error behind_mode(const Error& error) {
  return error.detail.starts_with("--") ? error : named("--mode timed", error);
}

// One lane's replay, from the trace to its line.
class TimedLane {
 public:
  TimedLane(const ReplayFlags& flags, const ReplayLane& lane, ReplayOutput& output)
      : flags_(flags), lane_(lane), output_(output) {}

  // `bounds_or_null` are told of every request.
  Status run(ReplayTrace& trace, ReplayBounds* bounds_or_null) {
    page_size_ = trace.page_tokens();
    STEMMA_ASSIGN_OR_RETURN(const TimedReplayOptions options,
                            options_of(flags_, lane_, page_size_));
    auto opened = or_too_large("--capacity-pages and --host-pages", "pages",
                               [&] { return TimedReplay::open(options); });
    if (!opened.ok()) return behind_mode(opened.error());
    replay_ = std::move(opened).value();
    const auto next = [&](TraceRequest& request) {
      const Result<bool> more = trace.next(request);
      if (!more.ok() || !*more) return more;
      if (bounds_or_null != nullptr) bounds_or_null->add(request);
      return more;
    };
    const MonotonicClock clock;
    ReplayProgress progress(clock, std::cerr, ReplayProgress::choose(flags_.progress),
                            trace.size_bytes());
    for (bool more = true; more;) {
      STEMMA_ASSIGN_OR_RETURN(more, replay_->step(next));
      put_out();
      progress.update([&] { return state(trace.read_bytes()); });
    }
    output_.hit_rate(lane_, lookups_of(replay_->total(), page_size_).hit_rate());
    return {};
  }

  void print_json(ReplayBounds& bounds) const {
    Json line = lane_json(flags_, lane_, page_size_);
    append_report(lookups_of(replay_->total(), page_size_), line);
    line["seconds"] = static_cast<double>(replay_->now_us()) / 1e6;
    line["mode"] = flags_.mode;
    line["timing"] = flags_.timing;
    line["time_scale"] = flags_.time_scale;
    line["scheduler"] = scheduler_json();
    if (flags_.tiers.host_pages > 0) line["tiers"] = tiers_json();
    append_period(replay_->total(), line);
    bounds.append_to(line, lane_.capacity_pages);
    std::cout << json_line(line) << std::endl;
  }

  void print_row(ReplayBounds& bounds) const {
    const TimedPeriod& total = replay_->total();
    const auto best = bounds.hit_rates(lane_.capacity_pages);
    const auto& refused = total.refused_requests;
    Cells cells = {lane_.policy, lane_.capacity_text(),
                   percent(lookups_of(total, page_size_).hit_rate()),
                   best.has_value() ? percent(best->front()) : ""};
    if (flags_.tiers.host_pages > 0) add_tiers(total, cells);
    for (const LatencyHistogram* times : {&total.ttft, &total.time_per_token}) {
      for (const double share : {0.5, 0.95, 0.99}) cells.push_back(ms(*times, share));
    }
    cells.push_back(ms(total.queue, 0.95));
    // A full queue kept more outside, who knows how many.
    const char* const at_least = total.held_requests > 0 ? ">=" : "";
    cells.push_back(at_least + std::to_string(total.waiting_requests_max));
    for (const std::int64_t many :
         {std::accumulate(refused.begin(), refused.end(), std::int64_t{0}), total.evicted_pages,
          total.preemptions}) {
      cells.push_back(std::to_string(many));
    }
    cells.push_back(fmt::format("{:.1f}", total.saved_ms / 1000));
    std::cout << row_of(cells) << std::endl;
  }

 private:
  Json scheduler_json() const {
    const SchedulerOptions& scheduler = flags_.engine.scheduler;
    return {{"policy", flags_.schedule_policy},
            {"requests_max", flags_.engine.kv.requests_max},
            {"step_tokens_max", scheduler.step_tokens_max},
            {"chunk_tokens_max", scheduler.chunk_tokens_max},
            {"waiting_max", scheduler.waiting_max},
            {"seed", scheduler.seed},
            {"insert_outputs", publishes_outputs(flags_)}};
  }

  // Of all pages looked up, those that came from below the device.
  void add_tiers(const TimedPeriod& total, Cells& cells) const {
    const auto pages = static_cast<double>(std::max<std::int64_t>(total.lookup_pages, 1));
    for (const std::int64_t tokens : {total.hit_tokens.host, total.hit_tokens.disk}) {
      const std::int64_t whole_pages = tokens / page_size_;
      cells.push_back(percent(static_cast<double>(whole_pages) / pages));
    }
  }

  Json tiers_json() const {
    return {{"host_pages", flags_.tiers.host_pages},
            {"disk_pages", flags_.tiers.disk_pages},
            {"link_gb_s", flags_.tiers.link_gb_s},
            {"disk_gb_s", flags_.tiers.disk_gb_s},
            {"write_policy", flags_.write_policy},
            {"host_policy", flags_.engine.kv.tiers.host_eviction}};
  }

  void put_out() {
    for (const RequestReport& report : replay_->ended()) {
      if (!output_.wants_requests()) break;
      Json line = Json::object();
      append_request(report, line);
      output_.request(lane_, line);
    }
    for (const TimedPeriod& minute : replay_->minutes()) {
      if (!output_.wants_minutes()) break;
      Json line = Json::object();
      line["minute"] = minute.minute;
      append_report(lookups_of(minute, page_size_), line);
      append_period(minute, line);
      output_.minute(lane_, line);
    }
  }

  ReplayProgress::State state(std::int64_t read_bytes) const {
    return {.read_bytes = read_bytes,
            .requests = replay_->total().finished_requests,
            .hit_rate = lookups_of(replay_->total(), page_size_).hit_rate(),
            .lane = lane_.title()};
  }

  const ReplayFlags& flags_;
  const ReplayLane& lane_;
  ReplayOutput& output_;
  std::int64_t page_size_ = 0;
  std::unique_ptr<TimedReplay> replay_;
};

// A queue that puts others first than came first may find more than any cache would have of the
// trace as it is.
bool serves_in_order(const ReplayFlags& flags) {
  return flags.schedule_policy == "fcfs";
}

ReplayBounds bounds_of(const ReplayFlags& flags) {
  const auto wish =
      serves_in_order(flags) ? ReplayBounds::wish_of(flags) : ReplayBounds::Wish::kOff;
  return ReplayBounds(wish, flags.tiers.host_pages + flags.tiers.disk_pages);
}

// To people, and to who asked for bounds.
void warn_if_out_of_order(const ReplayFlags& flags) {
  const bool is_told = flags.bounds == "on" || (flags.bounds == "auto" && !flags.json);
  if (serves_in_order(flags) || !is_told) return;
  std::cerr << fmt::format(
      "stemma: {}: no bounds beside the policies: --schedule-policy {} does not serve the requests "
      "in the trace's order\n",
      flags.trace(), flags.schedule_policy);
}

void print_header(bool has_tiers) {
  Cells above = {"", "", "", "", "TTFT,", "ms", "", "token,", "ms", "", "queue,"};
  Cells names = {"policy",  "capacity", "hits",      "belady",  "p50",     "p95",
                 "p99",     "p50",      "p95",       "p99",     "p95, ms", "waiting",
                 "refused", "evicted",  "preempted", "saved, s"};
  if (has_tiers) {
    above.insert(above.begin() + 4, {"of them", ""});
    names.insert(names.begin() + 4, {"host", "disk"});
  }
  std::cout << row_of(above) << '\n' << row_of(names) << '\n';
}

}  // namespace

Status check_timed_lanes(const ReplayFlags& flags, std::span<const ReplayLane> lanes,
                         std::int64_t page_tokens) {
  for (const ReplayLane& lane : lanes) {
    STEMMA_ASSIGN_OR_RETURN(const TimedReplayOptions options, options_of(flags, lane, page_tokens));
    const Status possible = TimedReplay::check(options);
    if (!possible.ok()) return behind_mode(possible.error());
  }
  return {};
}

Result<std::int64_t> run_timed_replays(const ReplayFlags& flags, std::span<const ReplayLane> lanes,
                                       const TraceSource& source, ReplayTrace& trace,
                                       ReplayOutput& output) {
  if (lanes.size() > 1) STEMMA_RETURN_IF_ERROR(source.check_rereadable());
  ReplayBounds bounds = bounds_of(flags);
  for (const ReplayLane& lane : lanes) {
    const bool first = &lane == &lanes.front();
    std::optional<ReplayTrace> again;
    if (!first) {
      STEMMA_ASSIGN_OR_RETURN(again, ReplayTrace::open(flags, source));
    }
    TimedLane timed(flags, lane, output);
    STEMMA_RETURN_IF_ERROR(timed.run(first ? trace : *again, first ? &bounds : nullptr));
    if (first) {
      trace.warn_if_misfit(flags);
      bounds.warn_if_dropped(flags.trace());
      warn_if_out_of_order(flags);
    }
    if (flags.json) {
      timed.print_json(bounds);
      continue;
    }
    if (first) print_header(flags.tiers.host_pages > 0);
    timed.print_row(bounds);
  }
  output.add_bound(bounds);
  return trace.skipped_lines();
}

}  // namespace stemma
