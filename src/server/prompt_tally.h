// PromptTally: the prompts whose answers have begun: where their tokens came from, and how long
// their clients waited.
//
// Thread:     one thread.
// Memory:     some 200 bytes.
// Cost:       some additions a prompt.
// Not here:   answers that have ended (answer_tally).
#pragma once

#include <cstdint>

#include "server/step_histogram.h"
#include "stemma/request.h"

namespace stemma {

struct PromptTally {
  std::int64_t tokens = 0;
  std::int64_t device_tokens = 0;
  BroughtTokens brought;              // by lower tiers
  StepHistogram ttft{kLatencySteps};  // from submit to the first token

  std::int64_t cached_tokens() const { return device_tokens + brought.total(); }

  // A prompt has been computed: the first token of the first answer to it has come.
  void note(const RequestStats& stats) {
    tokens += stats.prompt_tokens;
    device_tokens += stats.cached_tokens - stats.brought.total();
    brought += stats.brought;
    ttft.add(stats.ttft_us);
  }
};

}  // namespace stemma
