#include "cli/replay_command.h"

#include <fmt/format.h>

#include <cmath>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "cli/flag_errors.h"
#include "cli/ghost_rate.h"
#include "cli/replay_lanes.h"
#include "cli/replay_output.h"
#include "cli/replay_pages.h"
#include "cli/replay_timed.h"
#include "cli/replay_trace.h"
#include "prefix/eviction_order.h"
#include "replay/replayer.h"
#include "replay/timing_model.h"

namespace stemma {

namespace {

constexpr std::int64_t kHostPagesMax = (std::int64_t{1} << 30) - 1;  // of a tree
constexpr std::int64_t kDiskPagesMax = std::int64_t{1} << 40;  // with a device's, far from 64 bits
// Slower and faster than any link or disk: what a page takes is a time.
constexpr double kRateMinGbS = 1e-3;
constexpr double kRateMaxGbS = 1e6;

}  // namespace

ReplayCommand::ReplayCommand(Flags& program)
    : command_(
          program.add_command("replay", "Run a trace through the cache and report what hits")) {
  flags_.engine.kv.context_tokens_max = 0;
  add_trace_flags(command_, flags_.traces);
  command_
      .add("--mode", flags_.mode,
           "blocks: one request after another; timed: in the trace's own time, through the "
           "scheduler, steps taking what --timing says")
      .check_member({"blocks", "timed"})
      .capture_default_str();
  command_
      .add("--capacity-pages", flags_.capacities,
           "pages the cache may hold, or 'unlimited'; several with commas")
      .delimiter(',')
      .capture_default_str();
  command_
      .add("--policy", flags_.policies,
           "eviction order: " + EvictionOrder::known_names() +
               "; or a cache that knows the trace: belady, belady_forced, knows_whether; "
               "several with commas")
      .delimiter(',')
      .capture_default_str();
  command_
      .add("--bounds", flags_.bounds,
           "the bounds' hit rates beside every policy's: on off auto; they hold the whole "
           "trace, so auto leaves them out of very long ones")
      .check_member({"auto", "on", "off"})
      .capture_default_str();
  command_.add("--per-request", flags_.per_request, "JSON file, a line for each request");
  command_.add("--per-minute", flags_.per_minute,
               "JSON file, a line for each minute in which something happened");
  command_.add("--plot", flags_.plot,
               "SVG file: hit rate against capacity, hits over time (needs gnuplot)");
  command_.add(
      "--ghost-rate", flags_.ghost_rate,
      "in --mode blocks: what ghosts that watch this share of all page uses say, beside the hit "
      "rate");
  command_.add("--progress", flags_.progress,
               "how far it is, on standard error, also where that is no terminal");
  command_.add("--json", flags_.json, "one JSON object for each policy and capacity");
  add_timed_flags();
}

void ReplayCommand::add_timed_flags() {
  Flags group = command_.add_group("timed", "Of --mode timed");
  const auto add = [&](const char* name, auto& value, const std::string& text) {
    timed_flags_.push_back(group.add(name, value, text).capture_default_str());
  };
  SchedulerOptions& scheduler = flags_.engine.scheduler;
  add("--timing", flags_.timing,
      "what a step takes: a preset (" + known_timing_presets() + ") or a .json file");
  add("--time-scale", flags_.time_scale, "2: requests arrive half as often as in the trace");
  add("--requests-max", flags_.engine.kv.requests_max, "requests computed at a time, at most");
  add("--step-tokens", scheduler.step_tokens_max, "tokens in one step, at most");
  add("--chunk-tokens", scheduler.chunk_tokens_max, "prompt tokens of a request in one step");
  add("--waiting-max", scheduler.waiting_max, "requests in the queue; more wait outside, in order");
  add("--watermark-pages", scheduler.watermark_pages,
      "pages that admission leaves free; -1: one in a hundred");
  add("--context-tokens", flags_.engine.kv.context_tokens_max,
      "longer requests are refused; 0: 1048576");
  add("--schedule-policy", flags_.schedule_policy,
      "fcfs lpm dfs-weight lof random priority shortest-uncached-first hrrn");
  add("--seed", scheduler.seed, "of the policy random");
  timed_flags_.push_back(
      group.add("--forget-waiting{false}", scheduler.keep_for_waiting,
                "evict what waiting requests will use as readily as everything else"));
  timed_flags_.push_back(group.add(
      "--insert-outputs", flags_.insert_outputs,
      "outputs stay in the cache too, where they take room: no prompt of a trace repeats them"));
  add_tier_flags(group);
}

// Host memory and a disk below the device.
void ReplayCommand::add_tier_flags(Flags& group) {
  const auto add = [&](const char* name, auto& value, const std::string& text) {
    timed_flags_.push_back(group.add(name, value, text).capture_default_str());
  };
  add("--host-pages", flags_.tiers.host_pages,
      "pages of host memory that what is evicted stays in; 0: none");
  add("--disk-pages", flags_.tiers.disk_pages, "pages on a disk below it; 0: none");
  add("--link-gb-s", flags_.tiers.link_gb_s,
      "between device and host memory, each way, in units of 1e9 bytes");
  add("--disk-gb-s", flags_.tiers.disk_gb_s, "to and from the disk, likewise");
  add("--write-policy", flags_.write_policy,
      "when pages go down: write-through as soon as they are computed; write-through-selective "
      "once they were used twice; write-back before they leave the device, with --disk-pages also "
      "once used twice");
  add("--host-policy", flags_.engine.kv.tiers.host_eviction,
      "which page of host memory goes first, as --policy");
}

// What is said of a tier that is not there would have no effect.
Status ReplayCommand::check_tiers_named() const {
  const auto needs = [](const std::string& flag, const char* tier) {
    return Error{ErrorCode::kInvalidArgument, flag + " needs " + tier};
  };
  if (flags_.tiers.host_pages == 0) {
    if (flags_.tiers.disk_pages > 0) return needs("--disk-pages", "--host-pages");
    for (const char* const flag : {"--link-gb-s", "--write-policy", "--host-policy"}) {
      if (command_.count(flag) > 0) return needs(flag, "--host-pages");
    }
  }
  if (flags_.tiers.disk_pages > 0 || command_.count("--disk-gb-s") == 0) return {};
  return needs("--disk-gb-s", "--disk-pages");
}

Status ReplayCommand::check_tiers() const {
  const TimedTierOptions& tiers = flags_.tiers;
  const auto wrong = [](const std::string& why) { return Error{ErrorCode::kInvalidArgument, why}; };
  const std::tuple<const char*, std::int64_t, std::int64_t> counts[] = {
      {"--host-pages", tiers.host_pages, kHostPagesMax},
      {"--disk-pages", tiers.disk_pages, kDiskPagesMax}};
  for (const auto& [flag, pages, most] : counts) {
    if (pages >= 0 && pages <= most) continue;
    return wrong(fmt::format("{} must be from 0 to {} (got {})", flag, most, pages));
  }
  STEMMA_RETURN_IF_ERROR(check_tiers_named());
  const std::string& policy = flags_.engine.kv.tiers.host_eviction;
  STEMMA_RETURN_IF_ERROR(of_flag("--host-policy", EvictionOrder::make(policy, 1)));
  const std::pair<const char*, double> rates[] = {{"--link-gb-s", tiers.link_gb_s},
                                                  {"--disk-gb-s", tiers.disk_gb_s}};
  for (const auto& [flag, rate] : rates) {
    if (rate >= kRateMinGbS && rate <= kRateMaxGbS) continue;
    return wrong(
        fmt::format("{} must be from {} to {} (got {})", flag, kRateMinGbS, kRateMaxGbS, rate));
  }
  return {};
}

Status ReplayCommand::check_flags() const {
  for (const Flag& flag : timed_flags_) {
    if (!flags_.timed() && flag.count() > 0) {
      return Error{ErrorCode::kInvalidArgument, flag.get_name() + " is for --mode timed"};
    }
  }
  if (command_.count("--ghost-rate") > 0) {
    if (flags_.timed()) {
      return Error{ErrorCode::kInvalidArgument, "--ghost-rate is for --mode blocks"};
    }
    STEMMA_RETURN_IF_ERROR(check_ghost_rate(flags_.ghost_rate));
  }
  if (!(flags_.time_scale > 0) || !std::isfinite(flags_.time_scale)) {
    return Error{ErrorCode::kInvalidArgument, "--time-scale must be greater than 0"};
  }
  return check_tiers();
}

Status ReplayCommand::run() {
  STEMMA_RETURN_IF_ERROR(check_flags());
  const MonotonicClock clock;
  const std::int64_t begin_us = clock.now_us();
  std::int64_t skipped_lines = 0;
  STEMMA_RETURN_IF_ERROR(replay(skipped_lines));
  if (!flags_.json) {
    std::cout << fmt::format("\nreplayed in {:.2f} s\n",
                             static_cast<double>(clock.now_us() - begin_us) * 1e-6);
  }
  if (skipped_lines > 0) {
    std::cerr << fmt::format("stemma: {}: {} wrong lines left out\n", flags_.trace(),
                             skipped_lines);
  }
  return {};
}

Status ReplayCommand::replay(std::int64_t& skipped_lines) {
  STEMMA_ASSIGN_OR_RETURN(const TraceSource source, TraceSource::open(flags_.traces));
  STEMMA_ASSIGN_OR_RETURN(ReplayTrace trace, ReplayTrace::open(flags_, source));
  STEMMA_ASSIGN_OR_RETURN(const std::vector<ReplayLane> lanes, make_replay_lanes(flags_, source));
  if (flags_.timed()) {
    STEMMA_RETURN_IF_ERROR(check_timed_lanes(flags_, lanes, trace.page_tokens()));
  }
  // Last: neither a trace that cannot be read nor a wrong flag is a reason to write files.
  STEMMA_ASSIGN_OR_RETURN(ReplayOutput output, ReplayOutput::open(flags_));
  if (flags_.timed()) {
    STEMMA_ASSIGN_OR_RETURN(skipped_lines, run_timed_replays(flags_, lanes, source, trace, output));
  } else {
    PagesReplay pages(flags_, output);
    STEMMA_RETURN_IF_ERROR(pages.run(lanes, trace));
    skipped_lines = trace.skipped_lines();
  }
  return output.finish();
}

}  // namespace stemma
