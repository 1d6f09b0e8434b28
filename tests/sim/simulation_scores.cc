// What the simulation asks of prompts themselves: logprobs of their tokens, which nothing that is
// cached, moved or preempted may change, leave out or say twice.
#include <fmt/format.h>

#include "simulation.h"

namespace stemma {

void Simulation::draw_scores(RequestSpec& spec, Asked& asked) {
  if (scores_prng_.below(6) != 0) return;
  spec.prompt_logprobs = 1;
  asked.scores.wanted = true;
  if (scores_prng_.below(2) == 0) {
    spec.prompt_logprobs_from = 1 + scores_prng_.below(std::ssize(spec.prompt));
    asked.scores.told = static_cast<std::size_t>(spec.prompt_logprobs_from) - 1;
  }
  ++tally_["sim_scored_prompts"];
}

// Two entries a token: its own, and that of the likeliest, which the model has in closed form.
void Simulation::take_scores(const EngineEvent& event, Asked& asked) {
  const std::int64_t request = event.request.value();
  if (!asked.got.empty()) return fail(fmt::format("request {}: scores come late", request));
  for (std::size_t entry = 0; entry < event.prompt_logprobs.size(); entry += 2) {
    const std::size_t at = ++asked.scores.told;
    if (!asked.scores.wanted || at >= asked.prompt.size()) {
      return fail(fmt::format("request {}: prompt token {} is scored", request, at));
    }
    const TokenId likeliest = stamp_output(std::span(asked.prompt).first(at), 1).front();
    if (event.prompt_logprobs[entry].token != asked.prompt[at] ||
        event.prompt_logprobs[entry + 1].token != likeliest) {
      return fail(fmt::format("request {}: the scores of prompt token {} are of another text",
                              request, at));
    }
  }
}

void Simulation::check_scored(RequestId request, const Asked& asked) {
  const std::size_t wanted = asked.scores.wanted ? asked.prompt.size() - 1 : 0;
  if (asked.scores.told == wanted) return;
  fail(fmt::format("request {}: {} of {} prompt tokens were scored", request.value(),
                   asked.scores.told, wanted));
}

}  // namespace stemma
