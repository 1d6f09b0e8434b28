// What requests ask of the tiers below the device.
#include <algorithm>
#include <utility>

#include "sched/scheduler.h"

namespace stemma {
namespace {

// Waiting requests whose texts are brought from page stores to host memory before their turn.
constexpr std::size_t kPrefetchedAhead = 8;

// How often one request asks, at most.
constexpr std::int32_t kLooksMax = 4;

}  // namespace

// In the order in which they will run.
void Scheduler::prefetch_waiting() {
  const std::span<Request* const> waiting = waiting_.requests();
  for (Request* const next : waiting.first(std::min(waiting.size(), kPrefetchedAhead))) {
    Request& request = *next;
    if (request.prefetched || request.looked_below) continue;
    request.prefetched = kv_.try_prefetch(request.ns, request.findable());
    if (!request.prefetched) return;
  }
}

// Many that begin alike take part in bringing one of them up, and each has a rest of its own; what
// was given up for others' needs is asked for again in its turn.
void Scheduler::look_again(Request& request) {
  if (!request.promotion.valid() || kv_.worth_waiting(request.promotion)) return;
  if (request.looks >= kLooksMax ||
      !kv_.may_bring_more(request.promotion, request.ns, request.findable())) {
    return let_ended_promotion_go(request);
  }
  let_promotion_go(request);
  request.looked_below = false;
  request.asked_us = -1;
}

// The same of those that compute their prompts: what all share has come, say, and what goes on from
// it was begun for them and left. Before their next chunk they look again.
void Scheduler::look_again_in_flight() {
  for (Request* const next : in_flight_) {
    Request& request = *next;
    const bool waits = request.state() == RequestState::kPrefilling && request.promotion.valid();
    if (!waits || request.sequence.on_loan() || !has_ended(request.promotion)) continue;
    if (request.looks >= kLooksMax ||
        !kv_.may_bring_more(request.promotion, request.ns, request.findable())) {
      continue;
    }
    let_promotion_go(request);
    request.looked_below = false;
    request.asked_us = -1;
  }
}

// Others have a use for its place. REQUIRES: what it brought is taken in, or will be found.
void Scheduler::let_ended_promotion_go(Request& request) {
  if (!request.promotion.valid() || request.sequence.on_loan()) return;
  if (has_ended(request.promotion)) let_promotion_go(request);
}

bool Scheduler::has_ended(PromotionId promotion) const {
  return !kv_.promotion_outcome(promotion).unfinished && kv_.promotion_pages(promotion) == 0;
}

void Scheduler::let_promotion_go(Request& request) {
  if (!request.promotion.valid()) return;
  const PromotionOutcome outcome = kv_.promotion_outcome(request.promotion);
  request.promoted.tokens += outcome.tokens;
  request.promoted.us += outcome.us;
  request.promoted.lost_pages |= outcome.lost_pages;
  request.promoted.unfinished |= outcome.unfinished;
  kv_.release_promotion(std::exchange(request.promotion, PromotionId()),
                        request.in_flight() ? PromotionUse::kComputing : PromotionUse::kWaiting);
}

}  // namespace stemma
