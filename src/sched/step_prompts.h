// StepPrompts: what a step computes of prompts, for who learns from it what computing costs.
//
// Thread:     values.
// Memory:     none.
// Cost:       O(requests of the step).
// Not here:   what is learned (cache/load_costs).
#pragma once

#include <cstdint>
#include <span>

#include "sched/request.h"

namespace stemma {

struct StepPrompts {
  std::int64_t tokens = 0;         // of the whole step, outputs included
  std::int64_t prompt_tokens = 0;  // of prompts
  std::int64_t first_tokens = 0;   // of each of these, where its request's part begins; added up

  // Whether there are so many, and they are half of the step: of others little could be learned.
  // REQUIRES: prompt_tokens_min >= 1.
  bool tell(std::int64_t prompt_tokens_min) const noexcept {
    return prompt_tokens >= prompt_tokens_min && 2 * prompt_tokens >= tokens;
  }
  // Where they begin in their texts, on average. REQUIRES: prompt_tokens > 0.
  std::int64_t first_token() const noexcept { return first_tokens / prompt_tokens; }
};

// Of the requests of a step before it is complete (Scheduler::complete_step); nullptr is nobody.
inline StepPrompts prompts_of(std::span<Request* const> scheduled) {
  StepPrompts step;
  for (const Request* request : scheduled) {
    if (request == nullptr) continue;
    step.tokens += request->scheduled_tokens;
    if (request->state() != RequestState::kPrefilling) continue;
    step.prompt_tokens += request->scheduled_tokens;
    step.first_tokens += request->scheduled_tokens * request->computed_tokens;
  }
  return step;
}

}  // namespace stemma
