// Bucket b of a time t: below 64, t itself. Above, with s = the bits of t beyond six, the six bits
// below the highest one say which of the 64 steps of its doubling it is: b = 64 s + (t >> s) with
// s counted from t's length, so that 64 <= t >> s < 128.
#include "replay/latency_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace stemma {

void LatencyHistogram::record(std::int64_t time_us) {
  STEMMA_CHECK_GE(time_us, 0);
  ++buckets_[bucket_of(time_us)];
  min_us_ = recorded_ == 0 ? time_us : std::min(min_us_, time_us);
  max_us_ = std::max(max_us_, time_us);
  sum_us_ += static_cast<std::uint64_t>(time_us);
  ++recorded_;
}

double LatencyHistogram::mean_us() const noexcept {
  return recorded_ == 0 ? 0.0 : static_cast<double>(sum_us_) / static_cast<double>(recorded_);
}

std::int64_t LatencyHistogram::quantile_us(double share) const {
  STEMMA_CHECK(share > 0 && share <= 1, "a quantile is a share of the times");
  const auto rank = static_cast<std::int64_t>(std::ceil(share * static_cast<double>(recorded_)));
  std::int64_t seen = 0;
  for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
    seen += buckets_[bucket];
    if (seen >= rank) return std::clamp(middle_of(bucket), min_us_, max_us_);
  }
  return max_us_;
}

std::size_t LatencyHistogram::bucket_of(std::int64_t time_us) {
  const auto time = static_cast<std::uint64_t>(time_us);
  const auto length = static_cast<int>(std::bit_width(time));
  const int shift = std::max(length - kStepBits - 1, 0);
  return (static_cast<std::size_t>(shift) << kStepBits) + static_cast<std::size_t>(time >> shift);
}

std::int64_t LatencyHistogram::middle_of(std::size_t bucket) {
  constexpr std::size_t kSteps = std::size_t{1} << kStepBits;
  if (bucket < 2 * kSteps) return static_cast<std::int64_t>(bucket);
  const std::size_t shift = bucket / kSteps - 1;
  const std::size_t first = (bucket - shift * kSteps) << shift;
  return static_cast<std::int64_t>(first + ((std::size_t{1} << shift) - 1) / 2);
}

}  // namespace stemma
