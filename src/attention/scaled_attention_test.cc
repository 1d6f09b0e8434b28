// Attention over codes and scales: the bits of a row depend on nothing but the row (I13), whatever
// the scaled dtype and the kind of rows, on every SIMD target; a row without a finite scale is seen
// by those whose window it is in, and by nobody else. Nearness to the definition: attention_test.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "attention/attention_fixture.h"
#include "attention/attention_steps.h"
#include "device/simd_target.h"

namespace stemma {
namespace {

constexpr std::array kScaled = {DType::kFp8E4M3, DType::kFp8E5M2, DType::kInt8};

class ScaledAttention : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(try_select_simd_target(GetParam())); }
  void TearDown() override { select_best_simd_target(); }

  const std::vector<std::int64_t> tokens_ = {5, 128, 150, 290};
};

// Rows of codes that fill vectors, and that end with half a step.
std::vector<AttentionCase> cases() {
  std::vector<AttentionCase> all;
  for (const DType dtype : kScaled) {
    for (const std::int64_t head_dim : {40, 64}) {
      AttentionCase test_case;
      test_case.dtype = dtype;
      test_case.shape.head_dim = head_dim;
      all.push_back(test_case);
    }
  }
  return all;
}

TEST_P(ScaledAttention, BitsDoNotDependOnPagesOrLayout) {
  for (AttentionCase test_case : cases()) {
    const Outputs expected = attend_all(test_case, tokens_, sequences_one_by_one(tokens_));
    for (const std::int64_t page_size : {1, 3, 64, 200}) {
      for (const KvLayout layout : {KvLayout::kLayerFirst, KvLayout::kPageFirst}) {
        test_case.page_size = page_size;
        test_case.layout = layout;
        test_case.placement_seed += 1;
        SCOPED_TRACE(testing::Message() << dtype_name(test_case.dtype) << " " << page_size);
        expect_same_bits(attend_all(test_case, tokens_, sequences_one_by_one(tokens_)), expected);
      }
    }
  }
}

TEST_P(ScaledAttention, BitsDoNotDependOnChunksBatchOrThreads) {
  constexpr std::uint64_t kSeed = 78;
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  for (AttentionCase test_case : cases()) {
    for (const std::int64_t group : {1, 7}) {
      test_case.shape.query_heads = group * test_case.shape.kv_heads;
      const Outputs expected = attend_all(test_case, tokens_, sequences_one_by_one(tokens_));
      for (const std::int64_t chunk : {1, 13, 129}) {
        SCOPED_TRACE(testing::Message() << dtype_name(test_case.dtype) << " chunk " << chunk);
        expect_same_bits(attend_all(test_case, tokens_, in_chunks(tokens_, chunk)), expected);
      }
      AttentionCase threaded = test_case;
      threaded.threads = 3;
      expect_same_bits(attend_all(threaded, tokens_, mixed(tokens_, 3, prng)), expected);
    }
  }
}

TEST_P(ScaledAttention, BitsDoNotDependOnSplittingALongWalk) {
  const std::vector<std::int64_t> tokens = {1500};
  const std::vector<Step> steps = {{{0, 1499}}, {{0, 1}}};
  for (AttentionCase test_case : cases()) {
    test_case.page_size = 1;
    const Outputs expected = attend_all(test_case, tokens, steps);
    test_case.threads = 5;
    expect_same_bits(attend_all(test_case, tokens, steps), expected);
  }
}

TEST_P(ScaledAttention, BitsDoNotDependOnChunksOrSplittingWithAWindow) {
  for (AttentionCase test_case : cases()) {
    for (const std::int64_t window : {5, 130}) {
      test_case.shape.window_tokens = window;
      test_case.shape.score_cap = window == 5 ? 5.0f : 0.0f;
      test_case.threads = 1;
      const Outputs expected = attend_all(test_case, tokens_, sequences_one_by_one(tokens_));
      for (const std::int64_t chunk : {1, 24, 129}) {
        SCOPED_TRACE(testing::Message()
                     << dtype_name(test_case.dtype) << " window " << window << " chunk " << chunk);
        test_case.page_size = 1 + chunk % 16;
        expect_same_bits(attend_all(test_case, tokens_, in_chunks(tokens_, chunk)), expected);
      }
      test_case.threads = 3;
      expect_same_bits(attend_all(test_case, tokens_, in_chunks(tokens_, 1)), expected);
    }
  }
}

