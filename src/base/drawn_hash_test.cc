// Numbers that somebody chose so that they would lie in one bucket.
#include "base/drawn_hash.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

namespace stemma {
namespace {

constexpr std::size_t kBuckets = 85'229;
constexpr std::int64_t kNumbers = 10'000;

// Drawn, some 5 % of 10,000 numbers find a bucket that is taken.
TEST(DrawnHash, NumbersThatHaveTheBucketsInCommonLieApart) {
  const DrawnHash hash;
  std::set<std::size_t> buckets;
  for (std::int64_t i = 0; i < kNumbers; ++i) {
    buckets.insert(hash(i * std::int64_t{kBuckets}) % kBuckets);
  }
  EXPECT_GT(buckets.size(), std::size_t{kNumbers} * 9 / 10);
}

// The inverse of mix64 is known to everybody.
TEST(DrawnHash, NumbersThatLieTogetherInOneRunLieApartInTheNext) {
  std::set<std::size_t> values;
  for (int run = 0; run < 100; ++run) values.insert(DrawnHash()(7));
  EXPECT_EQ(values.size(), 100u);
  values.clear();
  for (int run = 0; run < 100; ++run) values.insert(DrawnHash()(-1, 7));
  EXPECT_EQ(values.size(), 100u);
}

TEST(DrawnHash, ANumberIsAnotherBelowAnother) {
  const DrawnHash hash;
  EXPECT_EQ(hash(1, 7), hash(1, 7));
  EXPECT_NE(hash(1, 7), hash(2, 7));
}

}  // namespace
}  // namespace stemma
