// distinct: each value once, in order, in as much memory as that takes.
#include "base/distinct.h"

#include <gtest/gtest.h>

#include <vector>

namespace stemma {
namespace {

TEST(Distinct, EachValueIsOnceTheLeastFirst) {
  EXPECT_EQ(distinct(std::vector<int>{4, 2, 4, -1, 2}), (std::vector<int>{-1, 2, 4}));
  EXPECT_EQ(distinct(std::vector<int>{1, 1}), (std::vector<int>{1}));
  EXPECT_EQ(distinct(std::vector<int>{1, 3}), (std::vector<int>{1, 3}));
  EXPECT_EQ(distinct(std::vector<int>{}), std::vector<int>{});
}

TEST(Distinct, RepeatsGiveTheirMemoryBack) {
  EXPECT_LT(distinct(std::vector<int>(1'000'000, 7)).capacity(), 1000U);
}

}  // namespace
}  // namespace stemma
