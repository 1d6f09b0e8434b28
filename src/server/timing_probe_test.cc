// Covers the area under the ROC curve; the measurement itself: tests/clients/tenants.test.mjs.
#include "server/timing_probe.h"

#include <gtest/gtest.h>

#include <vector>

namespace stemma {
namespace {

TEST(AreaUnderRoc, SaysHowOftenOneLiesBelowTheOther) {
  const std::vector<double> low = {1, 2, 3};
  const std::vector<double> high = {4, 5};
  EXPECT_DOUBLE_EQ(area_under_roc(low, high), 1);
  EXPECT_DOUBLE_EQ(area_under_roc(high, low), 0);
  EXPECT_DOUBLE_EQ(area_under_roc(low, low), 0.5);
  const std::vector<double> mixed = {2.5, 2.5};
  EXPECT_DOUBLE_EQ(area_under_roc(low, mixed), 2.0 / 3);
  const std::vector<double> tied = {2};
  EXPECT_DOUBLE_EQ(area_under_roc(low, tied), 0.5);
}

}  // namespace
}  // namespace stemma
