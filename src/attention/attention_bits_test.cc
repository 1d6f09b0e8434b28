// I13 for attention: a row's bits do not depend on page size, placement, layout, chunks, batch or
// threads. Every way of computing is compared with one: each sequence alone, in one step.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "attention/attention_fixture.h"
#include "attention/attention_steps.h"
#include "base/heap_counter.h"
#include "base/resident_bytes.h"
#include "device/simd_target.h"

namespace stemma {
namespace {

class AttentionBits : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(try_select_simd_target(GetParam())); }
  void TearDown() override { select_best_simd_target(); }

  const std::vector<std::int64_t> tokens_ = {5, 128, 150, 290};
};

TEST_P(AttentionBits, DoNotDependOnPagesOrLayout) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    AttentionCase test_case;
    test_case.dtype = dtype;
    const Outputs expected = attend_all(test_case, tokens_, sequences_one_by_one(tokens_));
    for (const std::int64_t page_size : {1, 16, 64, 100}) {
      for (const KvLayout layout : {KvLayout::kLayerFirst, KvLayout::kPageFirst}) {
        test_case.page_size = page_size;
        test_case.layout = layout;
        test_case.placement_seed += 1;
        SCOPED_TRACE(testing::Message() << page_size << " " << kv_layout_name(layout));
        expect_same_bits(attend_all(test_case, tokens_, sequences_one_by_one(tokens_)), expected);
      }
    }
  }
}

TEST_P(AttentionBits, DoNotDependOnChunks) {
  for (const std::int64_t group : {1, 4, 7}) {
    AttentionCase test_case;
    test_case.shape = {.query_heads = group, .kv_heads = 1, .head_dim = 40, .scale = 0.3f};
    test_case.dtype = DType::kBF16;
    const Outputs expected = attend_all(test_case, tokens_, sequences_one_by_one(tokens_));
    for (const std::int64_t chunk : {1, 2, 3, 5, 13, 24, 64, 127, 129, 200}) {
      SCOPED_TRACE(testing::Message() << "group " << group << " chunk " << chunk);
      expect_same_bits(attend_all(test_case, tokens_, in_chunks(tokens_, chunk)), expected);
    }
  }
}

TEST_P(AttentionBits, DoNotDependOnTheBatchOrThreads) {
  constexpr std::uint64_t kSeed = 77;
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  std::vector<std::int64_t> tokens;
  for (int s = 0; s < 16; ++s) tokens.push_back(1 + prng.below(280));
  AttentionCase test_case;
  test_case.dtype = DType::kF16;
  const Outputs expected = attend_all(test_case, tokens, sequences_one_by_one(tokens));
  for (const std::int64_t batch_max : {1, 2, 7, 16}) {
    for (const int threads : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << "batch " << batch_max << " threads " << threads);
      test_case.threads = threads;
      expect_same_bits(attend_all(test_case, tokens, mixed(tokens, batch_max, prng)), expected);
    }
  }
}

// One row of a long context is cut into parts of its walk when there are threads to spare.
TEST_P(AttentionBits, DoNotDependOnSplittingALongWalk) {
  const std::vector<std::int64_t> tokens = {1500};
  const std::vector<Step> steps = {{{0, 1499}}, {{0, 1}}};
  for (const std::int64_t kv_heads : {1, 2, 3}) {
    AttentionCase test_case;
    test_case.shape.kv_heads = kv_heads;
    test_case.shape.query_heads = 2 * kv_heads;
    test_case.page_size = 1;
    const Outputs expected = attend_all(test_case, tokens, sequences_one_by_one(tokens));
    for (const int threads : {1, 2, 3, 5}) {
      SCOPED_TRACE(threads);
      test_case.threads = threads;
      expect_same_bits(attend_all(test_case, tokens, steps), expected);
    }
  }
}

// Eight sequences, of which the tree is: all share 300 tokens, the first five 700, the first three
// 900, and the last two 400.
AttentionCase case_of_shared_begins(std::int64_t kv_heads, std::int64_t group) {
  AttentionCase test_case;
  test_case.shape = {
      .query_heads = kv_heads * group, .kv_heads = kv_heads, .head_dim = 40, .scale = 0.3f};
  test_case.dtype = DType::kBF16;
  test_case.page_size = 10;
  for (std::size_t s = 1; s < 8; ++s) test_case.shared.push_back({s, 0, 300});
  for (std::size_t s = 1; s < 5; ++s) test_case.shared.push_back({s, 0, 700});
  for (std::size_t s = 1; s < 3; ++s) test_case.shared.push_back({s, 0, 900});
  test_case.shared.push_back({7, 6, 400});
  return test_case;
}

// Rows that are decoded together read shared pages once; alone, or with pages of their own that
// hold the same, they get the same bits.
TEST_P(AttentionBits, DoNotDependOnWhoSharesPages) {
  const std::vector<std::int64_t> tokens = {910, 920, 1000, 705, 1290, 310, 450, 420};
  for (const std::int64_t group : {1, 3, 8, 20}) {
    AttentionCase test_case = case_of_shared_begins(group == 1 ? 3 : 1, group);
    test_case.on_shared_pages = false;
    const Outputs expected = attend_all(test_case, tokens, sequences_one_by_one(tokens));
    test_case.on_shared_pages = true;
    for (const int threads : {1, 2, 5}) {
      SCOPED_TRACE(testing::Message() << "group " << group << " threads " << threads);
      test_case.threads = threads;
      expect_same_bits(attend_all(test_case, tokens, prefill_then_decode(tokens)), expected);
    }
  }
}

