// The choice of experts on a GPU: the experts and weights that the CPU gives the same scores, and
// visits sorted by expert.
#include "cuda/expert_choice_cuda.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/prng.h"
#include "cuda/rows_fixture.h"
#include "device/cuda_fixture.h"
#include "model/expert_choice.h"

namespace stemma {
namespace {

using Choice = MixtureConfig::Choice;
using Shares = std::vector<std::vector<ExpertShare>>;  // of each row

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

MixtureConfig config_of(Choice choice, std::int64_t experts, std::int64_t row_experts) {
  MixtureConfig config;
  config.choice = choice;
  config.experts = experts;
  config.experts_per_token = row_experts;
  return config;
}

Shares cpu_choice(const MixtureConfig& config, const std::vector<float>& scores,
                  const std::vector<float>& correction) {
  const auto experts = static_cast<std::size_t>(config.experts);
  std::vector<float> keys(experts);
  std::vector<float> group_keys(static_cast<std::size_t>(config.groups));
  std::vector<std::int32_t> ranked(experts);
  Shares shares;
  for (std::size_t row = 0; row < scores.size() / experts; ++row) {
    const auto begin = scores.begin() + static_cast<std::ptrdiff_t>(row * experts);
    std::vector<float> own(begin, begin + config.experts);
    shares.emplace_back(static_cast<std::size_t>(config.experts_per_token));
    choose_experts(config, correction, {own, keys, group_keys, ranked}, shares.back());
  }
  return shares;
}

class ExpertChoiceCudaTest : public CudaFixture {
 protected:
  // `slices` times [rows, experts], one behind the other.
  Shares choose(const MixtureConfig& config, const std::vector<float>& scores,
                const std::vector<float>& correction, std::int64_t slices = 1) {
    const std::int64_t rows = std::ssize(scores) / (config.experts * slices);
    const auto visits = static_cast<std::size_t>(rows * config.experts_per_token);
    const CudaMemory device_scores = upload(scores);
    const CudaMemory device_correction = upload(correction);
    const CudaMemory chosen = allocate<std::int32_t>(visits);
    const CudaMemory weights = allocate<float>(visits);
    const Status queued = choose_experts(
        stream(), {.scores = device_scores.as<float>(),
                   .correction = correction.empty() ? nullptr : device_correction.as<float>(),
                   .chosen = chosen.as<std::int32_t>(),
                   .weights = weights.as<float>(),
                   .rows = rows,
                   .slices = slices,
                   .experts = config.experts,
                   .row_experts = config.experts_per_token,
                   .groups = config.groups,
                   .row_groups = config.groups_per_token,
                   .normalised = config.normalised,
                   .scaling = static_cast<float>(config.scaling)});
    EXPECT_TRUE(queued.ok()) << queued.error().detail;
    const auto experts = download<std::int32_t>(chosen.bytes(), visits);
    const auto shares = download<float>(weights.bytes(), visits);
    Shares all(static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < visits; ++i) {
      all[i / static_cast<std::size_t>(config.experts_per_token)].push_back(
          {experts[i], shares[i]});
    }
    return all;
  }

