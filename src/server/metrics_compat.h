// MetricsCompat: the names under which dashboards made for vLLM and SGLang look for what Stemma
// counts under its own.
//
// Hits and misses are of tokens, as theirs are. What they count and Stemma has not is left out: a
// panel without numbers says so, a panel of zeros does not.
//
// Thread:     pure functions.
// Memory:     the text.
// Cost:       some 350 lines a scrape.
// Not here:   Stemma's own names (visit_metrics of each component, answer_tally).
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "server/answer_tally.h"
#include "server/metrics_text.h"
#include "server/prompt_tally.h"

namespace stemma {

// Whose names are written beside Stemma's own.
struct MetricsCompat {
  bool vllm = false;
  bool sglang = false;
};

// What such names are made of.
struct MetricsSource {
  const MetricValues& values;
  const AnswerTally& answers;
  std::string_view model_name;
  double output_tokens_per_second = 0;  // of late
  // Since the start, of answers that go on too.
  std::int64_t generated_tokens = 0;
  PromptTally prompts = {};
  // What is computed with adapters now; absent: there are none.
  struct Adapters {
    std::size_t loaded = 0;
    std::set<std::string> running = {};  // names
    std::set<std::string> waiting = {};
    double seconds = 0;  // since 1970, when that was so
  };
  std::optional<Adapters> adapters = std::nullopt;
};

// vllm:num_requests_running{model_name="…",engine="0"} and its like.
void write_vllm_metrics(const MetricsSource& source, MetricsText& text);

// sglang:num_running_reqs{model_name="…"} and its like.
void write_sglang_metrics(const MetricsSource& source, MetricsText& text);

}  // namespace stemma
