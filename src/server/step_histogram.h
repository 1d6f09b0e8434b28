// StepHistogram: how many samples fell into each of some fixed steps.
//
// Thread:     one thread at a time.
// Memory:     some 200 bytes.
// Cost:       a binary search a sample, or for many alike.
// Not here:   how it is printed (metrics_text), quantiles (replay/latency_histogram).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"

namespace stemma {

// The upper ends of steps, which grow; what is more is in a last step without an end.
struct HistogramSteps {
  std::span<const std::int64_t> ends;  // static
  std::int64_t per_unit = 1;           // what people read is a sample divided by this
};

inline constexpr std::array<std::int64_t, 16> kLatencyEndsUs = {
    1'000,   2'500,     5'000,     10'000,    25'000,     50'000,     100'000,    250'000,
    500'000, 1'000'000, 2'500'000, 5'000'000, 10'000'000, 30'000'000, 60'000'000, 300'000'000};
inline constexpr std::array<std::int64_t, 19> kTokenTimeEndsUs = {
    250,    500,    1'000,   2'500,   5'000,   7'500,   10'000,    15'000,    25'000,    35'000,
    50'000, 75'000, 100'000, 150'000, 250'000, 500'000, 1'000'000, 2'500'000, 10'000'000};
inline constexpr std::array<std::int64_t, 19> kLengthEnds = {
    1,     2,     5,      10,     20,     50,      100,     200,     500,      1'000,
    2'000, 5'000, 10'000, 20'000, 50'000, 100'000, 200'000, 500'000, 1'000'000};

// Samples in microseconds, told in seconds: a millisecond to five minutes.
inline constexpr HistogramSteps kLatencySteps = {kLatencyEndsUs, 1'000'000};
// The same, a quarter of a millisecond to ten seconds.
inline constexpr HistogramSteps kTokenTimeSteps = {kTokenTimeEndsUs, 1'000'000};
// Tokens, up to a million.
inline constexpr HistogramSteps kLengthSteps = {kLengthEnds, 1};

class StepHistogram {
 public:
  static constexpr std::size_t kEndsMax = 19;

  // REQUIRES: steps.ends are kEndsMax at most.
  explicit StepHistogram(const HistogramSteps& steps) : steps_(steps) {
    STEMMA_CHECK(steps.ends.size() <= kEndsMax, "there is room for its steps");
  }

  // As many samples of `value`.
  void add(std::int64_t value, std::int64_t samples = 1) {
    const auto end = std::lower_bound(steps_.ends.begin(), steps_.ends.end(), value);
    samples_in_[static_cast<std::size_t>(end - steps_.ends.begin())] += samples;
    samples_ += samples;
    sum_ += value * samples;
  }

  const HistogramSteps& steps() const noexcept { return steps_; }
  // By step, the last one without an end included.
  std::span<const std::int64_t> samples_in() const noexcept {
    return std::span(samples_in_).first(steps_.ends.size() + 1);
  }
  std::int64_t samples() const noexcept { return samples_; }
  std::int64_t sum() const noexcept { return sum_; }

 private:
  HistogramSteps steps_;
  std::array<std::int64_t, kEndsMax + 1> samples_in_ = {};
  std::int64_t samples_ = 0;
  std::int64_t sum_ = 0;
};

}  // namespace stemma
