// Expert choice: each published way of choosing, by hand; ties go to the lower expert; NaN is
// chosen last; weights are normalised and scaled as the model says.
#include "model/expert_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "base/prng.h"

namespace stemma {
namespace {

using Choice = MixtureConfig::Choice;

MixtureConfig config_of(Choice choice, std::int64_t experts, std::int64_t experts_per_token) {
  MixtureConfig config;
  config.experts = experts;
  config.experts_per_token = experts_per_token;
  config.choice = choice;
  return config;
}

std::vector<ExpertShare> choose(const MixtureConfig& config, std::vector<float> scores,
                                const std::vector<float>& correction = {}) {
  std::vector<float> keys(scores.size());
  std::vector<float> group_keys(static_cast<std::size_t>(config.groups));
  std::vector<std::int32_t> ranked(scores.size());
  std::vector<ExpertShare> chosen(static_cast<std::size_t>(config.experts_per_token));
  choose_experts(config, correction, {scores, keys, group_keys, ranked}, chosen);
  return chosen;
}

std::vector<std::int32_t> experts_of(const std::vector<ExpertShare>& chosen) {
  std::vector<std::int32_t> experts;
  for (const ExpertShare& share : chosen) {
    experts.push_back(share.expert);
  }
  return experts;
}

using Experts = std::vector<std::int32_t>;

TEST(ExpertChoice, TheLargestSoftmaxInAscendingOrder) {
  const auto chosen = choose(config_of(Choice::kSoftmax, 4, 2), {1.0F, 3.0F, 0.0F, 2.0F});
  EXPECT_EQ(experts_of(chosen), (Experts{1, 3}));
  const double total = std::exp(1.0) + std::exp(3.0) + 1.0 + std::exp(2.0);
  EXPECT_NEAR(chosen[0].weight, std::exp(3.0) / total, 1e-6);
  EXPECT_NEAR(chosen[1].weight, std::exp(2.0) / total, 1e-6);
}

TEST(ExpertChoice, NormalisedWeightsSumToTheScale) {
  MixtureConfig config = config_of(Choice::kSoftmax, 4, 2);
  config.normalised = true;
  config.scaling = 2.5;
  const auto chosen = choose(config, {1.0F, 3.0F, 0.0F, 2.0F});
  EXPECT_NEAR(chosen[0].weight, 2.5 * std::exp(3.0) / (std::exp(3.0) + std::exp(2.0)), 1e-6);
  EXPECT_NEAR(chosen[0].weight + chosen[1].weight, 2.5, 1e-6);
}

TEST(ExpertChoice, OfEqualScoresTheLowerExpertWins) {
  EXPECT_EQ(experts_of(choose(config_of(Choice::kSoftmax, 5, 3), std::vector<float>(5, 0.5F))),
            (Experts{0, 1, 2}));
  EXPECT_EQ(experts_of(choose(config_of(Choice::kSoftmax, 5, 2), {0, 1, 2, 1, 1})),
            (Experts{1, 2}));
}

TEST(ExpertChoice, NanIsChosenLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  MixtureConfig config = config_of(Choice::kCorrectedGroups, 4, 3);
  EXPECT_EQ(experts_of(choose(config, {nan, 0.1F, nan, 0.2F}, {0, 0, 0, 0})), (Experts{0, 1, 3}));
  EXPECT_EQ(experts_of(choose(config_of(Choice::kSoftmax, 4, 2), {nan, nan, nan, nan})),
            (Experts{0, 1}));
}

TEST(ExpertChoice, OnlyTheGroupsWithTheBestExperts) {
  MixtureConfig config = config_of(Choice::kSoftmaxGroups, 6, 3);
  config.groups = 3;
  config.groups_per_token = 2;
  // The groups' best are 5, 4 and 3: expert 4 is out although it beats experts 1 and 3.
  EXPECT_EQ(experts_of(choose(config, {5, 0, 4, 1, 3, 3})), (Experts{0, 2, 3}));
}

TEST(ExpertChoice, ACorrectionChoosesAndDoesNotWeigh) {
  MixtureConfig config = config_of(Choice::kCorrectedGroups, 4, 1);
  const auto chosen = choose(config, {0, 0, 1, 0}, {0, 0.5F, 0, 0});
  EXPECT_EQ(experts_of(chosen), (Experts{1}));
  EXPECT_FLOAT_EQ(chosen[0].weight, 0.5F);
}

TEST(ExpertChoice, CorrectedGroupsCountAsTheirTwoBest) {
  MixtureConfig config = config_of(Choice::kCorrectedGroups, 6, 2);
  config.groups = 2;
  // The first group has the best expert of all, the second the better two.
  EXPECT_EQ(experts_of(choose(config, {3, -9, -9, 2, 2, 0}, std::vector<float>(6, 0.0F))),
            (Experts{3, 4}));
  // Keys below zero do not lose against experts that are closed.
  EXPECT_EQ(experts_of(choose(config, {0, 0, 0, 1, 1, 0}, std::vector<float>(6, -5.0F))),
            (Experts{3, 4}));
}

TEST(ExpertChoice, AgreesWithSortingEverything) {
  constexpr std::uint64_t kSeed = 3;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Prng random(kSeed);
  for (int round = 0; round < 500; ++round) {
    const std::int64_t experts = 1 + random.below(64);
    const MixtureConfig config = config_of(Choice::kSoftmax, experts, 1 + random.below(experts));
    std::vector<float> scores(static_cast<std::size_t>(experts));
    for (float& score : scores) {
      score = static_cast<float>(random.below(16));  // many ties
    }
    std::vector<std::int32_t> sorted;
    for (std::int32_t expert = 0; expert < experts; ++expert) {
      sorted.push_back(expert);
    }
    std::stable_sort(sorted.begin(), sorted.end(), [&](std::int32_t a, std::int32_t b) {
      return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
    });
    sorted.resize(static_cast<std::size_t>(config.experts_per_token));
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(experts_of(choose(config, scores)), sorted);
  }
}

}  // namespace
}  // namespace stemma
