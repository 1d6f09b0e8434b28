// Planning a step while the one before it is computed.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sched/scheduler.h"

namespace stemma {
namespace {

// Tokens that have KV once the step that is being computed is complete.
std::int64_t tokens_after_step(const Request& request) {
  return request.computed_tokens + request.scheduled_tokens;
}

// Whether the step that is being computed gives the last output.
bool ends_with_step(const Request& request) {
  return tokens_after_step(request) == request.total_tokens() &&
         request.generated_tokens() + 1 >= request.output_tokens_max;
}

}  // namespace

void Scheduler::allow_ahead() {
  if (ahead_ == nullptr) ahead_ = std::make_unique<BatchBuilder>(kv_, options_);
}

bool Scheduler::plan_ahead() {
  if (ahead_ == nullptr) return false;
  kv_.keep_free(in_flight());
  if (!decides_nothing()) return false;
  ahead_->clear(step_tokens());
  if (!add_all_ahead()) drop_ahead();
  return !ahead_->empty();
}

void Scheduler::forget_held_back() {
  held_back_.reset();
  waits_for_prefix_ = false;
  waits_for_tier_.clear();
}

void Scheduler::hold_back(Request& request, Admission why) {
  held_back_ = why;
  if (why == Admission::kWaitingForPrefix) waits_for_prefix_ = true;
  if (why == Admission::kWaitingForTier) waits_for_tier_.push_back(&request);
}

// Nobody can be admitted who could not be a step ago, and nobody is to be forked off, rests, or has
// pages on their way or asks for some.
bool Scheduler::decides_nothing() const {
  if (!waiting_.empty() && (queue_changed_ || ended_since_plan_ || may_admit())) return false;
  return std::none_of(in_flight_.begin(), in_flight_.end(), [this](const Request* request) {
    return request->forks_waiting > 0 || request->rests || request->promotion.valid() ||
           builder_->may_look_below(*request);
  });
}

// Whether somebody who waits may be let in though nobody has come or ended. Who waits for a prompt
// that others compute may be after every step; who waits for pages from below, once he has waited
// for long enough, or after a prompt was computed, which may be what he waits for. Where layers
// have a window, a prompt that is computed leaves pages of these to who waits for pages.
bool Scheduler::may_admit() const {
  const bool full = held_back_ == Admission::kNoPages || held_back_ == Admission::kNoRow;
  if (waits_for_prefix_) return true;
  const bool windowed = kv_.options().window_tokens > 0;
  if (windowed && prompt_since_plan_ && held_back_ == Admission::kNoPages) return true;
  if (waits_for_tier_.empty()) return !full;
  const bool prompts = std::any_of(in_flight_.begin(), in_flight_.end(), [](const Request* other) {
    return other->state() == RequestState::kPrefilling;
  });
  const bool waits_no_more =
      std::any_of(waits_for_tier_.begin(), waits_for_tier_.end(),
                  [this](const Request* request) { return builder_->may_wait_no_more(*request); });
  return prompts || waits_no_more || !(full || held_back_ == Admission::kWaitingForTier);
}

// Outputs first, as plan_step. Who is in flight and not in the step waits for pages or budget,
// which plan_step gives.
bool Scheduler::add_all_ahead() {
  for (Request* request : in_flight_) {
    if (request->scheduled_tokens == 0) return false;
    if (tokens_after_step(*request) < request->total_tokens() || ends_with_step(*request)) continue;
    if (!ahead_->try_add_ahead(*request, 1)) return false;
  }
  for (Request* request : in_flight_) {
    if (tokens_after_step(*request) == request->total_tokens()) continue;
    if (!ahead_->try_add_ahead(*request, chunk_limit(*request))) return false;
  }
  return true;
}

// What was reserved stays: the next step has a use for it.
void Scheduler::drop_ahead() {
  for (Request* request : ahead_->scheduled()) request->ahead_tokens = 0;
  ahead_->clear(options_.step_tokens_max);
}

void Scheduler::enter_ahead() {
  std::swap(builder_, ahead_);
  for (Request* request : builder_->scheduled()) {
    if (request != nullptr) request->scheduled_tokens = std::exchange(request->ahead_tokens, 0);
  }
  ahead_->clear(options_.step_tokens_max);
}

}  // namespace stemma
