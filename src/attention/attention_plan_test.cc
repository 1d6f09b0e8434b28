// AttentionPlan: every row, head and partition is computed exactly once, within the stated maxima,
// whatever the batch and the number of threads; long walks are split only where threads would idle.
#include "attention/attention_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>
#include <vector>

#include "attention/attention_kernel.h"
#include "attention/planned_batch.h"
#include "base/prng.h"

namespace stemma {
namespace {

constexpr AttentionShape kShape = {.query_heads = 8, .kv_heads = 2, .head_dim = 64, .scale = 1};
constexpr AttentionLimits kLimits = {
    .rows_max = 600, .requests_max = 8, .context_tokens_max = 5000};

// How often each (row, KV head, partition) is computed.
std::map<std::tuple<int, int, int>, int> coverage(const AttentionPlan& plan) {
  std::map<std::tuple<int, int, int>, int> counts;
  for (std::int64_t level = 0; level < plan.levels(); ++level) {
    for (const AttentionUnit& unit : plan.units(level)) {
      for (int row = 0; row < unit.rows; ++row) {
        const int place = unit.first_row + row;
        const int in_batch = unit.run ? plan.shared_rows()[static_cast<std::size_t>(place)] : place;
        for (int head = 0; head < unit.kv_heads; ++head) {
          for (int part = 0; part < unit.partitions; ++part) {
            ++counts[{in_batch, unit.first_kv_head + head, unit.first_partition + part}];
          }
        }
      }
    }
  }
  return counts;
}

// Those of a batch in which no rows share pages.
std::span<const AttentionUnit> own_units(const AttentionPlan& plan) {
  EXPECT_EQ(plan.levels(), 1);
  return plan.units(0);
}

void expect_covered_once(const AttentionPlan& plan, const KvBatch& batch) {
  const auto counts = coverage(plan);
  for (const auto& [place, count] : counts) ASSERT_EQ(count, 1);
  for (std::int64_t row = 0; row < batch.rows(); ++row) {
    const std::int64_t keys = batch.positions[static_cast<std::size_t>(row)] + 1;
    for (int head = 0; head < kShape.kv_heads; ++head) {
      for (int part = 0; part * kPartitionKeys < keys; ++part) {
        ASSERT_TRUE(counts.contains({static_cast<int>(row), head, part}));
      }
    }
  }
}

TEST(AttentionPlan, ComputesEverythingOnceWithinItsMaxima) {
  constexpr std::uint64_t kSeed = 5;
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  for (int round = 0; round < 200; ++round) {
    const int threads = 1 + static_cast<int>(prng.below(9));
    AttentionPlan plan(kShape, kLimits, threads);
    PlannedBatch batch;
    const std::int64_t requests = 1 + prng.below(kLimits.requests_max);
    for (std::int64_t r = 0; r < requests; ++r) {
      const std::int64_t tokens = 1 + prng.below(prng.below(3) == 0 ? 5000 : 300);
      batch.add(tokens, prng.below(2) == 0 ? 1 : 1 + prng.below(std::min<std::int64_t>(tokens, 70)),
                prng.below(3) == 0 ? 0 : prng.below(tokens));
    }
    const KvBatch view = batch.view();
    plan.cut(view);
    expect_covered_once(plan, view);
    EXPECT_LE(static_cast<std::int64_t>(plan.walks().size()), plan.walks_max());
    for (std::int64_t level = 0; level < plan.levels(); ++level) {
      for (const AttentionUnit& unit : plan.units(level)) {
        EXPECT_LE(unit.rows * unit.kv_heads * 4, plan.unit_queries_max());
        EXPECT_LE(unit.rows * 4, plan.tile_queries_max());
        EXPECT_LE(unit.first_partition + unit.partitions, plan.sections_max());
      }
    }
  }
}

TEST(AttentionPlan, SplitsOneLongWalkOverTheThreads) {
  AttentionPlan plan(kShape, kLimits, 2);
  PlannedBatch batch;
  batch.add(5000, 1);
  plan.cut(batch.view());
  EXPECT_EQ(plan.walks().size(), 2u);  // one for each KV head
  EXPECT_EQ(own_units(plan).size(), 8u);
}

TEST(AttentionPlan, SplitsAWalkOverLatentRowsBetweenSections) {
  const AttentionShape shape = {
      .query_heads = 16, .kv_heads = 1, .head_dim = 64, .scale = 1, .latent_dim = 56};
  AttentionPlan plan(shape, kLimits, 2);
  PlannedBatch batch;
  batch.add(5000, 1);
  plan.cut(batch.view());
  ASSERT_EQ(plan.walks().size(), 1u);
  EXPECT_EQ(plan.walks()[0].sections, 5);
  std::int64_t partitions = 0;
  for (const AttentionUnit& unit : own_units(plan)) {
    EXPECT_EQ(unit.first_partition % section_partitions(shape), 0);
    partitions += unit.partitions;
  }
  EXPECT_EQ(own_units(plan).size(), 5u);
  EXPECT_EQ(partitions, 40);
}

TEST(AttentionPlan, LeavesManyWalksWholeAndTheirHeadsTogether) {
  AttentionPlan plan(kShape, kLimits, 1);
  PlannedBatch batch;
  for (int r = 0; r < 8; ++r) batch.add(1000, 1);
  plan.cut(batch.view());
  EXPECT_TRUE(plan.walks().empty());
  EXPECT_EQ(own_units(plan).size(), 8u);
  for (const AttentionUnit& unit : own_units(plan)) EXPECT_EQ(unit.kv_heads, kShape.kv_heads);
}

TEST(AttentionPlan, PutsTheMostCostlyUnitFirst) {
  AttentionPlan plan(kShape, kLimits, 2);
  PlannedBatch batch;
  batch.add(10, 1);
  batch.add(4000, 50);
  batch.add(100, 1);
  plan.cut(batch.view());
  ASSERT_FALSE(own_units(plan).empty());
  EXPECT_EQ(own_units(plan)[0].request, 1);
  for (std::size_t i = 1; i < own_units(plan).size(); ++i) {
    EXPECT_GE(own_units(plan)[i - 1].cost, own_units(plan)[i].cost);
  }
}

// 1,000 tokens of all, which is 7 partitions in whole; the rest of each is its own.
TEST(AttentionPlan, ReadsPagesThatRowsShareOnce) {
  AttentionPlan plan(kShape, kLimits, 1);
  PlannedBatch batch;
  for (int r = 0; r < 8; ++r) batch.add(1500, 1, 1000);
  plan.cut(batch.view());
  ASSERT_EQ(plan.levels(), 2);
  ASSERT_EQ(plan.units(0).size(), 1u);
  EXPECT_TRUE(plan.units(0)[0].run);
  EXPECT_EQ(plan.units(0)[0].rows, 8);
  EXPECT_EQ(plan.units(0)[0].partitions, 7);
  ASSERT_EQ(plan.units(1).size(), 8u);
  for (const AttentionUnit& unit : plan.units(1)) {
    EXPECT_EQ(unit.first_partition, 7);
    EXPECT_EQ(plan.shared_rows()[static_cast<std::size_t>(unit.place)], unit.first_row);
  }
  expect_covered_once(plan, batch.view());
}

TEST(AttentionPlan, CutsARunOverThreadsWhereHeadsAreFew) {
  AttentionPlan plan(kShape, kLimits, 8);
  PlannedBatch batch;
  for (int r = 0; r < 8; ++r) batch.add(1500, 1, 1000);
  plan.cut(batch.view());
  EXPECT_EQ(plan.units(0).size(), 8u);  // two KV heads, four pairs of rows
  expect_covered_once(plan, batch.view());
}

TEST(AttentionPlan, LeavesRowsWithWindowsToThemselves) {
  AttentionShape shape = kShape;
  shape.window_tokens = 700;
  AttentionPlan plan(shape, kLimits, 1);
  PlannedBatch batch;
  for (int r = 0; r < 2; ++r) batch.add(1500, 1, 1000);
  KvBatch view = batch.view();
  view.windowed_table = view.page_table;
  plan.cut(view);
  EXPECT_EQ(plan.levels(), 1);
}

}  // namespace
}  // namespace stemma
