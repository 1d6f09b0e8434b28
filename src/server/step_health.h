// StepHealth: whether an engine still computes anything. Where each step fails, as on a GPU that
// was lost, requests end with an error at once: a server that called itself well would draw all
// traffic.
//
//   a step fails three times in a row ──► failing for half a minute ──► asked again; fails ──► …
//
// Nobody may send requests to a server that says so, and it could never show that it is well again:
// so it says so for a while, like a breaker.
//
// Thread:     note on one; is_failing from any.
// Memory:     a few words.
// Cost:       none of note.
// Not here:   whether a step ever ends.
#pragma once

#include <atomic>
#include <cstdint>

#include "stemma/log.h"

namespace stemma {

class StepHealth {
 public:
  static constexpr std::int64_t kFailuresMax = 3;
  static constexpr std::int64_t kPauseUs = 30'000'000;

  // How many steps there were by now, and how many of them failed.
  void note(std::int64_t steps, std::int64_t failed_steps, std::int64_t now_us) {
    const std::int64_t failed = failed_steps - failed_steps_;
    if (failed < steps - steps_) in_a_row_ = 0;
    steps_ = steps;
    failed_steps_ = failed_steps;
    if (failed == 0) {
      if (in_a_row_ == 0) failing_until_us_ = INT64_MIN;
      return;
    }
    const bool was_well = in_a_row_ < kFailuresMax;
    in_a_row_ += failed;
    if (in_a_row_ < kFailuresMax) return;
    failing_until_us_ = now_us + kPauseUs;
    if (was_well) STEMMA_LOG(kError, "server.failing", kv("failed_steps", failed_steps));
  }

  bool is_failing(std::int64_t now_us) const { return now_us < failing_until_us_; }

 private:
  std::int64_t steps_ = 0;
  std::int64_t failed_steps_ = 0;
  std::int64_t in_a_row_ = 0;  // that failed last
  std::atomic<std::int64_t> failing_until_us_ = INT64_MIN;
};

}  // namespace stemma
