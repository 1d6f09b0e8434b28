// Reports may arrive late, from callers who entered before the breaker opened. While it is open
// they change nothing: only the probe closes it, and a late failure must not double the back-off of
// an outage that is already known. While a probe is out, the first report counts as the probe's.
#include "tier/breaker.h"

#include <algorithm>

#include "base/check.h"

namespace stemma {

Breaker::Breaker(const Clock& clock, const BreakerOptions& options)
    : clock_(clock), options_(options), prng_(options.seed), backoff_us_(options.backoff_us) {
  STEMMA_CHECK_GE(options.failures_to_open, 1);
  STEMMA_CHECK_GT(options.backoff_us, 0);
  STEMMA_CHECK_GE(options.backoff_us_max, options.backoff_us);
}

bool Breaker::try_enter() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kClosed) return true;
  if (!would_let_in()) {
    ++counters_.refused;
    return false;
  }
  state_ = State::kHalfOpen;
  ++counters_.probes;
  return true;
}

bool Breaker::lets_in() const {
  const std::lock_guard lock(mutex_);
  return would_let_in();
}

bool Breaker::would_let_in() const {
  return state_ == State::kClosed || (state_ == State::kOpen && clock_.now_us() >= probe_at_us_);
}

void Breaker::succeeded() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kOpen) return;
  state_ = State::kClosed;
  failures_ = 0;
  backoff_us_ = options_.backoff_us;
}

void Breaker::failed() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kOpen) return;
  ++failures_;
  if (state_ == State::kHalfOpen || failures_ >= options_.failures_to_open) open();
}

void Breaker::trip() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kOpen) open();
}

void Breaker::open() {
  if (state_ == State::kClosed) ++counters_.opened;
  state_ = State::kOpen;
  const std::int64_t half_us = backoff_us_ / 2;
  probe_at_us_ = clock_.now_us() + half_us + prng_.below(backoff_us_ - half_us + 1);
  backoff_us_ = std::min(2 * backoff_us_, options_.backoff_us_max);
}

Breaker::State Breaker::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

Breaker::Counters Breaker::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace stemma
