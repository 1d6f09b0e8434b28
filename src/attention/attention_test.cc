// Attention against its definition in double: ragged contexts around page and partition borders,
// GQA ratios, dtypes, head dimensions, layouts, on every SIMD target. Pages that no table names and
// the unwritten tail of last pages are NaN: reading one would show.
#include "attention/attention.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "attention/attention_fixture.h"
#include "attention/attention_steps.h"
#include "device/simd_target.h"

namespace stemma {
namespace {

using testing::HasSubstr;

// Around pages of 16 and partitions of 128 tokens.
const std::vector<std::int64_t> kRagged = {1, 2, 15, 16, 17, 127, 128, 129, 300};

void expect_near_reference(AttentionCase test_case, const std::vector<std::int64_t>& tokens) {
  const std::vector<Step> steps = prefill_then_decode(tokens);
  test_case.name = "cpu";
  const auto actual = attend_all(test_case, tokens, steps);
  test_case.name = "reference";
  const auto expected = attend_all(test_case, tokens, steps);
  for (std::size_t s = 0; s < tokens.size(); ++s) {
    ASSERT_EQ(actual[s].size(), expected[s].size());
    for (std::size_t i = 0; i < actual[s].size(); ++i) {
      ASSERT_NEAR(actual[s][i], expected[s][i], 2e-5) << "sequence " << s << " element " << i;
    }
  }
}

class AttentionOnTarget : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(try_select_simd_target(GetParam())); }
  void TearDown() override { select_best_simd_target(); }
};

TEST_P(AttentionOnTarget, EqualsTheReferenceForEveryGroupSize) {
  for (const std::int64_t group : {1, 2, 3, 4, 7, 8, 16}) {
    SCOPED_TRACE(group);
    AttentionCase test_case;
    test_case.shape.query_heads = 2 * group;
    test_case.threads = 2;
    expect_near_reference(test_case, {1, 17, 129, 200});
  }
}

// Decode takes heads in pairs; padded queries of one must not end up in the other.
TEST_P(AttentionOnTarget, EqualsTheReferenceForEveryNumberOfHeads) {
  for (const std::int64_t kv_heads : {1, 2, 3, 5}) {
    for (const std::int64_t group : {1, 3, 4}) {
      SCOPED_TRACE(testing::Message() << kv_heads << " heads, group " << group);
      AttentionCase test_case;
      test_case.shape.kv_heads = kv_heads;
      test_case.shape.query_heads = kv_heads * group;
      expect_near_reference(test_case, {5, 47, 161});
    }
  }
}

TEST_P(AttentionOnTarget, EqualsTheReferenceForEveryDtypeAndHeadDim) {
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kFp8E4M3, DType::kFp8E5M2, DType::kInt8}) {
    for (const std::int64_t head_dim : {32, 40, 64, 72, 80, 96, 128, 256}) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << head_dim);
      AttentionCase test_case;
      test_case.dtype = dtype;
      test_case.shape.head_dim = head_dim;
      test_case.shape.scale = 1 / std::sqrt(static_cast<float>(head_dim));
      expect_near_reference(test_case, {2, 33, 140});
    }
  }
}

TEST_P(AttentionOnTarget, EqualsTheReferenceWithWindowsAndCaps) {
  for (const std::int64_t window : {1, 2, 17, 128, 129, 200, 5000}) {
    for (const float cap : {0.0f, 2.0f}) {
      SCOPED_TRACE(testing::Message() << "window " << window << " cap " << cap);
      AttentionCase test_case;
      test_case.shape.window_tokens = window;
      test_case.shape.score_cap = cap;
      test_case.threads = 2;
      expect_near_reference(test_case, kRagged);
    }
  }
}

TEST_P(AttentionOnTarget, EqualsTheReferenceAroundEveryBorder) {
  for (const std::int64_t page_size : {1, 3, 16, 64, 512}) {
    for (const KvLayout layout : {KvLayout::kLayerFirst, KvLayout::kPageFirst}) {
      SCOPED_TRACE(testing::Message() << page_size << " " << kv_layout_name(layout));
      AttentionCase test_case;
      test_case.shape = {.query_heads = 4, .kv_heads = 1, .head_dim = 32, .scale = 0.2f};
      test_case.dtype = DType::kBF16;
      test_case.page_size = page_size;
      test_case.layout = layout;
      test_case.threads = 2;
      expect_near_reference(test_case, kRagged);
    }
  }
}

// A scale of 20 makes scores of hundreds: weights underflow, maxima move between partitions.
TEST_P(AttentionOnTarget, KeepsItsAccuracyWithSharpScores) {
  AttentionCase test_case;
  test_case.shape.scale = 2;
  test_case.threads = 3;
  const std::vector<std::int64_t> tokens = {700};
  const std::vector<Step> steps = prefill_then_decode(tokens);
  const auto actual = attend_all(test_case, tokens, steps);
  test_case.name = "reference";
  const auto expected = attend_all(test_case, tokens, steps);
  for (std::size_t i = 0; i < actual[0].size(); ++i) {
    ASSERT_NEAR(actual[0][i], expected[0][i], 1e-3) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Every, AttentionOnTarget, testing::ValuesIn(tested_targets()),
                         [](const auto& param_info) { return param_info.param; });

TEST(Attention, OneKeyGivesItsValue) {
  AttentionCase test_case;
  test_case.shape = {.query_heads = 1, .kv_heads = 1, .head_dim = 32, .scale = 1};
  const auto outputs = attend_all(test_case, {1}, {{{0, 1}}});
  EXPECT_EQ(outputs[0], random_values(3, 32));
}

TEST(AttentionFactory, ListsTheKnownNames) {
  ThreadPool threads(1);
  const AttentionShape shape = {.query_heads = 4, .kv_heads = 2, .head_dim = 64, .scale = 1};
  const AttentionLimits limits = {.rows_max = 8, .requests_max = 2, .context_tokens_max = 64};
  for (const std::string_view name : attention_names()) {
    const auto attention = make_attention(name, shape, limits, threads);
    ASSERT_TRUE(attention.ok());
    EXPECT_EQ((*attention)->name(), name);
  }
  const auto unknown = make_attention("flash", shape, limits, threads);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(unknown.error().detail, "unknown attention 'flash' (known: cpu, reference)");
}

TEST(AttentionFactory, RefusesShapesByName) {
  ThreadPool threads(1);
  const AttentionLimits limits = {.rows_max = 8, .requests_max = 2, .context_tokens_max = 64};
  const auto refusal = [&](const AttentionShape& shape, const AttentionLimits& with) {
    const auto attention = make_attention("cpu", shape, with, threads);
    EXPECT_FALSE(attention.ok());
    return attention.ok() ? std::string() : attention.error().detail;
  };
  EXPECT_THAT(refusal({.query_heads = 3, .kv_heads = 2, .head_dim = 64}, limits),
              HasSubstr("3 query heads are not a multiple of 2"));
  EXPECT_THAT(refusal({.query_heads = 4, .kv_heads = 0, .head_dim = 64}, limits),
              HasSubstr("0 KV heads"));
  for (const std::int64_t head_dim : {0, 24, 36, 264}) {
    EXPECT_THAT(refusal({.query_heads = 4, .kv_heads = 2, .head_dim = head_dim}, limits),
                HasSubstr("head_dim"));
  }
  EXPECT_THAT(refusal({.query_heads = 4, .kv_heads = 2, .head_dim = 64}, {}), HasSubstr("limits"));
}

}  // namespace
}  // namespace stemma