// A row beside a chunk of another request that has the same begin.
TEST_P(AttentionBits, DoNotDependOnChunksOfOthersOnSharedPages) {
  const std::vector<std::int64_t> tokens = {500, 420, 700};
  AttentionCase test_case = case_of_shared_begins(2, 2);
  test_case.shared = {{1, 0, 400}, {2, 0, 400}};
  const Outputs expected = attend_all(test_case, tokens, sequences_one_by_one(tokens));
  const std::vector<Step> steps = {{{0, 499}}, {{1, 419}}, {{2, 410}}, {{0, 1}, {1, 1}, {2, 290}}};
  expect_same_bits(attend_all(test_case, tokens, steps), expected);
}

// Windows that lie within a partition, reach over several, and end in the middle of a tile.
TEST_P(AttentionBits, DoNotDependOnChunksOrSplittingWithAWindow) {
  for (const std::int64_t window : {1, 5, 100, 130, 1000}) {
    AttentionCase test_case;
    test_case.shape = {.query_heads = 3, .kv_heads = 1, .head_dim = 40, .scale = 0.3f};
    test_case.shape.window_tokens = window;
    test_case.shape.score_cap = window == 100 ? 5.0f : 0.0f;
    test_case.dtype = DType::kBF16;
    const Outputs expected = attend_all(test_case, tokens_, sequences_one_by_one(tokens_));
    for (const std::int64_t chunk : {1, 3, 24, 129}) {
      SCOPED_TRACE(testing::Message() << "window " << window << " chunk " << chunk);
      test_case.page_size = 1 + chunk % 16;
      expect_same_bits(attend_all(test_case, tokens_, in_chunks(tokens_, chunk)), expected);
    }
    test_case.threads = 3;
    expect_same_bits(attend_all(test_case, tokens_, in_chunks(tokens_, 1)), expected);
  }
}

// What overflowed is seen by those in whose window it is, and by nobody else.
TEST_P(AttentionBits, DoNotDependOnWhatLiesBeforeTheWindow) {
  AttentionCase test_case;
  test_case.shape.window_tokens = 20;
  AttentionWorld world(test_case, {150});
  world.spoil(0, 100);
  world.take({{0, 150}});
  const Outputs expected = attend_all(test_case, {150}, {{{0, 150}}});
  expect_same_bits(rows_of_first(test_case, world.outputs(), 0, 100),
                   rows_of_first(test_case, expected, 0, 100));
  expect_same_bits(rows_of_first(test_case, world.outputs(), 120, 150),
                   rows_of_first(test_case, expected, 120, 150));
  EXPECT_TRUE(std::isnan(rows_of_first(test_case, world.outputs(), 119, 120)[0][0]));
}

// A V that overflowed, with a window of itself alone: what a row gets is infinite, not NaN, also
// where it is decoded.
TEST_P(AttentionBits, DoNotDependOnChunksWhereAValueInTheWindowOverflowed) {
  AttentionCase test_case;
  test_case.dtype = DType::kF16;
  test_case.shape.window_tokens = 1;
  test_case.value_magnitude = 1e30f;
  const Outputs expected = attend_all(test_case, {150}, {{{0, 150}}});
  for (const float value : expected[0]) ASSERT_TRUE(std::isinf(value));
  expect_same_bits(attend_all(test_case, {150}, in_chunks({150}, 1)), expected);
}

INSTANTIATE_TEST_SUITE_P(Every, AttentionBits, testing::ValuesIn(tested_targets()),
                         [](const auto& param_info) { return param_info.param; });

void expect_no_allocation(AttentionCase test_case) {
  test_case.threads = 2;
  AttentionWorld world(test_case, {400, 300, 5});
  const std::vector<Step> steps = {
      {{0, 350}, {1, 299}, {2, 4}}, {{0, 1}, {1, 1}}, {{0, 40}, {2, 1}}, {{0, 1}}};
  for (const Step& step : steps) {
    world.prepare(step);
    const std::int64_t before = heap_allocations.load();
    world.plan();
    world.run();
    EXPECT_EQ(heap_allocations.load(), before);
  }
}

TEST(AttentionMemory, PlanAndRunDoNotAllocate) {
  expect_no_allocation({});
  AttentionCase shared;
  shared.shared = {{1, 0, 288}};
  expect_no_allocation(shared);
  for (const std::int64_t heads : {16, 128}) {
    AttentionCase latent;
    latent.shape = {
        .query_heads = heads, .kv_heads = 1, .head_dim = 40, .scale = 0.2f, .latent_dim = 32};
    expect_no_allocation(latent);
  }
}

// Of a context of 2^20 tokens the sums of all walks that eight threads can split have 288 MiB.
TEST(AttentionMemory, OfSplitWalksIsThereWhenTheyAre) {
  ThreadPool threads(8);
  const AttentionShape shape = {.query_heads = 32, .kv_heads = 8, .head_dim = 128, .scale = 1};
  const AttentionLimits limits = {
      .rows_max = 16, .requests_max = 2, .context_tokens_max = std::int64_t{1} << 20};
  const std::int64_t before = resident_bytes().value();
  const auto attention = make_attention("cpu", shape, limits, threads);
  ASSERT_TRUE(attention.ok());
  EXPECT_LT(resident_bytes().value() - before, std::int64_t{64} << 20);
}

}  // namespace
}  // namespace stemma