TEST_P(ScaledAttention, EqualsTheReferenceWithWindowsAndCaps) {
  for (AttentionCase test_case : cases()) {
    test_case.shape.window_tokens = 17;
    test_case.shape.score_cap = 2;
    const std::vector<Step> steps = prefill_then_decode(tokens_);
    const Outputs actual = attend_all(test_case, tokens_, steps);
    test_case.name = "reference";
    const Outputs expected = attend_all(test_case, tokens_, steps);
    for (std::size_t s = 0; s < tokens_.size(); ++s) {
      for (std::size_t i = 0; i < actual[s].size(); ++i) {
        ASSERT_NEAR(actual[s][i], expected[s][i], 2e-5) << s << " " << i;
      }
    }
  }
}

TEST_P(ScaledAttention, BitsDoNotDependOnWhatLiesBeforeTheWindow) {
  for (AttentionCase test_case : cases()) {
    test_case.shape.window_tokens = 20;
    AttentionWorld world(test_case, {150});
    world.spoil(0, 100);
    world.take({{0, 150}});
    const Outputs expected = attend_all(test_case, {150}, {{{0, 150}}});
    expect_same_bits(rows_of_first(test_case, world.outputs(), 0, 100),
                     rows_of_first(test_case, expected, 0, 100));
    expect_same_bits(rows_of_first(test_case, world.outputs(), 120, 150),
                     rows_of_first(test_case, expected, 120, 150));
    const Outputs spoilt = rows_of_first(test_case, world.outputs(), 100, 120);
    for (const float value : spoilt[0]) ASSERT_TRUE(std::isnan(value));
  }
}

TEST_P(ScaledAttention, BitsOfLatentRowsDoNotDependOnPagesChunksOrThreads) {
  for (const DType dtype : kScaled) {
    AttentionCase test_case;
    test_case.shape = {
        .query_heads = 48, .kv_heads = 1, .head_dim = 40, .scale = 0.2f, .latent_dim = 32};
    test_case.dtype = dtype;
    const Outputs expected = attend_all(test_case, tokens_, sequences_one_by_one(tokens_));
    for (const std::int64_t chunk : {1, 33, 128}) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " chunk " << chunk);
      test_case.threads = chunk == 33 ? 3 : 1;
      test_case.page_size = chunk == 128 ? 16 : 3;
      test_case.layout = chunk == 1 ? KvLayout::kPageFirst : KvLayout::kLayerFirst;
      expect_same_bits(attend_all(test_case, tokens_, in_chunks(tokens_, chunk)), expected);
    }
  }
}

// Codes are widened times powers of two, which are taken out again in shares: values far from 1, in
// either direction, must come out of that as they went in.
TEST_P(ScaledAttention, KeepsItsAccuracyWithLargeAndSmallValues) {
  for (const float magnitude : {1e-8f, 1e-4f, 1e4f, 1e8f}) {
    for (AttentionCase test_case : cases()) {
      test_case.value_magnitude = magnitude;
      const std::vector<Step> steps = prefill_then_decode(tokens_);
      const Outputs actual = attend_all(test_case, tokens_, steps);
      test_case.name = "reference";
      const Outputs expected = attend_all(test_case, tokens_, steps);
      for (std::size_t i = 0; i < actual[3].size(); ++i) {
        ASSERT_NEAR(actual[3][i], expected[3][i], 2e-5 * magnitude) << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, ScaledAttention, testing::ValuesIn(tested_targets()),
                         [](const auto& param_info) { return param_info.param; });

// What the formats cost in the end: values of -2 ... 2, so that a row's largest is about 2.
TEST(ScaledAttentionError, StaysNearAttentionOverWhatWasStored) {
  struct Bound {
    DType dtype;
    double error_max;
  };
  // Two sources of error: V, at most 2 / 254, 2 / 16 and 2 / 8, which a row that sees one key shows
  // in full; and weights, through the error of scores.
  for (const Bound bound :
       {Bound{DType::kInt8, 0.02}, Bound{DType::kFp8E4M3, 0.16}, Bound{DType::kFp8E5M2, 0.3}}) {
    AttentionCase test_case;
    const std::vector<std::int64_t> tokens = {300};
    const Outputs exact = attend_all(test_case, tokens, sequences_one_by_one(tokens));
    test_case.dtype = bound.dtype;
    const Outputs scaled = attend_all(test_case, tokens, sequences_one_by_one(tokens));
    double error = 0;
    for (std::size_t i = 0; i < exact[0].size(); ++i) {
      error = std::max(error, std::fabs(double{exact[0][i]} - double{scaled[0][i]}));
    }
    EXPECT_LT(error, bound.error_max) << dtype_name(bound.dtype);
    EXPECT_GT(error, 0) << dtype_name(bound.dtype);
  }
}

}  // namespace
}  // namespace stemma
