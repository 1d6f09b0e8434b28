#include "cli/inspect_command.h"

#include <fmt/format.h>

#include <cmath>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/disk_listing.h"
#include "cli/flag_errors.h"
#include "cli/ghost_rate.h"
#include "cli/sizes.h"
#include "ghost/ghost_advice.h"
#include "ghost/ghost_curve.h"
#include "prefix/eviction_order.h"
#include "replay/ghost_feed.h"

namespace stemma {

namespace {

RoomChange room_now(const InspectFlags& flags, std::int64_t page_bytes) {
  return {.tier = "device", .capacity_pages = flags.capacity_pages, .page_bytes = page_bytes};
}

Status check_capacity(std::int64_t capacity_pages) {
  constexpr std::int64_t kMost = GhostCurve::kCapacityPagesMax / kTimesWatched;
  if (capacity_pages >= 1 && capacity_pages <= kMost) return {};
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("--capacity-pages must be from 1 to {} (got {})", kMost, capacity_pages)};
}

}  // namespace

InspectCommand::InspectCommand(Flags& program)
    : command_(program.add_command(
          "inspect",
          "What lies in a disk tier's directory; or what more room, less room or another policy "
          "would be worth on a trace")) {
  command_.add("directory", flags_.directory, "of a disk tier, in place of a trace");
  add_trace_flags(command_, flags_.traces).required(false);
  command_.add("--capacity-pages", flags_.capacity_pages, "pages the cache holds now");
  command_.add("--page-bytes", flags_.page_bytes,
               "bytes of K and V that a page of the trace has, such as 2MiB");
  command_.add("--policy", flags_.policy, "its eviction order now").capture_default_str();
  command_
      .add("--other-policies", flags_.other_policies,
           "eviction orders to compare; several with commas")
      .delimiter(',')
      .capture_default_str();
  command_.add("--ghost-rate", flags_.ghost_rate, "share of page uses that is watched; 1 is exact")
      .capture_default_str();
  command_.add("--json", flags_.json, "one JSON object");
}

Status InspectCommand::check_flags() {
  for (const char* const needed : {"--trace", "--capacity-pages", "--page-bytes"}) {
    if (command_.count(needed) > 0) continue;
    return Error{ErrorCode::kInvalidArgument,
                 std::string(needed) + " is required where no directory is named"};
  }
  STEMMA_RETURN_IF_ERROR(check_capacity(flags_.capacity_pages));
  STEMMA_RETURN_IF_ERROR(of_flag("--policy", EvictionOrder::make(flags_.policy)));
  for (const std::string& policy : flags_.other_policies) {
    STEMMA_RETURN_IF_ERROR(of_flag("--other-policies", EvictionOrder::make(policy)));
  }
  STEMMA_ASSIGN_OR_RETURN(page_bytes_, parse_bytes(flags_.page_bytes, "--page-bytes"));
  if (page_bytes_ < 1) {
    return Error{ErrorCode::kInvalidArgument, "--page-bytes must be at least 1"};
  }
  const std::int64_t watched_pages = kTimesWatched * flags_.capacity_pages;
  if (page_bytes_ > std::numeric_limits<std::int64_t>::max() / watched_pages) {
    return Error{ErrorCode::kInvalidArgument,
                 "--page-bytes: " + std::to_string(watched_pages) +
                     " pages, as many as are watched, would have more than 2^63 bytes"};
  }
  return check_ghost_rate(flags_.ghost_rate);
}

// Of a directory there is nothing to say but what lies in it.
Status InspectCommand::list_directory() const {
  for (const char* const other :
       {"--trace", "--format", "--page-tokens", "--tokenizer", "--reorder-requests", "--skip-bad",
        "--capacity-pages", "--page-bytes", "--policy", "--other-policies", "--ghost-rate"}) {
    if (command_.count(other) == 0) continue;
    return Error{ErrorCode::kInvalidArgument,
                 std::string(other) + " is for a trace, and a directory is named"};
  }
  return print_disk_listing(flags_.directory, flags_.json);
}

