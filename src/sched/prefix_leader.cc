#include "sched/prefix_leader.h"

#include <algorithm>

#include "base/math.h"

namespace stemma {
namespace {

// Of what `leader` computes before it rests, if it does: its last token comes who knows when.
std::int64_t soon_tokens(const Request& leader) {
  return leader.total_tokens() - (leader.rests ? 1 : 0);
}

// Whether pages of `other` come as fast as they can be computed. Those of a prompt that is scored
// come by a few tokens a step, and by none where others that are scored come first.
bool leads(const Request& other) {
  return other.state() == RequestState::kPrefilling && other.sequence.publishes() &&
         other.scored_tokens >= other.scorable_tokens();
}

// Whether the leader that `waiting` remembers is still at work on what it waits for.
bool still_waits(const KvCache& kv, const Request& waiting) {
  if (!waiting.leader.valid()) return false;
  const Request& other = *waiting.leader_place;
  if (other.id != waiting.leader || !leads(other)) return false;
  const std::int64_t comes = round_down(soon_tokens(other), kv.page_size());
  return other.sequence.published_tokens() < std::min(waiting.leader_tokens, comes);
}

}  // namespace

std::int64_t shared_tokens(const KvCache& kv, const Request& waiting, const Request& leader,
                           std::int64_t matched) {
  const std::int64_t page_size = kv.page_size();
  const std::int64_t findable = std::ssize(waiting.findable()) - 1;
  const std::int64_t tokens =
      kv.common_tokens(waiting.ns, leader.ns, std::min(findable, soon_tokens(leader)));
  if (tokens < matched + page_size) return 0;
  const auto first = waiting.tokens.begin();
  const auto other = leader.tokens.begin();
  // The page that is missing differs for nearly all pairs; look there first.
  if (!std::equal(first + matched, first + matched + page_size, other + matched)) {
    return 0;
  }
  const std::int64_t common = std::mismatch(first, first + tokens, other).first - first;
  const std::int64_t shared = round_down(common, page_size);
  return shared > matched ? shared : 0;
}

std::int64_t matched_tokens(const KvCache& kv, Request& request) {
  request.probe.look(kv, request.ns, request.findable());
  return request.probe.device_tokens();
}

std::int64_t reachable_tokens(KvCache& kv, Request& request) {
  const std::int64_t matched = matched_tokens(kv, request);
  if (request.stored_tokens < 0) {
    request.stored_tokens = kv.probe_stores(request.ns, request.findable());
  }
  return std::max({matched, request.probe.host_tokens(), request.stored_tokens});
}

void forget_idle_leader(const KvCache& kv, Request& waiting) {
  if (still_waits(kv, waiting)) return;
  waiting.leader = RequestId();
  waiting.leader_tokens = 0;
}

bool waits_for_prefix(const KvCache& kv, Request& waiting, std::span<Request* const> in_flight) {
  if (!kv.shares()) {
    return false;
  }
  forget_idle_leader(kv, waiting);
  if (waiting.leader.valid()) return true;
  const std::int64_t matched = matched_tokens(kv, waiting);
  for (const Request* leader : in_flight) {
    if (!leads(*leader)) continue;
    const std::int64_t shared = shared_tokens(kv, waiting, *leader, matched);
    // What is published and not matched is not found for want of windowed pages: none will come.
    if (shared > waiting.leader_tokens && shared > leader->sequence.published_tokens()) {
      waiting.leader = leader->id;
      waiting.leader_place = leader;
      waiting.leader_tokens = shared;
    }
  }
  return waiting.leader.valid();
}

}  // namespace stemma
