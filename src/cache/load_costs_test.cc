// What computing and loading cost, learned from what was seen.
#include "cache/load_costs.h"

#include <gtest/gtest.h>

namespace stemma {
namespace {

using Alone = FadingLine::Alone;

TEST(FadingLine, FindsTheLineItWasGiven) {
  FadingLine line(Alone::kFlat);
  for (const double x : {10.0, 40.0, 25.0, 90.0}) line.add(x, 5 + 2 * x);
  EXPECT_NEAR(line.at(0), 5, 1e-6);
  EXPECT_NEAR(line.at(200), 405, 1e-6);
}

TEST(FadingLine, WithOneSightingIsFlatOrThroughZero) {
  FadingLine flat(Alone::kFlat);
  FadingLine proportional(Alone::kThroughZero);
  EXPECT_FALSE(flat.known());
  flat.add(10, 30);
  proportional.add(10, 30);
  EXPECT_NEAR(flat.at(1000), 30, 1e-9);
  EXPECT_NEAR(proportional.at(1000), 3000, 1e-6);
}

TEST(FadingLine, NeverFallsAndIsNeverBelowZero) {
  FadingLine falling(Alone::kFlat);
  falling.add(10, 100);
  falling.add(20, 50);
  EXPECT_GE(falling.at(1000), 50);
  FadingLine steep(Alone::kFlat);
  steep.add(10, 1);
  steep.add(20, 100);
  EXPECT_GE(steep.at(0), 0);
}

TEST(FadingLine, ForgetsWhatWas) {
  FadingLine line(Alone::kFlat);
  for (int i = 0; i < 200; ++i) line.add(10, 1000);
  for (int i = 0; i < 200; ++i) line.add(10, 10);
  EXPECT_NEAR(line.at(10), 10, 1);
}

TEST(FadingLine, InDoubtStaysAndIsSoonElsewhere) {
  FadingLine line(Alone::kFlat);
  for (int i = 0; i < 200; ++i) line.add(10, 1000);
  line.doubt();
  EXPECT_NEAR(line.at(10), 1000, 1e-6);
  line.doubt();
  line.add(10, 10);
  EXPECT_NEAR(line.at(10), 200, 1e-6);
}

TEST(LoadCosts, KnowNothingAtFirst) {
  const LoadCosts costs;
  EXPECT_EQ(costs.compute_us(0, 100), std::nullopt);
  EXPECT_EQ(costs.load_us(Tier::kDisk, 10), std::nullopt);
}

TEST(LoadCosts, LongerContextsCostMoreATokenAndTiersAreApart) {
  LoadCosts costs;
  costs.computed(0, 100, 1000);
  costs.computed(10'000, 100, 3000);
  EXPECT_GT(*costs.compute_us(20'000, 100), *costs.compute_us(0, 100));
  costs.loaded(Tier::kDisk, 10, 5000);
  EXPECT_EQ(*costs.load_us(Tier::kDisk, 20), 10'000);
  EXPECT_EQ(costs.load_us(Tier::kHost, 20), std::nullopt);
}

TEST(LoadCosts, OfATierThatWasLeftAloneAreInDoubt) {
  constexpr std::int64_t kWhileUs = 10'000'000;
  LoadCosts costs;
  costs.asked(Tier::kDisk, 1000);
  costs.loaded(Tier::kDisk, 10, 300'000);
  EXPECT_FALSE(costs.may_doubt(Tier::kDisk, 999 + kWhileUs));
  costs.asked(Tier::kDisk, 2000);
  EXPECT_FALSE(costs.may_doubt(Tier::kDisk, 1000 + kWhileUs)) << "asked meanwhile";
  EXPECT_TRUE(costs.may_doubt(Tier::kDisk, 2000 + kWhileUs));
  EXPECT_TRUE(costs.may_doubt(Tier::kDisk, 2000 + kWhileUs)) << "nothing was loaded yet";
  costs.asked(Tier::kDisk, 2000 + kWhileUs);
  costs.doubt(Tier::kDisk);
  EXPECT_FALSE(costs.may_doubt(Tier::kDisk, 2001 + kWhileUs)) << "once";
  EXPECT_EQ(*costs.load_us(Tier::kDisk, 10), 300'000) << "nothing was seen yet";
  costs.loaded(Tier::kDisk, 10, 5'000);
  EXPECT_LT(*costs.load_us(Tier::kDisk, 10), 70'000);
}

}  // namespace
}  // namespace stemma
