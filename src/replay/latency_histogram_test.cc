// LatencyHistogram: exact where it promises to be, and within its error against sorted times.
#include "replay/latency_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/prng.h"

namespace stemma {
namespace {

TEST(LatencyHistogram, WithoutTimesEverythingIsZero) {
  const LatencyHistogram times;
  EXPECT_EQ(times.recorded(), 0);
  EXPECT_EQ(times.mean_us(), 0);
  EXPECT_EQ(times.max_us(), 0);
  EXPECT_EQ(times.quantile_us(0.5), 0);
}

TEST(LatencyHistogram, OneTimeIsEveryQuantile) {
  LatencyHistogram times;
  times.record(123'457);
  EXPECT_EQ(times.quantile_us(0.5), 123'457);
  EXPECT_EQ(times.quantile_us(0.99), 123'457);
  EXPECT_EQ(times.mean_us(), 123'457);
}

TEST(LatencyHistogram, AQuantileIsTheLeastTimeThatEnoughDoNotExceed) {
  LatencyHistogram times;
  for (std::int64_t time_us = 1; time_us <= 100; ++time_us) times.record(time_us);
  EXPECT_EQ(times.quantile_us(0.5), 50);
  EXPECT_EQ(times.quantile_us(0.95), 95);
  EXPECT_EQ(times.quantile_us(0.001), 1);
  EXPECT_EQ(times.quantile_us(1), 100);
}

TEST(LatencyHistogram, TimesBelow128MicrosecondsAreExact) {
  for (std::int64_t time_us = 0; time_us < 128; ++time_us) {
    LatencyHistogram times;
    times.record(0);
    times.record(time_us);
    times.record(1'000);
    EXPECT_EQ(times.quantile_us(2.0 / 3), time_us);
  }
}

TEST(LatencyHistogram, MeanAndLargestAreExact) {
  LatencyHistogram times;
  times.record(1'000'003);
  times.record(5);
  EXPECT_EQ(times.mean_us(), 500'004);
  EXPECT_EQ(times.max_us(), 1'000'003);
}

TEST(LatencyHistogram, QuantilesAreWithinOnePartIn128) {
  Prng prng(7);
  for (int round = 0; round < 50; ++round) {
    LatencyHistogram times;
    std::vector<std::int64_t> sorted;
    for (int i = 0; i < 500; ++i) {
      const auto time_us = static_cast<std::int64_t>(prng() >> (1 + prng() % 62));
      times.record(time_us >> 10);
      sorted.push_back(time_us >> 10);
    }
    std::sort(sorted.begin(), sorted.end());
    for (const double share : {0.01, 0.25, 0.5, 0.9, 0.99, 1.0}) {
      const auto rank = static_cast<std::size_t>(std::ceil(share * 500));
      const auto exact = static_cast<double>(sorted[rank - 1]);
      const auto told = static_cast<double>(times.quantile_us(share));
      EXPECT_LE(std::abs(told - exact), exact / 128) << "round " << round << ", share " << share;
    }
  }
}

TEST(LatencyHistogram, TakesTheLongestTimeThereIs) {
  LatencyHistogram times;
  times.record(std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(times.quantile_us(0.5), std::numeric_limits<std::int64_t>::max());
}

TEST(LatencyHistogram, TheMeanOfLongTimesIsExactToo) {
  LatencyHistogram times;
  for (int i = 0; i < 4; ++i) times.record(std::numeric_limits<std::int64_t>::max() - 1023);
  EXPECT_EQ(times.mean_us(), 0x1p63 - 1024);
}

TEST(LatencyHistogram, ForgetsWhenCleared) {
  LatencyHistogram times;
  times.record(10);
  times.clear();
  times.record(20);
  EXPECT_EQ(times.recorded(), 1);
  EXPECT_EQ(times.quantile_us(0.01), 20);
}

}  // namespace
}  // namespace stemma
