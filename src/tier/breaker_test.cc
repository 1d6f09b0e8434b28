// Breaker: when it opens, how long it stays so, and who is the probe; on a clock of the test's own.
#include "tier/breaker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace stemma {
namespace {

using State = Breaker::State;

constexpr BreakerOptions kOptions = {
    .failures_to_open = 3, .backoff_us = 1000, .backoff_us_max = 8000, .seed = 7};

class BreakerTest : public ::testing::Test {
 protected:
  void open_it() {
    ASSERT_TRUE(breaker_.try_enter());
    breaker_.trip();
    ASSERT_EQ(breaker_.state(), State::kOpen);
  }
  // How long nobody is let in, to the microsecond; the probe is then out.
  std::int64_t wait_us() {
    std::int64_t waited_us = 0;
    while (!breaker_.try_enter()) {
      clock_.advance_us(1);
      ++waited_us;
    }
    return waited_us;
  }

  FakeClock clock_;
  Breaker breaker_{clock_, kOptions};
};

TEST_F(BreakerTest, OpensAfterFailuresInARowAndNotBefore) {
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(breaker_.try_enter());
    breaker_.failed();
  }
  EXPECT_TRUE(breaker_.try_enter());
  breaker_.succeeded();  // the row is broken
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(breaker_.state(), State::kClosed);
    ASSERT_TRUE(breaker_.try_enter());
    breaker_.failed();
  }
  EXPECT_EQ(breaker_.state(), State::kOpen);
  EXPECT_FALSE(breaker_.try_enter());
  EXPECT_EQ(breaker_.counters().opened, 1);
  EXPECT_EQ(breaker_.counters().refused, 1);
}

TEST_F(BreakerTest, OneTripIsEnough) {
  open_it();
  EXPECT_FALSE(breaker_.try_enter());
}

TEST_F(BreakerTest, LetsOneProbeThroughAfterTheBackOff) {
  open_it();
  clock_.advance_us(1000);
  EXPECT_TRUE(breaker_.try_enter());
  EXPECT_EQ(breaker_.state(), State::kHalfOpen);
  EXPECT_FALSE(breaker_.try_enter()) << "the probe is out";
  breaker_.succeeded();
  EXPECT_EQ(breaker_.state(), State::kClosed);
  EXPECT_TRUE(breaker_.try_enter());
  EXPECT_EQ(breaker_.counters().probes, 1);
}

TEST_F(BreakerTest, TheBackOffDoublesToItsMaximumAndStartsAnewAfterASuccess) {
  open_it();
  for (const std::int64_t backoff_us : {1000, 2000, 4000, 8000, 8000}) {
    const std::int64_t waited_us = wait_us();
    EXPECT_GE(waited_us, backoff_us / 2);
    EXPECT_LE(waited_us, backoff_us);
    breaker_.failed();
    EXPECT_EQ(breaker_.state(), State::kOpen);
  }
  wait_us();
  breaker_.succeeded();
  open_it();
  EXPECT_LE(wait_us(), 1000);
  EXPECT_EQ(breaker_.counters().opened, 2);
}

TEST_F(BreakerTest, WaitsDifferBySeed) {
  std::vector<std::int64_t> waits_us;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    BreakerOptions options = kOptions;
    options.seed = seed;
    Breaker other(clock_, options);
    ASSERT_TRUE(other.try_enter());
    other.trip();
    const std::int64_t start_us = clock_.now_us();
    while (!other.try_enter()) clock_.advance_us(1);
    waits_us.push_back(clock_.now_us() - start_us);
  }
  std::sort(waits_us.begin(), waits_us.end());
  EXPECT_GT(std::unique(waits_us.begin(), waits_us.end()) - waits_us.begin(), 8);
}

TEST_F(BreakerTest, LateReportsOfBeforeChangeNothingWhileItIsOpen) {
  ASSERT_TRUE(breaker_.try_enter());
  ASSERT_TRUE(breaker_.try_enter());
  ASSERT_TRUE(breaker_.try_enter());
  breaker_.trip();
  breaker_.succeeded();
  EXPECT_EQ(breaker_.state(), State::kOpen);
  breaker_.failed();
  breaker_.trip();
  EXPECT_LE(wait_us(), 1000) << "the back-off did not double";
}

TEST_F(BreakerTest, OneOfManyThreadsIsTheProbe) {
  open_it();
  clock_.advance_us(1000);
  std::atomic<int> entered = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] { entered += breaker_.try_enter() ? 1 : 0; });
    }
  }
  EXPECT_EQ(entered, 1);
}

}  // namespace
}  // namespace stemma
