// LatencyHistogram: quantiles of many times in little memory.
//
// Times fall into buckets, 64 to each doubling: a quantile is off by at most one part in 128. The
// smallest, the largest and the mean are exact. Only whole numbers are used, so that the same times
// give the same figures everywhere.
//
// Thread:     a value; one thread at a time.
// Memory:     29 KiB, whatever it has seen.
// Cost:       recording a few instructions; a quantile one pass over the buckets.
// Not here:   what was timed (timed_report).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace stemma {

class LatencyHistogram {
 public:
  // Counts one time. REQUIRES: time_us >= 0.
  void record(std::int64_t time_us);
  // Forgets everything.
  void clear() { *this = LatencyHistogram(); }

  // Times recorded.
  std::int64_t recorded() const noexcept { return recorded_; }
  // Of the times recorded; 0 if there are none.
  double mean_us() const noexcept;
  std::int64_t max_us() const noexcept { return max_us_; }

  // The least time that at least `share` of the times do not exceed, within 1/128 of it; 0 if there
  // are none. REQUIRES: 0 < share <= 1.
  std::int64_t quantile_us(double share) const;

 private:
  static constexpr int kStepBits = 6;  // 64 buckets to a doubling
  static constexpr std::size_t kBuckets = std::size_t{64 - kStepBits} << kStepBits;

  __extension__ using Sum = unsigned __int128;  // 64 bits do not hold a century 3,000 times

  static std::size_t bucket_of(std::int64_t time_us);
  static std::int64_t middle_of(std::size_t bucket);

  std::array<std::int64_t, kBuckets> buckets_ = {};
  std::int64_t recorded_ = 0;
  Sum sum_us_ = 0;
  std::int64_t min_us_ = 0;
  std::int64_t max_us_ = 0;
};

}  // namespace stemma