  // The same experts; weights but for a unit of an exponential here and there, and what that
  // changes in the roundings of a sum over the experts.
  void expect_choice_of_cpu(const MixtureConfig& config, const std::vector<float>& scores,
                            const std::vector<float>& correction = {}) {
    const Shares expected = cpu_choice(config, scores, correction);
    const Shares got = choose(config, scores, correction);
    const double allowed = static_cast<double>(config.experts + 4) * std::ldexp(1.0, -24);
    for (std::size_t row = 0; row < expected.size(); ++row) {
      SCOPED_TRACE(testing::Message() << "row " << row << " of " << config.experts << " experts");
      for (std::size_t i = 0; i < expected[row].size(); ++i) {
        ASSERT_EQ(got[row][i].expert, expected[row][i].expert);
        const float weight = expected[row][i].weight;
        if (std::isnan(weight)) {
          EXPECT_TRUE(std::isnan(got[row][i].weight));
        } else {
          EXPECT_NEAR(got[row][i].weight, weight, allowed * std::abs(weight));
        }
      }
    }
  }
};

TEST_F(ExpertChoiceCudaTest, TheLargestSoftmaxIsChosenAsOnTheCpu) {
  Prng random(1);
  for (const auto& [experts, row_experts] :
       {std::pair{1, 1}, {8, 2}, {33, 32}, {60, 4}, {128, 8}, {300, 1}}) {
    MixtureConfig config = config_of(Choice::kSoftmax, experts, row_experts);
    config.normalised = experts % 2 == 0;
    config.scaling = experts == 60 ? 1.5 : 1.0;
    expect_choice_of_cpu(config, random_floats(7 * experts, random, 6.0));
  }
}

TEST_F(ExpertChoiceCudaTest, OnlyTheBestGroupsAreOpen) {
  Prng random(2);
  for (const auto& [experts, groups, row_groups] :
       {std::tuple{8, 4, 2}, {64, 8, 3}, {160, 40, 7}, {30, 1, 1}}) {
    MixtureConfig config = config_of(Choice::kSoftmaxGroups, experts, 3);
    config.groups = groups;
    config.groups_per_token = row_groups;
    expect_choice_of_cpu(config, random_floats(9 * experts, random, 4.0));
  }
}

TEST_F(ExpertChoiceCudaTest, CorrectedSigmoidsAreChosenAndWeighWithoutTheCorrection) {
  Prng random(3);
  for (const auto& [experts, groups, row_groups] :
       {std::tuple{8, 2, 1}, {64, 8, 4}, {256, 8, 4}, {48, 1, 1}}) {
    MixtureConfig config = config_of(Choice::kCorrectedGroups, experts, 4);
    config.groups = groups;
    config.groups_per_token = row_groups;
    config.normalised = true;
    config.scaling = 2.5;
    expect_choice_of_cpu(config, random_floats(9 * experts, random, 3.0),
                         random_floats(experts, random, 0.5));
  }
}

TEST_F(ExpertChoiceCudaTest, OfEqualScoresTheLowerExpertWins) {
  Prng random(4);
  for (const Choice choice : {Choice::kSoftmax, Choice::kCorrectedGroups}) {
    MixtureConfig config = config_of(choice, 40, 6);
    config.groups = choice == Choice::kSoftmax ? 1 : 5;
    config.groups_per_token = choice == Choice::kSoftmax ? 1 : 3;
    std::vector<float> scores(20 * 40);
    for (float& score : scores) score = static_cast<float>(random.below(4));
    scores[3] = -0.0f;
    const std::vector<float> correction(choice == Choice::kSoftmax ? 0 : 40, 0.25f);
    expect_choice_of_cpu(config, scores, correction);
  }
}

// Whatever a row holds, it goes to experts that there are.
TEST_F(ExpertChoiceCudaTest, WhatIsNoNumberIsTreatedAsOnTheCpu) {
  const std::vector<float> scores = {kNan, 1,    2,    3,    4,    5,    6,         7,           //
                                     0,    1,    2,    3,    4,    5,    kNan,      7,           //
                                     0,    1,    2,    3,    4,    5,    kInfinity, 7,           //
                                     kNan, 0,    1,    0,    1,    0,    -200,      -kInfinity,  //
                                     kNan, kNan, kNan, kNan, kNan, kNan, kNan,      kNan};
  expect_choice_of_cpu(config_of(Choice::kSoftmax, 8, 3), scores);
  MixtureConfig corrected = config_of(Choice::kCorrectedGroups, 8, 3);
  corrected.groups = 4;
  corrected.groups_per_token = 2;
  expect_choice_of_cpu(corrected, scores, std::vector<float>(8, 0.0f));
}

TEST_F(ExpertChoiceCudaTest, ScoresAreTheSumOfTheirSlicesInOrder) {
  constexpr std::int64_t kCount = 5 * 24;
  Prng random(5);
  const auto slices = random_floats(3 * kCount, random, 2.0);
  std::vector<float> sums(slices.begin(), slices.begin() + kCount);
  for (std::size_t i = 0; i < 2 * kCount; ++i) sums[i % kCount] += slices[kCount + i];
  const MixtureConfig config = config_of(Choice::kSoftmax, 24, 4);
  EXPECT_EQ(choose(config, slices, {}, 3), choose(config, sums, {}));
}

TEST_F(ExpertChoiceCudaTest, MoreExpertsThanARowCanHaveAreRefused) {
  const ChooseExperts wide = {.experts = 64, .row_experts = kRowExpertsMax + 1};
  EXPECT_EQ(choose_experts(stream(), wide).error().code, ErrorCode::kInvalidArgument);
  const ChooseExperts few = {.experts = 4, .row_experts = 5};
  EXPECT_EQ(choose_experts(stream(), few).error().code, ErrorCode::kInvalidArgument);
  const ChooseExperts ragged = {.experts = 9, .row_experts = 2, .groups = 2};
  EXPECT_EQ(choose_experts(stream(), ragged).error().code, ErrorCode::kInvalidArgument);
}

class SortVisitsCudaTest : public CudaFixture {
 protected:
  void expect_sorted(const std::vector<std::int32_t>& chosen, std::int64_t experts,
                     std::int64_t row_experts, std::int64_t tile_visits) {
    SCOPED_TRACE(testing::Message() << chosen.size() << " visits of " << experts);
    const std::size_t visits = chosen.size();
    const std::int64_t tiles = expert_tiles_max(std::ssize(chosen), experts, tile_visits);
    const CudaMemory device_chosen = upload(chosen);
    const CudaMemory sorted = allocate<std::int32_t>(visits);
    const CudaMemory rows = allocate<std::int32_t>(visits);
    const CudaMemory device_tiles = allocate<ExpertTile>(static_cast<std::size_t>(tiles));
    ASSERT_TRUE(sort_visits(stream(), {.chosen = device_chosen.as<std::int32_t>(),
                                       .sorted = sorted.as<std::int32_t>(),
                                       .rows = rows.as<std::int32_t>(),
                                       .tiles = device_tiles.as<ExpertTile>(),
                                       .visits = std::ssize(chosen),
                                       .row_experts = row_experts,
                                       .experts = experts,
                                       .tile_visits = tile_visits,
                                       .tiles_count = tiles})
                    .ok());
    std::vector<std::int32_t> expected(visits);
    for (std::size_t i = 0; i < visits; ++i) expected[i] = static_cast<std::int32_t>(i);
    const auto expert_of = [&](std::int32_t visit) {
      return chosen[static_cast<std::size_t>(visit)];
    };
    std::stable_sort(expected.begin(), expected.end(),
                     [&](std::int32_t a, std::int32_t b) { return expert_of(a) < expert_of(b); });
    EXPECT_EQ(download<std::int32_t>(sorted.bytes(), visits), expected);
    const auto found_rows = download<std::int32_t>(rows.bytes(), visits);
    for (std::size_t i = 0; i < visits; ++i) ASSERT_EQ(found_rows[i], expected[i] / row_experts);
    expect_cut(download<ExpertTile>(device_tiles.bytes(), static_cast<std::size_t>(tiles)),
               expected, tile_visits, expert_of);
  }

