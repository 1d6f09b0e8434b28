// Sparse attention against its definition in double, on every SIMD target: what is chosen, what
// comes of it, ties, both ends of the dial; and I13: a row's bits do not depend on pages,
// placement, layout, chunks, batch or threads.
#include "attention/sparse_attention.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "attention/attention_fixture.h"
#include "attention/attention_steps.h"
#include "attention/choice_fixture.h"
#include "attention/reference_sparse_attention.h"
#include "device/simd_target.h"

namespace stemma {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kSeed = 20261124;
constexpr SparseDial kQuarter = {.dense_tokens = 40, .kept_tokens = 1, .kept_of = 4};

AttentionCase sparse_case(std::int64_t group) {
  AttentionCase test_case;
  test_case.shape.query_heads = 2 * group;
  test_case.dial = kQuarter;
  return test_case;
}

class SparseOnTarget : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(try_select_simd_target(GetParam())); }
  void TearDown() override { select_best_simd_target(); }

  const std::vector<std::int64_t> tokens_ = {5, 41, 150, 290};
};

void expect_near_reference(AttentionCase test_case, const std::vector<std::int64_t>& tokens) {
  const Outputs actual = attend_all(test_case, tokens, sequences_one_by_one(tokens));
  test_case.name = "reference";
  const Outputs expected = attend_all(test_case, tokens, sequences_one_by_one(tokens));
  for (std::size_t s = 0; s < tokens.size(); ++s) {
    ASSERT_EQ(actual[s].size(), expected[s].size());
    for (std::size_t i = 0; i < actual[s].size(); ++i) {
      ASSERT_NEAR(actual[s][i], expected[s][i], 2e-5) << "sequence " << s << " element " << i;
    }
  }
}

TEST_P(SparseOnTarget, EqualsTheReference) {
  for (const std::int64_t group : {1, 3, 4, 7}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const std::int64_t page_size : {1, 16, 64}) {
        SCOPED_TRACE(testing::Message() << group << " " << dtype_name(dtype) << " " << page_size);
        AttentionCase test_case = sparse_case(group);
        test_case.dtype = dtype;
        test_case.page_size = page_size;
        expect_near_reference(test_case, tokens_);
      }
    }
  }
}

// From sharp to flat scores, whose guesses fill other bins.
TEST_P(SparseOnTarget, ChoosesTheLargestGuesses) {
  for (const float scale : {0.001f, 0.125f, 2.0f, 30.0f}) {
    AttentionCase test_case = sparse_case(4);
    test_case.shape.scale = scale;
    AttentionWorld world(test_case, {700});
    world.prepare({{0, 700}});
    const KvBatch batch = world.batch();
    ReferenceSparseAttention reference(test_case.shape, kQuarter, {700, 1, 700});
    reference.plan(batch);
    const KvLayerView layer = world.layer();
    ChoiceMemory memory(700);
    for (const std::int64_t row : {1, 15, 63, 64, 200, 511, 699}) {
      for (std::int64_t head = 0; head < 2; ++head) {
        SCOPED_TRACE(testing::Message() << scale << " row " << row << " head " << head);
        const float* const q = world.queries().data() + (row * 8 + head * 4) * 64;
        SelectTask task = {&layer, &test_case.shape, raw(batch.page_table.pages_of(0)).data(), q,
                           head};
        task.tokens = row + 1;
        const auto guesses = reference.guesses(layer, 0, task.tokens, head, q);
        for (const std::int64_t kept : {std::int64_t{1}, 1 + row / 8, row, row + 1}) {
          task.kept_tokens = kept;
          select_kernel()(task, memory.scratch());
          expect_best_choice(guesses,
                             std::span(memory.chosen).first(static_cast<std::size_t>(kept)));
        }
      }
    }
  }
}

// Labels of zeros: all guesses are equal.
TEST_P(SparseOnTarget, TiesGoToTheLowerPositions) {
  const AttentionCase test_case = sparse_case(4);
  AttentionWorld world(test_case, {300});
  world.prepare({{0, 300}});
  const KvBatch batch = world.batch();
  const std::vector<float> zeros(16 * 16 * 300);
  KvLayerView layer = world.layer();
  layer.labels = zeros.data();
  ChoiceMemory memory(300);
  SelectTask task = {&layer, &test_case.shape, raw(batch.page_table.pages_of(0)).data(),
                     world.queries().data(), 0};
  const std::vector<std::int32_t> pages(20);  // all tokens' labels in one place
  task.pages = pages.data();
  task.tokens = 300;
  task.kept_tokens = 77;
  select_kernel()(task, memory.scratch());
  for (std::int32_t i = 0; i < 77; ++i) ASSERT_EQ(memory.chosen[static_cast<std::size_t>(i)], i);
}

TEST_P(SparseOnTarget, TheDenseEndIsDenseAttention) {
  AttentionCase test_case = sparse_case(4);
  test_case.dtype = DType::kBF16;
  test_case.threads = 2;
  test_case.dial = std::nullopt;
  const Outputs dense = attend_all(test_case, tokens_, sequences_one_by_one(tokens_));
  for (const SparseDial dial :
       {SparseDial{0, 1, 1}, SparseDial{290, 1, 8}, SparseDial{7, 290, 0}}) {
    test_case.dial = dial;
    expect_same_bits(attend_all(test_case, tokens_, sequences_one_by_one(tokens_)), dense);
  }
}

