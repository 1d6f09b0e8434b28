// What a timed replay reports: of each request, of each minute, of everything.
//
// Thread:     values.
// Memory:     a RequestReport a few words; a TimedPeriod 90 KiB, nearly all of it histograms.
// Cost:       none.
// Not here:   how they come about (timed_replay), how they are printed (replay_json).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "replay/latency_histogram.h"

namespace stemma {

// Prompt tokens that were found, by the tier in which they lay.
struct TierTokens {
  std::int64_t device = 0;
  std::int64_t host = 0;
  std::int64_t disk = 0;

  std::int64_t total() const noexcept { return device + host + disk; }
  TierTokens& operator+=(const TierTokens& other) noexcept {
    device += other.device;
    host += other.host;
    disk += other.disk;
    return *this;
  }
};

enum class RequestOutcome : std::uint8_t {
  kFinished,
  kNoPrompt,        // refused: it has no token to compute
  kExceedsContext,  // refused: prompt and output are longer than context_tokens_max
  kExceedsPool,     // refused: alone it would need more pages than there are
};

inline constexpr RequestOutcome kRefusals[] = {
    RequestOutcome::kNoPrompt, RequestOutcome::kExceedsContext, RequestOutcome::kExceedsPool};

// "finished", "no_prompt", "exceeds_context", "exceeds_pool".
std::string_view request_outcome_name(RequestOutcome outcome);

// One request from its arrival to its end. Times count from the trace's first arrival.
struct RequestReport {
  std::int64_t index = 0;  // 0, 1, 2, … in the trace
  RequestOutcome outcome = RequestOutcome::kFinished;
  std::int64_t lookup_pages = 0;
  std::int64_t input_tokens = 0;
  TierTokens hit_tokens = {};
  std::int64_t computed_tokens = 0;    // of the prompt: hit and computed are all of it
  std::int64_t recomputed_tokens = 0;  // prompt and output once more, after a preemption
  std::int64_t output_tokens = 0;
  std::int64_t preemptions = 0;
  std::int64_t arrival_us = 0;
  std::int64_t started_us = -1;      // its first step began; -1 where there was none
  std::int64_t first_token_us = -1;  // its prompt was computed
  std::int64_t ended_us = 0;
  double saved_ms = 0;  // what computing its hits would have taken

  std::int64_t queue_us() const noexcept { return started_us - arrival_us; }
  std::int64_t ttft_us() const noexcept { return first_token_us - arrival_us; }
  // Between two output tokens, on average. REQUIRES: output_tokens >= 2.
  std::int64_t time_per_token_us() const noexcept {
    return (ended_us - first_token_us) / (output_tokens - 1);
  }
};

// What happened from one time to another: in a minute, or in the whole replay. A request counts as
// a look-up when its first step ends; what a step did counts when it ends.
struct TimedPeriod {
  std::int64_t minute = 0;  // since the first arrival
  std::int64_t arrived_requests = 0;
  std::int64_t held_requests = 0;  // of them, those that had to wait outside the full queue
  std::int64_t finished_requests = 0;
  std::array<std::int64_t, std::size(kRefusals)> refused_requests = {};  // in that order
  std::int64_t lookup_pages = 0;
  std::int64_t input_tokens = 0;
  TierTokens hit_tokens = {};
  std::int64_t computed_tokens = 0;
  std::int64_t recomputed_tokens = 0;
  std::int64_t output_tokens = 0;
  std::int64_t evicted_pages = 0;
  std::int64_t preemptions = 0;
  std::int64_t steps = 0;
  std::int64_t busy_us = 0;  // of all steps
  // In the queue, at the begin of a step, those it admitted not counted; of those that a full queue
  // keeps outside the first alone: the trace is not read further (held_requests; queue has their
  // times).
  double waiting_request_us = 0;  // requests x time: may be more than 64 bits hold
  std::int64_t waiting_requests_max = 0;
  std::int64_t in_flight_requests_max = 0;  // that shared a step or held pages during it
  double saved_ms = 0;
  LatencyHistogram ttft;            // of first tokens
  LatencyHistogram time_per_token;  // of requests that ended with two tokens or more
  LatencyHistogram queue;           // of requests that started
};

}  // namespace stemma
