#include "cli/replay_lanes.h"

#include <algorithm>
#include <charconv>

#include "base/math.h"
#include "cli/replay_trace.h"
#include "replay/replayer.h"

namespace stemma {

namespace {

// Of a request, none shared; with its output where that is known, or in the mode that makes it,
// which lets nobody in without room for one, and those who are too long not at all.
std::int64_t pages_of(const TraceRequest& request, const ReplayFlags& flags,
                      std::int64_t page_tokens) {
  if (!flags.timed()) {
    return std::ssize(request.page_hashes) + std::ssize(request.output_page_hashes);
  }
  const std::int64_t tokens =
      request.input_tokens + std::max<std::int64_t>(request.output_tokens, 1);
  return tokens > flags.context_tokens() ? 0 : ceil_div(tokens, page_tokens);
}

// Pages that hold all requests.
Result<std::int64_t> count_pages(const ReplayFlags& flags, const TraceSource& source) {
  STEMMA_RETURN_IF_ERROR(source.check_rereadable());
  STEMMA_ASSIGN_OR_RETURN(ReplayTrace trace, ReplayTrace::open(flags, source));
  TraceRequest request;
  std::int64_t pages = 0;
  for (;;) {
    STEMMA_ASSIGN_OR_RETURN(const bool more, trace.next(request));
    if (!more) break;
    pages += pages_of(request, flags, trace.page_tokens());
  }
  if (pages <= Replayer::kCapacityPagesMax) return std::max<std::int64_t>(pages, 1);
  return Error{ErrorCode::kTooLarge,
               "--capacity-pages: the trace needs " + std::to_string(pages) +
                   " pages where it is 'unlimited', and a cache holds at most " +
                   std::to_string(Replayer::kCapacityPagesMax)};
}

Result<std::int64_t> parse_capacity(const std::string& text) {
  std::int64_t pages = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pages);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Error{ErrorCode::kInvalidArgument,
                 "--capacity-pages wants numbers of pages or 'unlimited' (got '" + text + "')"};
  }
  STEMMA_RETURN_IF_ERROR(Replayer::check_capacity(pages));
  return pages;
}

// That the policy is one of the mode's, before a long replay comes to it.
Status check_policy(const ReplayFlags& flags, const std::string& policy) {
  if (!try_parse_oracle(policy).has_value()) {
    const auto opened = Replayer::open({.policy = policy, .capacity_pages = 1});
    return opened.ok() ? Status() : Status(opened.error());
  }
  if (!flags.timed()) return {};
  return Error{ErrorCode::kInvalidArgument,
               "--policy: " + policy + " knows the trace: it is a bound for --mode blocks"};
}

}  // namespace

std::string ReplayLane::capacity_text() const {
  return unlimited ? "unlimited" : std::to_string(capacity_pages);
}

std::string ReplayLane::title() const {
  return policy + ", " + capacity_text() + (unlimited ? "" : " pages");
}

Result<std::vector<ReplayLane>> make_replay_lanes(const ReplayFlags& flags,
                                                  const TraceSource& source) {
  std::vector<ReplayLane> lanes;
  std::optional<std::int64_t> pages_in_trace;  // once it is asked for
  for (const std::string& policy : flags.policies) {
    STEMMA_RETURN_IF_ERROR(check_policy(flags, policy));
    for (const std::string& capacity : flags.capacities) {
      ReplayLane lane = {.policy = policy, .oracle = try_parse_oracle(policy)};
      lane.unlimited = capacity == "unlimited";
      if (lane.unlimited) {
        if (!pages_in_trace.has_value()) {
          STEMMA_ASSIGN_OR_RETURN(pages_in_trace, count_pages(flags, source));
        }
        lane.capacity_pages = *pages_in_trace;
      } else {
        STEMMA_ASSIGN_OR_RETURN(lane.capacity_pages, parse_capacity(capacity));
      }
      lanes.push_back(std::move(lane));
    }
  }
  return lanes;
}

}  // namespace stemma
