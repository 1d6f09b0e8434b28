// Calibration taps: channels that make the scores are found as their definition says, in any
// chunks; recall is 1 where labels see everything that matters; what passes is not changed.
#include "attention/calibration_taps.h"

#include <gtest/gtest.h>

#include <cmath>

#include "attention/attention_fixture.h"

namespace stemma {
namespace {

// A world's attention with a tap around it is not its own: the taps get the world's batches.
struct Tapped {
  explicit Tapped(const AttentionCase& test_case) : shape(test_case.shape), threads(1) {}

  std::unique_ptr<Attention> inner(std::int64_t tokens) {
    auto attention = make_attention("reference", shape, {tokens, 1, tokens}, threads);
    EXPECT_TRUE(attention.ok());
    return std::move(attention).value();
  }

  AttentionShape shape;
  ThreadPool threads;
};

TEST(ChannelTap, AddsUpTheMagnitudesOfAllPairs) {
  AttentionCase test_case;
  const std::int64_t tokens = 20;
  Tapped tapped(test_case);
  ChannelSums sums(1, 2, 64);
  ChannelTap tap(tapped.inner(tokens), test_case.shape, sums);
  AttentionWorld world(test_case, {tokens});
  std::vector<float> out(static_cast<std::size_t>(tokens * 4 * 64));
  for (const std::int64_t rows : {7, 1, 12}) {
    world.prepare({{0, rows}});
    const KvBatch batch = world.batch();
    tap.plan(batch);
    tap.run(world.layer(), world.queries().data(), out.data());
  }
  const std::vector<float> q = random_values(1, tokens * 4 * 64);
  const std::vector<float> k = random_values(2, tokens * 2 * 64);
  for (std::size_t head = 0; head < 2; ++head) {
    for (std::size_t c = 0; c < 64; ++c) {
      double sum = 0;
      for (std::size_t row = 0; row < 20; ++row) {
        for (std::size_t key = 0; key <= row; ++key) {
          for (std::size_t h = 2 * head; h < 2 * head + 2; ++h) {
            sum += std::fabs(double{q[(row * 4 + h) * 64 + c]} * k[(key * 2 + head) * 64 + c]);
          }
        }
      }
      ASSERT_NEAR(sums.sums[head * 64 + c], sum, 1e-9 * sum);
    }
  }
}

TEST(ChannelSums, TheHeaviestAscendAndTiesGoToTheLower) {
  ChannelSums sums(1, 2, 16);
  sums.sums[11] = 5;
  sums.sums[3] = 7;
  sums.sums[16 + 15] = 1;
  const HeavyChannels heavy = sums.heaviest(8);
  EXPECT_EQ(heavy.channels, (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 11,  //
                                                       0, 1, 2, 3, 4, 5, 6, 15}));
}

TEST(RecallTap, MeasuresWhatLabelsChooseAndWhatCouldBeChosen) {
  AttentionCase test_case;
  test_case.dial = SparseDial{0, 1, 4};
  test_case.shape.scale = 0.05f;
  const std::int64_t tokens = 256;
  Tapped tapped(test_case);
  RecallSums sums;
  for (const std::int64_t share : {1, 4, 8}) sums.shares.push_back({{0, 1, share}});
  RecallTap tap(tapped.inner(tokens), test_case.shape, sums);
  AttentionWorld world(test_case, {tokens});
  world.prepare({{0, tokens}});
  const KvBatch batch = world.batch();
  std::vector<float> out(static_cast<std::size_t>(tokens * 4 * 64));
  tap.plan(batch);
  tap.run(world.layer(), world.queries().data(), out.data());
  EXPECT_EQ(sums.queries, 9 * 4);  // rows that see 128, 144, … 256 tokens, and their query heads
  EXPECT_NEAR(sums.recall(0), 1, 1e-9);
  EXPECT_NEAR(sums.best_recall(0), 1, 1e-9);
  for (const std::size_t share : {1u, 2u}) {
    const double blind = share == 1 ? 0.25 : 0.125;
    EXPECT_GT(sums.recall(share), blind);
    EXPECT_GT(sums.best_recall(share), sums.recall(share));
    EXPECT_LT(sums.best_recall(share), 1);
  }
  // What passes is what the attention inside gives.
  std::vector<float> plain(out.size());
  const auto inner = tapped.inner(tokens);
  inner->plan(batch);
  inner->run(world.layer(), world.queries().data(), plain.data());
  EXPECT_EQ(out, plain);
}

}  // namespace
}  // namespace stemma
