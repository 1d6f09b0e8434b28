// Attention over latent rows (MLA) against its definition in double, and its bits: numbers of heads
// and dimensions that fill vectors and that do not, dtypes, page sizes and layouts, chunks, batches
// and split walks, on every SIMD target. Slots that were not stored are NaN: reading one would
// show.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cmath>

#include "attention/attention_fixture.h"
#include "attention/attention_steps.h"
#include "device/simd_target.h"

namespace stemma {
namespace {

using testing::HasSubstr;

AttentionCase latent_case(std::int64_t heads, std::int64_t rank, std::int64_t rope) {
  AttentionCase test_case;
  test_case.shape = {.query_heads = heads,
                     .kv_heads = 1,
                     .head_dim = rank + rope,
                     .scale = 1 / std::sqrt(static_cast<float>(rank + rope)),
                     .latent_dim = rank};
  return test_case;
}

void expect_near_reference(AttentionCase test_case, const std::vector<std::int64_t>& tokens,
                           double error_max = 2e-5) {
  const std::vector<Step> steps = prefill_then_decode(tokens);
  test_case.name = "cpu";
  const Outputs actual = attend_all(test_case, tokens, steps);
  test_case.name = "reference";
  const Outputs expected = attend_all(test_case, tokens, steps);
  for (std::size_t s = 0; s < tokens.size(); ++s) {
    ASSERT_EQ(actual[s].size(), expected[s].size());
    for (std::size_t i = 0; i < actual[s].size(); ++i) {
      ASSERT_NEAR(actual[s][i], expected[s][i], error_max) << "sequence " << s << " element " << i;
    }
  }
}

// Every sequence in steps of up to `chunk` rows, all of them in each step while they last.
std::vector<Step> together_in_chunks(const std::vector<std::int64_t>& tokens, std::int64_t chunk) {
  std::vector<Step> steps;
  for (std::int64_t done = 0;; done += chunk) {
    Step step;
    for (std::size_t s = 0; s < tokens.size(); ++s) {
      if (done < tokens[s]) step.push_back({s, std::min(chunk, tokens[s] - done)});
    }
    if (step.empty()) return steps;
    steps.push_back(step);
  }
}

// The last row of one sequence; the rows before it are stored, but not computed.
Outputs last_row(const AttentionCase& test_case, std::int64_t tokens) {
  AttentionWorld world(test_case, {tokens});
  world.prepare({{0, tokens - 1}});
  world.take({{0, 1}});
  return world.outputs();
}

class LatentAttention : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(try_select_simd_target(GetParam())); }
  void TearDown() override { select_best_simd_target(); }
};

TEST_P(LatentAttention, EqualsTheReferenceForEveryNumberOfHeads) {
  for (const std::int64_t heads : {1, 2, 5, 16, 24, 48, 128}) {
    SCOPED_TRACE(heads);
    AttentionCase test_case = latent_case(heads, 32, 8);
    test_case.threads = 2;
    expect_near_reference(test_case, {1, 17, 140});
  }
}

TEST_P(LatentAttention, EqualsTheReferenceForEveryDtypeRankAndRope) {
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kFp8E4M3, DType::kFp8E5M2, DType::kInt8}) {
    for (const std::int64_t rank : {8, 32, 72, 512}) {
      for (const std::int64_t rope : {8, 64}) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << rank << " + " << rope);
        AttentionCase test_case = latent_case(5, rank, rope);
        test_case.dtype = dtype;
        expect_near_reference(test_case, {2, 33, 140});
      }
    }
  }
}

TEST_P(LatentAttention, EqualsTheReferenceAtTheLargestHeadDim) {
  expect_near_reference(latent_case(16, 1016, 8), {131});
}

TEST_P(LatentAttention, EqualsTheReferenceForTheShapesOfDeepSeek) {
  AttentionCase lite = latent_case(16, 512, 64);
  lite.dtype = DType::kBF16;
  lite.threads = 2;
  expect_near_reference(lite, {3, 131});
  AttentionCase large = latent_case(128, 512, 64);
  large.threads = 2;
  expect_near_reference(large, {33});
}

TEST_P(LatentAttention, EqualsTheReferenceAroundEveryBorder) {
  for (const std::int64_t page_size : {1, 3, 16, 64, 512}) {
    for (const KvLayout layout : {KvLayout::kLayerFirst, KvLayout::kPageFirst}) {
      SCOPED_TRACE(testing::Message() << page_size << " " << kv_layout_name(layout));
      AttentionCase test_case = latent_case(4, 24, 8);
      test_case.dtype = DType::kBF16;
      test_case.page_size = page_size;
      test_case.layout = layout;
      test_case.threads = 2;
      expect_near_reference(test_case, {1, 2, 15, 16, 17, 127, 128, 129, 300});
    }
  }
}

// Scores of hundreds: weights underflow, maxima move between partitions and sections.
TEST_P(LatentAttention, KeepsItsAccuracyWithSharpScores) {
  AttentionCase test_case = latent_case(4, 64, 8);
  test_case.shape.scale = 2;
  test_case.threads = 3;
  expect_near_reference(test_case, {1100}, 1e-3);
}

