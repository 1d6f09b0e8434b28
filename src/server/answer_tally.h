// AnswerTally: what answers cost and what the cache did for them, added up since the server began.
//
// Thread:     the I/O thread.
// Memory:     two kilobytes.
// Cost:       some additions an answer.
// Not here:   the engine's own totals (EngineTotals), names for dashboards (metrics_text, _compat).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "server/metrics_text.h"
#include "server/step_histogram.h"
#include "stemma/request.h"

namespace stemma {

// One answer of those to a prompt.
struct GeneratedText {
  bool ended = false;  // by a stop or at its length: the others are not counted
  std::int64_t tokens = 0;
  std::int64_t decode_us = 0;  // from its first token to its end
};

struct AnswerTally {
  // Of exchanges, whatever they ask for.
  StepHistogram ttft{kLatencySteps};     // from submit to the first token, of those that had one
  StepHistogram queue{kLatencySteps};    // from submit to the first step
  StepHistogram request{kLatencySteps};  // from the request read to the whole answer written

  // Of prompts that were answered.
  StepHistogram prefill{kLatencySteps};         // from the first step to the first token
  StepHistogram prompt_lengths{kLengthSteps};   // tokens
  StepHistogram longest_lengths{kLengthSteps};  // tokens of the longest of its answers

  // Of each answer to them.
  StepHistogram decode{kLatencySteps};         // from the first token to the end
  StepHistogram answer_lengths{kLengthSteps};  // tokens
  // From each token to the next one, every one taken as long as its answer's were on average.
  StepHistogram output_token{kTokenTimeSteps};

  // Prompt tokens by where they came from.
  std::int64_t prompt_tokens = 0;
  std::int64_t device_tokens = 0;
  BroughtTokens brought;
  std::int64_t computed_tokens = 0;

  std::array<std::int64_t, kPrefixStops> stops = {};  // by PrefixStop
  // Those that there are from the start: of a counter that begins at 1 no rate shows the first.
  std::map<std::string, std::int64_t, std::less<>> outcomes = {
      {"stop", 0}, {"length", 0}, {"cancelled", 0}, {"cut_off", 0}, {"failed", 0}};

  // An answer has ended, `us` after its request was read.
  void note(const RequestStats& stats, std::string_view outcome, std::int64_t us);
  // What became of one of its prompts, as the first of its answers found it.
  void note_prompt(const RequestStats& prompt, std::span<const GeneratedText> answers);

  // How many answers ended so.
  std::int64_t answers(std::string_view outcome) const;
  // How many were given up, by their clients or by the server.
  std::int64_t given_up() const { return answers("cancelled") + answers("cut_off"); }

  // stemma_ttft_seconds, stemma_hit_tokens_total and their like.
  void write(MetricsText& text) const;
};

}  // namespace stemma
