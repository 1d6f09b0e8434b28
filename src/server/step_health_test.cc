// When a server says of itself that it is failing.
#include "server/step_health.h"

#include <gtest/gtest.h>

namespace stemma {
namespace {

class StepHealthTest : public testing::Test {
 protected:
  void computes() { health_.note(++steps_, failed_, now_us_); }
  void fails() { health_.note(++steps_, ++failed_, now_us_); }
  bool is_failing() const { return health_.is_failing(now_us_); }

  StepHealth health_;
  std::int64_t steps_ = 0;
  std::int64_t failed_ = 0;
  std::int64_t now_us_ = 1'000;
};

TEST_F(StepHealthTest, AFewFailuresAreTheirRequests) {
  fails();
  fails();
  EXPECT_FALSE(is_failing());
  computes();
  fails();
  fails();
  EXPECT_FALSE(is_failing());
}

TEST_F(StepHealthTest, WhereEveryStepFailsTheServerDoesForAWhile) {
  for (int i = 0; i < 3; ++i) fails();
  EXPECT_TRUE(is_failing());
  health_.note(steps_, failed_, now_us_);  // an idle turn changes nothing
  now_us_ += StepHealth::kPauseUs - 1;
  EXPECT_TRUE(is_failing());
  ++now_us_;
  EXPECT_FALSE(is_failing()) << "it may be tried again";
  fails();
  EXPECT_TRUE(is_failing()) << "once is enough then";
}

TEST_F(StepHealthTest, OneStepThatIsComputedMakesItWell) {
  for (int i = 0; i < 5; ++i) fails();
  computes();
  EXPECT_FALSE(is_failing());
  fails();
  EXPECT_FALSE(is_failing());
}

TEST_F(StepHealthTest, ATurnThatLastsTooLongStallsUntilItEnds) {
  const auto is_stalled = [&] { return health_.is_stalled(now_us_, 1'000); };
  EXPECT_FALSE(is_stalled()) << "none has begun";
  health_.begin(now_us_);
  now_us_ += 999;
  EXPECT_FALSE(is_stalled());
  ++now_us_;
  EXPECT_TRUE(is_stalled());
  computes();
  EXPECT_TRUE(is_stalled()) << "what comes behind a step is of the turn";
  health_.begin(now_us_);
  EXPECT_FALSE(is_stalled());
  health_.end();
  now_us_ += 5'000;
  EXPECT_FALSE(is_stalled()) << "nothing is under way";
}

}  // namespace
}  // namespace stemma
