// LatencyHistogram: how long something took, in fixed steps from a millisecond to five minutes.
//
// Thread:     one thread at a time.
// Memory:     two cache lines.
// Cost:       a binary search a sample.
// Not here:   how it is printed (metrics_text).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace stemma {

class LatencyHistogram {
 public:
  // Upper ends of the steps, in microseconds; what is longer is in a last step without an end.
  static constexpr std::array<std::int64_t, 16> kEndsUs = {
      1'000,   2'500,     5'000,     10'000,    25'000,     50'000,     100'000,    250'000,
      500'000, 1'000'000, 2'500'000, 5'000'000, 10'000'000, 30'000'000, 60'000'000, 300'000'000};

  void add(std::int64_t us) {
    const auto end = std::lower_bound(kEndsUs.begin(), kEndsUs.end(), us);
    ++samples_in_[static_cast<std::size_t>(end - kEndsUs.begin())];
    ++samples_;
    sum_us_ += us;
  }

  // By step, the last one without an end included.
  std::span<const std::int64_t> samples_in() const noexcept { return samples_in_; }
  std::int64_t samples() const noexcept { return samples_; }
  std::int64_t sum_us() const noexcept { return sum_us_; }

 private:
  std::array<std::int64_t, kEndsUs.size() + 1> samples_in_ = {};
  std::int64_t samples_ = 0;
  std::int64_t sum_us_ = 0;
};

}  // namespace stemma