 private:
  // Tiles follow each other, as long as they may be without taking in another expert.
  template <typename ExpertOf>
  static void expect_cut(const std::vector<ExpertTile>& tiles,
                         const std::vector<std::int32_t>& sorted, std::int64_t tile_visits,
                         const ExpertOf& expert_of) {
    std::size_t next = 0;
    for (const ExpertTile& tile : tiles) {
      if (next == sorted.size()) {
        EXPECT_EQ(tile.expert, -1);
        EXPECT_EQ(tile.visits, 0);
        continue;
      }
      ASSERT_EQ(tile.first, static_cast<std::int32_t>(next));
      ASSERT_EQ(tile.expert, expert_of(sorted[next]));
      std::int64_t visits = 0;
      for (; next < sorted.size() && visits < tile_visits; ++next, ++visits) {
        if (expert_of(sorted[next]) != tile.expert) break;
      }
      ASSERT_EQ(tile.visits, visits);
    }
    EXPECT_EQ(next, sorted.size());
  }
};

std::vector<std::int32_t> random_choice(std::int64_t visits, std::int64_t experts, Prng& random) {
  std::vector<std::int32_t> chosen(static_cast<std::size_t>(visits));
  for (std::int32_t& expert : chosen) expert = static_cast<std::int32_t>(random.below(experts));
  return chosen;
}

TEST_F(SortVisitsCudaTest, VisitsOfAnExpertLieTogetherAndAreCutIntoTiles) {
  Prng random(6);
  expect_sorted({0}, 1, 1, 16);
  expect_sorted(random_choice(24, 40, random), 40, 3, 16);
  expect_sorted(random_choice(301, 7, random), 7, 7, 16);
  expect_sorted(random_choice(300, 5, random), 5, 2, 64);
  expect_sorted(random_choice(2 * 2048 + 10, 3, random), 3, 2, 128);
}

TEST_F(SortVisitsCudaTest, ExpertsMayHaveAllOfThemOrNone) {
  expect_sorted(std::vector<std::int32_t>(70, 2), 4, 1, 16);
  expect_sorted(std::vector<std::int32_t>(64, 0), 4, 1, 64);
  expect_sorted(std::vector<std::int32_t>(3, 3), 4, 3, 128);
}

TEST_F(SortVisitsCudaTest, FewerTilesThanThereCanBeAreRefused) {
  const SortVisits params = {
      .visits = 40, .row_experts = 2, .experts = 8, .tile_visits = 16, .tiles_count = 9};
  EXPECT_EQ(sort_visits(stream(), params).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(expert_tiles_max(40, 8, 16), 10);
  EXPECT_EQ(expert_tiles_max(5, 8, 16), 5);
}

}  // namespace
}  // namespace stemma
