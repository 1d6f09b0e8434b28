// AnswerTally: what answers cost and what the cache did for them, added up since the server began.
//
// Thread:     the I/O thread.
// Memory:     a few hundred bytes.
// Cost:       some additions an answer.
// Not here:   the engine's own totals (EngineTotals), names for dashboards (metrics_text, _compat).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "server/latency_histogram.h"
#include "server/metrics_text.h"
#include "stemma/request_stats.h"

namespace stemma {

struct AnswerTally {
  LatencyHistogram ttft;     // from submit to the first token, of answers that had one
  LatencyHistogram queue;    // from submit to the first step
  LatencyHistogram request;  // from the whole request read to the whole answer written

  // Prompt tokens by where they came from.
  std::int64_t prompt_tokens = 0;
  std::int64_t device_tokens = 0;
  BroughtTokens brought;
  std::int64_t computed_tokens = 0;

  std::array<std::int64_t, kPrefixStops> stops = {};          // by PrefixStop
  std::map<std::string, std::int64_t, std::less<>> outcomes;  // by "stop", "length", ...

  // An answer has ended, `us` after its request was read.
  void note(const RequestStats& stats, std::string_view outcome, std::int64_t us);

  // stemma_ttft_seconds, stemma_hit_tokens_total and their like.
  void write(MetricsText& text) const;
};

}  // namespace stemma
