// Covers HighWaterArray: what was not written has the first value, and nothing above the mark is
// touched.
#include "prefix/high_water_array.h"

#include <gtest/gtest.h>

namespace stemma {
namespace {

TEST(HighWaterArray, HasOneValueUntilItIsWritten) {
  HighWaterArray<int> array(10'000, -1);
  EXPECT_EQ(array[9'999], -1);
  array.at(5'000) = 7;
  EXPECT_EQ(array[5'000], 7);
  EXPECT_EQ(array[4'999], -1);
  EXPECT_EQ(array[5'001], -1);
  array.at(0) = 3;
  EXPECT_EQ(array[0], 3);
  EXPECT_EQ(array[5'000], 7);
  array.at(9'999) = 8;
  EXPECT_EQ(array[9'999], 8);
  EXPECT_EQ(array[9'998], -1);
}

TEST(HighWaterArray, IsWrittenUpToTheHighestElementAndLittleBeyond) {
  HighWaterArray<int> array(100'000, -1);
  EXPECT_TRUE(array.written().empty());
  array.at(0) = 1;
  EXPECT_LE(array.written().size(), 1'024u);
  array.at(50'000) = 1;
  EXPECT_GT(array.written().size(), 50'000u);
  EXPECT_LE(array.written().size(), 51'200u);
}

TEST(HighWaterArray, MayBeSmallOrEmpty) {
  HighWaterArray<int> array(3, 9);
  array.at(2) = 1;
  EXPECT_EQ(array.written().size(), 3u);
  EXPECT_EQ(array[1], 9);
  EXPECT_TRUE(HighWaterArray<int>(0, 9).written().empty());
}

}  // namespace
}  // namespace stemma
