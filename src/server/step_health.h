// StepHealth: whether an engine still computes anything. Where each step fails, as on a GPU that
// was lost, requests end with an error at once: a server that called itself well would draw all
// traffic. Where a step does not end, as in a kernel or a collective that hangs, they would never
// end at all.
//
//   a step fails three times in a row ──► failing for half a minute ──► asked again; fails ──► …
//   a turn that lasts too long        ──► stalled until it ends
//
// Nobody may send requests to a server that says that it is failing, and it could never show that
// it is well again: so it says so for a while, like a breaker.
//
// Thread:     begin, note and end on one; is_failing and is_stalled from any.
// Memory:     a few words.
// Cost:       none of note.
// Not here:   how long a step may take (ServingLoop::Options).
#pragma once

#include <atomic>
#include <cstdint>

#include "stemma/log.h"

namespace stemma {

class StepHealth {
 public:
  static constexpr std::int64_t kFailuresMax = 3;
  static constexpr std::int64_t kPauseUs = 30'000'000;

  // A turn begins, in which there may be a step; and none is under way.
  void begin(std::int64_t now_us) { began_us_ = now_us; }
  void end() { began_us_ = kNever; }

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
  // Whether a turn has lasted for `stall_us`, and not ended.
  bool is_stalled(std::int64_t now_us, std::int64_t stall_us) const {
    const std::int64_t began_us = began_us_;
    return began_us != kNever && now_us - began_us >= stall_us;
  }

 private:
  static constexpr std::int64_t kNever = INT64_MAX;

  std::int64_t steps_ = 0;
  std::int64_t failed_steps_ = 0;
  std::int64_t in_a_row_ = 0;  // that failed last
  std::atomic<std::int64_t> failing_until_us_ = INT64_MIN;
  std::atomic<std::int64_t> began_us_ = kNever;  // the turn that goes on
};

}  // namespace stemma
