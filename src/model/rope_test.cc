// Rope: the angles of the plain, the linear, the llama3 and the yarn definition, checked against
// values worked out by hand.
#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace stemma {
namespace {

TEST(Rope, PlainFrequenciesFallGeometrically) {
  const Rope rope(RopeConfig{.theta = 10000.0}, 8);
  ASSERT_EQ(rope.frequencies().size(), 4u);
  const double expected[] = {1.0, 0.1, 0.01, 0.001};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(rope.frequencies()[i], expected[i], 1e-15);
  }
}

TEST(Rope, LinearScalingDividesThePosition) {
  const Rope plain(RopeConfig{}, 64);
  const Rope linear(RopeConfig{.scaling = RopeConfig::Scaling::kLinear, .factor = 4.0}, 64);
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_DOUBLE_EQ(linear.frequencies()[i] * 4.0, plain.frequencies()[i]);
  }
}

TEST(Rope, Llama3KeepsFastPairsSlowsSlowOnesAndRampsBetween) {
  const RopeConfig config{.theta = 10000.0,
                          .scaling = RopeConfig::Scaling::kLlama3,
                          .factor = 8.0,
                          .low_frequency_factor = 1.0,
                          .high_frequency_factor = 4.0,
                          .original_context_tokens = 1000};
  const Rope rope(config, 8);
  // Turns in 1000 tokens: 159, 15.9, 1.59, 0.159.
  EXPECT_NEAR(rope.frequencies()[0], 1.0, 1e-15);
  EXPECT_NEAR(rope.frequencies()[1], 0.1, 1e-15);
  const double kept = (1000 * 0.01 / (2 * std::numbers::pi) - 1.0) / 3.0;
  EXPECT_NEAR(rope.frequencies()[2], 0.01 * ((1 - kept) / 8 + kept), 1e-12);
  EXPECT_NEAR(rope.frequencies()[3], 0.001 / 8, 1e-15);
}

TEST(Rope, YarnKeepsFastPairsSlowsSlowOnesAndRampsOverThePairs) {
  const RopeConfig config{.theta = 10000.0,
                          .scaling = RopeConfig::Scaling::kYarn,
                          .factor = 8.0,
                          .original_context_tokens = 1000,
                          .fast_turns = 100.0,
                          .slow_turns = 1.0,
                          .attention_factor = 1.25};
  const Rope rope(config, 8);
  // Turns in 1000 tokens: 159, 15.9, 1.59, 0.159: a hundred are at pair 0.2, one is at pair 2.2,
  // and the ramp goes from pair 0 to pair 3.
  const double expected[] = {1.0, 0.1 * (2.0 / 3 + 1.0 / 24), 0.01 * (1.0 / 3 + 2.0 / 24),
                             0.001 / 8};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(rope.frequencies()[i], expected[i], 1e-15) << i;
  }
  std::vector<float> cosines(4);
  std::vector<float> sines(4);
  rope.angles(3, cosines, sines);
  EXPECT_EQ(cosines[0], static_cast<float>(1.25 * std::cos(3.0)));
  EXPECT_EQ(sines[0], static_cast<float>(1.25 * std::sin(3.0)));
}

// As Kimi-K2 has it: the ramp is the step between the two pairs around it.
TEST(Rope, YarnThatKeepsAndSlowsByTheSameTurnsHasAStep) {
  const Rope rope({.theta = 10000.0,
                   .scaling = RopeConfig::Scaling::kYarn,
                   .factor = 8.0,
                   .original_context_tokens = 1000,
                   .fast_turns = 1.0,
                   .slow_turns = 1.0},
                  8);
  const double expected[] = {1.0, 0.1, 0.01, 0.001 / 8};  // one turn is at pair 2.2
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(rope.frequencies()[i], expected[i], 1e-15) << i;
  }
}

TEST(Rope, AnglesAreExactFarOut) {
  const Rope rope(RopeConfig{}, 64);
  std::vector<float> cosines(32);
  std::vector<float> sines(32);
  rope.angles(1'000'000, cosines, sines);
  EXPECT_EQ(cosines[0], static_cast<float>(std::cos(1e6)));
  EXPECT_EQ(sines[0], static_cast<float>(std::sin(1e6)));
  rope.angles(0, cosines, sines);
  EXPECT_EQ(cosines[31], 1.0F);
  EXPECT_EQ(sines[31], 0.0F);
}

}  // namespace
}  // namespace stemma
