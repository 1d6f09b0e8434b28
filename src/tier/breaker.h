// Breaker: keeps callers away from a tier that keeps failing, and finds out when it is back.
//
//   closed ──failures_to_open in a row, or trip──► open ──back-off is over──► half-open
//     ▲                                             ▲                            │ one probe
//     └──────────────── the probe succeeded ────────┼────────────────────────────┤
//                                                   └── it failed: back-off ×2 ──┘
//
// A missed deadline is a failure like any other. The back-off doubles up to a maximum; each wait is
// drawn from its upper half, so that engines which lost the same store do not come back as one.
//
// Thread:     any; a mutex held for a few instructions.
// Memory:     a few words.
// Cost:       one uncontended lock and one reading of the clock a call.
// Not here:   what a failure is (the stores), deadlines.
#pragma once

#include <cstdint>
#include <mutex>

#include "base/clock.h"
#include "base/prng.h"

namespace stemma {

struct BreakerOptions {
  std::int64_t failures_to_open = 3;         // in a row
  std::int64_t backoff_us = 100'000;         // before the first probe
  std::int64_t backoff_us_max = 10'000'000;  // at least backoff_us
  std::uint64_t seed = 0;                    // of the jitter
};

class Breaker {
 public:
  enum class State : std::uint8_t { kClosed, kOpen, kHalfOpen };

  struct Counters {
    std::int64_t opened = 0;   // times it opened from closed
    std::int64_t probes = 0;   // let through while half-open
    std::int64_t refused = 0;  // callers sent away
  };

  // `clock` must outlive it. REQUIRES: failures_to_open >= 1; 0 < backoff_us <= backoff_us_max.
  Breaker(const Clock& clock, const BreakerOptions& options);

  // Whether to go ahead. Whoever is let in reports exactly once: succeeded, failed or trip.
  bool try_enter();
  // Whether try_enter would let somebody in now. Changes nothing.
  bool lets_in() const;

  // The tier did what was asked, or said why not: it is there.
  void succeeded();
  // An error of the tier, or a deadline missed.
  void failed();
  // As failed, but one is enough: nothing listens there, and every caller would wait to learn it.
  void trip();

  State state() const;
  Counters counters() const;

 private:
  // REQUIRES: mutex_ is held.
  bool would_let_in() const;
  void open();

  const Clock& clock_;
  const BreakerOptions options_;
  mutable std::mutex mutex_;
  Prng prng_;
  State state_ = State::kClosed;
  std::int64_t failures_ = 0;    // in a row
  std::int64_t backoff_us_ = 0;  // the next one
  std::int64_t probe_at_us_ = 0;
  Counters counters_;
};

}  // namespace stemma