Status InspectCommand::run() {
  if (!flags_.directory.empty()) return list_directory();
  STEMMA_RETURN_IF_ERROR(check_flags());
  GhostPanelOptions options;
  options.curve.capacity_pages_max = kTimesWatched * flags_.capacity_pages;
  options.curve.pages_per_sample = pages_per_sample_of(flags_.ghost_rate);
  options.policies = flags_.other_policies;
  options.policies.push_back(flags_.policy);
  options.capacities = {flags_.capacity_pages};
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<GhostPanel> ghosts, open_ghost_panel(options));
  std::int64_t skipped_lines = 0;
  STEMMA_RETURN_IF_ERROR(watch(*ghosts, skipped_lines));
  if (flags_.json) {
    print_json(*ghosts);
  } else {
    print(*ghosts);
  }
  if (skipped_lines > 0) {
    std::cerr << fmt::format("stemma: {} wrong lines left out\n", skipped_lines);
  }
  return {};
}

Status InspectCommand::watch(GhostPanel& ghosts, std::int64_t& skipped_lines) {
  STEMMA_ASSIGN_OR_RETURN(const TraceSource source, TraceSource::open(flags_.traces));
  STEMMA_ASSIGN_OR_RETURN(TraceMerge reader, source.read());
  TraceRequest request;
  for (;; ++requests_) {
    STEMMA_ASSIGN_OR_RETURN(const bool more, reader.next(request));
    if (!more) break;
    ghosts.feed(ghost_request_of(request));
  }
  skipped_lines = reader.skipped_lines();
  if (requests_ > 0) return {};
  return Error{ErrorCode::kInvalidArgument, flags_.traces.traces.front() + ": holds no requests"};
}

void InspectCommand::print(const GhostPanel& ghosts) const {
  const double now = ghosts.try_hit_rate(flags_.policy, flags_.capacity_pages).value_or(0);
  std::cout << fmt::format("{} requests, {} pages of {}, {}: {:.1f}% of pages hit\n", requests_,
                           flags_.capacity_pages, format_bytes(page_bytes_), flags_.policy,
                           100 * now);
  for (const RoomChange& change : advised_room_changes(room_now(flags_, page_bytes_))) {
    std::cout << describe_room_change(ghosts.curve(), change)
              << (flags_.policy == "lru" ? "\n" : " with lru\n");
  }
  for (const std::string& policy : flags_.other_policies) {
    const auto then = ghosts.try_hit_rate(policy, flags_.capacity_pages);
    if (then.has_value()) std::cout << describe_policy_change(policy, now, *then) << '\n';
  }
}

void InspectCommand::print_json(const GhostPanel& ghosts) const {
  nlohmann::ordered_json out;
  out["requests"] = requests_;
  out["lookup_pages"] = std::llround(ghosts.curve().lookup_pages());
  out["policy"] = flags_.policy;
  out["capacity_pages"] = flags_.capacity_pages;
  out["hit_rate"] = ghosts.try_hit_rate(flags_.policy, flags_.capacity_pages).value_or(0);
  out["lru"] = nlohmann::ordered_json::array();
  for (const RoomChange& change : advised_room_changes(room_now(flags_, page_bytes_))) {
    const std::int64_t pages = flags_.capacity_pages + change.extra_bytes / page_bytes_;
    out["lru"].push_back({{"capacity_pages", pages}, {"hit_rate", ghosts.curve().hit_rate(pages)}});
  }
  out["policies"] = nlohmann::ordered_json::object();
  for (const std::string& policy : flags_.other_policies) {
    const auto then = ghosts.try_hit_rate(policy, flags_.capacity_pages);
    if (then.has_value()) out["policies"][policy] = *then;
  }
  std::cout << out.dump() << '\n';
}

}  // namespace stemma