TEST_P(LatentAttention, BitsDoNotDependOnPagesOrLayout) {
  const std::vector<std::int64_t> tokens = {5, 128, 150};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    AttentionCase test_case = latent_case(5, 32, 8);
    test_case.dtype = dtype;
    const Outputs expected = attend_all(test_case, tokens, sequences_one_by_one(tokens));
    for (const std::int64_t page_size : {1, 16, 64, 100}) {
      for (const KvLayout layout : {KvLayout::kLayerFirst, KvLayout::kPageFirst}) {
        test_case.page_size = page_size;
        test_case.layout = layout;
        test_case.placement_seed += 1;
        SCOPED_TRACE(testing::Message() << page_size << " " << kv_layout_name(layout));
        expect_same_bits(attend_all(test_case, tokens, sequences_one_by_one(tokens)), expected);
      }
    }
  }
}

// Chunks cut rows into other tiles, batches and threads cut heads into other units.
TEST_P(LatentAttention, BitsDoNotDependOnChunksBatchOrThreads) {
  const std::vector<std::int64_t> tokens = {3, 64, 140};
  for (const std::int64_t heads : {1, 3, 48}) {
    AttentionCase test_case = latent_case(heads, 24, 8);
    test_case.dtype = DType::kBF16;
    const Outputs expected = attend_all(test_case, tokens, sequences_one_by_one(tokens));
    for (const std::int64_t chunk : {1, 7, 33, 128}) {
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(testing::Message()
                     << heads << " heads, chunks of " << chunk << ", threads " << threads);
        test_case.threads = threads;
        expect_same_bits(attend_all(test_case, tokens, together_in_chunks(tokens, chunk)),
                         expected);
      }
    }
  }
}

// One row of a long context is cut into parts of its walk when there are threads to spare.
TEST_P(LatentAttention, BitsDoNotDependOnSplittingALongWalk) {
  constexpr std::int64_t kTokens = 2500;  // three sections
  for (const std::int64_t heads : {1, 5, 32, 64}) {
    AttentionCase test_case = latent_case(heads, 24, 8);
    test_case.page_size = 1;
    const Outputs expected = last_row(test_case, kTokens);
    for (const int threads : {2, 3, 5}) {
      SCOPED_TRACE(testing::Message() << heads << " heads, threads " << threads);
      test_case.threads = threads;
      expect_same_bits(last_row(test_case, kTokens), expected);
    }
  }
}

// A chunk whose rows lie on both sides of a section's end.
TEST_P(LatentAttention, BitsOfARowDoNotDependOnAChunkThatEndsASection) {
  constexpr std::int64_t kTokens = 1100;
  const AttentionCase test_case = latent_case(2, 8, 8);
  const std::size_t row_floats = 2 * 8;
  const std::vector<float> rows = attend_all(test_case, {kTokens}, {{{0, kTokens}}})[0];
  for (const std::int64_t tokens : {1023, 1024, 1025, 1100}) {
    SCOPED_TRACE(tokens);
    const auto end = rows.begin() + static_cast<std::ptrdiff_t>(row_floats) * tokens;
    AttentionWorld world(test_case, {kTokens});
    world.prepare({{0, tokens - 1}});
    world.take({{0, 1}});
    expect_same_bits(world.outputs(), {{end - static_cast<std::ptrdiff_t>(row_floats), end}});
  }
}

// A later row of a chunk that overflowed must not reach the rows before it.
TEST_P(LatentAttention, BitsOfARowDoNotDependOnLaterRowsThatOverflowed) {
  AttentionCase test_case = latent_case(3, 16, 8);
  AttentionWorld world(test_case, {40});
  world.spoil(0, 30);
  world.take({{0, 40}});
  const Outputs expected = attend_all(test_case, {40}, {{{0, 40}}});
  const std::size_t row_floats = 3 * 16;
  Outputs before = {{world.outputs()[0].begin(), world.outputs()[0].begin() + 30 * row_floats}};
  expect_same_bits(before, {{expected[0].begin(), expected[0].begin() + 30 * row_floats}});
  EXPECT_TRUE(std::isnan(world.outputs()[0].back()));
}

INSTANTIATE_TEST_SUITE_P(Every, LatentAttention, testing::ValuesIn(tested_targets()),
                         [](const auto& param_info) { return param_info.param; });

TEST(LatentAttentionFactory, RefusesShapesByName) {
  ThreadPool threads(1);
  const AttentionLimits limits = {.rows_max = 8, .requests_max = 2, .context_tokens_max = 64};
  const auto refusal = [&](const AttentionShape& shape) {
    const auto attention = make_attention("cpu", shape, limits, threads);
    EXPECT_FALSE(attention.ok());
    return attention.ok() ? std::string() : attention.error().detail;
  };
  for (const std::int64_t latent_dim : {-8, 4, 12, 64, 72}) {
    EXPECT_THAT(
        refusal({.query_heads = 4, .kv_heads = 1, .head_dim = 64, .latent_dim = latent_dim}),
        HasSubstr("latent_dim"));
  }
  EXPECT_THAT(refusal({.query_heads = 4, .kv_heads = 2, .head_dim = 64, .latent_dim = 56}),
              HasSubstr("one KV head (got 2)"));
  AttentionShape shape = {.query_heads = 4, .kv_heads = 1, .head_dim = 64, .latent_dim = 56};
  shape.window_tokens = 16;
  EXPECT_THAT(refusal(shape), HasSubstr("no window"));
  shape.window_tokens = 0;
  shape.score_cap = 50;
  EXPECT_THAT(refusal(shape), HasSubstr("no cap"));
  for (const std::int64_t head_dim : {8, 1032}) {
    EXPECT_THAT(refusal({.query_heads = 4, .kv_heads = 1, .head_dim = head_dim, .latent_dim = 8}),
                HasSubstr("head_dim must be a multiple of 8 in 16 ... 1024"));
  }
}

}  // namespace
}  // namespace stemma