// 255 of 256, rounded up, are all of up to 255 tokens: chosen, and then attended to.
TEST_P(SparseOnTarget, AChoiceOfEverythingIsDenseAttention) {
  AttentionCase test_case = sparse_case(4);
  test_case.dial = std::nullopt;
  const Outputs dense = attend_all(test_case, {255}, {{{0, 255}}});
  test_case.dial = SparseDial{0, 255, 256};
  expect_same_bits(attend_all(test_case, {255}, {{{0, 255}}}), dense);
}

TEST_P(SparseOnTarget, BitsDoNotDependOnPagesOrLayout) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    AttentionCase test_case = sparse_case(4);
    test_case.dtype = dtype;
    const Outputs expected = attend_all(test_case, tokens_, sequences_one_by_one(tokens_));
    for (const std::int64_t page_size : {1, 3, 16, 48, 64}) {
      for (const KvLayout layout : {KvLayout::kLayerFirst, KvLayout::kPageFirst}) {
        SCOPED_TRACE(testing::Message() << page_size << " " << kv_layout_name(layout));
        test_case.page_size = page_size;
        test_case.layout = layout;
        test_case.placement_seed = kSeed + static_cast<std::uint64_t>(page_size);
        expect_same_bits(attend_all(test_case, tokens_, sequences_one_by_one(tokens_)), expected);
      }
    }
  }
}

TEST_P(SparseOnTarget, BitsDoNotDependOnChunksBatchesOrThreads) {
  Prng prng(kSeed);
  for (const std::int64_t group : {1, 4}) {
    AttentionCase test_case = sparse_case(group);
    test_case.dtype = DType::kBF16;
    const Outputs expected = attend_all(test_case, tokens_, sequences_one_by_one(tokens_));
    for (const std::int64_t chunk : {1, 13, 64, 127}) {
      SCOPED_TRACE(testing::Message() << "chunks of " << chunk);
      expect_same_bits(attend_all(test_case, tokens_, in_chunks(tokens_, chunk)), expected);
    }
    for (const int threads : {1, 2, 5}) {
      SCOPED_TRACE(testing::Message() << threads << " threads, seed " << kSeed);
      test_case.threads = threads;
      expect_same_bits(attend_all(test_case, tokens_, mixed(tokens_, 4, prng)), expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, SparseOnTarget, testing::ValuesIn(tested_targets()),
                         [](const auto& param_info) { return param_info.param; });

TEST(SparseDial, KeepsAFunctionOfThePosition) {
  const SparseDial share = {.dense_tokens = 16, .kept_tokens = 1, .kept_of = 8};
  EXPECT_EQ(share.tokens_kept(16), 16);
  EXPECT_EQ(share.tokens_kept(17), 3);
  EXPECT_EQ(share.tokens_kept(64), 8);
  const SparseDial count = {.dense_tokens = 16, .kept_tokens = 32, .kept_of = 0};
  EXPECT_EQ(count.tokens_kept(32), 32);
  EXPECT_EQ(count.tokens_kept(1000), 32);
  EXPECT_EQ(SparseDial().tokens_kept(1000), 1000);
}

TEST(SparseDial, IsReadAndWritten) {
  for (const std::string text : {"256", "1/8", "3/4"}) {
    const auto dial = try_parse_kept(text);
    ASSERT_TRUE(dial.has_value()) << text;
    EXPECT_EQ(kept_text(*dial), text);
  }
  for (const std::string text : {"", "0", "-1", "1/", "/8", "9/8", "1/0", "1/8x", "1/99999"}) {
    EXPECT_FALSE(try_parse_kept(text).has_value()) << text;
  }
}

TEST(SparseFactory, NamesWhatIsWrong) {
  ThreadPool threads(1);
  AttentionShape shape = {.query_heads = 4, .kv_heads = 2, .head_dim = 64, .scale = 1};
  const AttentionLimits limits = {.rows_max = 8, .requests_max = 2, .context_tokens_max = 64};
  const auto detail = [&](std::string_view name, const SparseDial& dial) {
    const auto attention = make_sparse_attention(name, shape, dial, limits, threads);
    return attention.ok() ? "none" : attention.error().detail;
  };
  EXPECT_EQ(detail("cpu", kQuarter), "none");
  EXPECT_THAT(detail("gpu", kQuarter),
              HasSubstr("unknown attention 'gpu' (known: cpu, reference)"));
  EXPECT_THAT(detail("cpu", {-1, 1, 8}), HasSubstr("dense_tokens must be at least 0 (got -1)"));
  EXPECT_THAT(detail("cpu", {0, 0, 8}), HasSubstr("kept_tokens must be at least 1 (got 0)"));
  EXPECT_THAT(detail("cpu", {0, 9, 8}), HasSubstr("kept_of must be 0 or in 9 ... 65536 (got 8)"));
  shape.head_dim = 20;
  EXPECT_THAT(detail("cpu", kQuarter), HasSubstr("head_dim"));
}

}  // namespace
}  // namespace stemma
