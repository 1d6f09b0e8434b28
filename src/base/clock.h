// Clock: where monotonic time comes from, so that tests and replay can supply their own.
//
// Thread:     `now_us` may be called from any thread; FakeClock is for one thread.
// Memory:     none.
// Cost:       one clock_gettime.
// Not here:   wall-clock time: it jumps, and nothing in the cache may depend on it.
#pragma once

#include <chrono>
#include <cstdint>

namespace stemma {

class Clock {
 public:
  virtual ~Clock() = default;
  // Microseconds since an arbitrary start; never goes back.
  virtual std::int64_t now_us() const = 0;
};

class MonotonicClock final : public Clock {
 public:
  std::int64_t now_us() const override {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

// Stands still until it is moved.
class FakeClock final : public Clock {
 public:
  std::int64_t now_us() const override { return now_us_; }
  // REQUIRES: delta_us >= 0.
  void advance_us(std::int64_t delta_us) { now_us_ += delta_us; }

 private:
  std::int64_t now_us_ = 0;
};

}  // namespace stemma
