// CudaAttentionPlan: every row, query head and tile is computed once, sums are folded from left to
// right in the room that there is, and the image says all of it.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <tuple>
#include <vector>

#include "attention/cuda_attention_plan.h"
#include "attention/planned_batch.h"
#include "base/prng.h"

namespace stemma {
namespace {

using testing::ElementsAre;

constexpr AttentionShape kShape = {.query_heads = 8, .kv_heads = 2, .head_dim = 64, .scale = 1};
constexpr AttentionList kLists[] = {kSinglePairs, kSharedPairs, kChunkPairs, kChosenPairs};
constexpr std::int32_t kPartitionKeys = kCudaTileKeys * kCudaPartitionTiles;

CudaPlanLimits limits_with(std::int64_t sums_max) {
  return {.batch = {.rows_max = 600, .requests_max = 8, .context_tokens_max = 5000},
          .page_size = 1,
          .table_pages_max = 40000,
          .sums_max = sums_max,
          .busy_items = 8};
}
CudaAttentionPlan plan_of(const AttentionShape& shape, const PlannedBatch& batch,
                          std::int64_t sums_max = 6000, const SparseDial& dial = {}) {
  CudaPlanLimits limits = limits_with(sums_max);
  limits.share_prefixes = shape.window_tokens == 0;
  limits.dial = dial;
  limits.wave_choices = 3;
  CudaAttentionPlan plan(shape, limits);
  EXPECT_TRUE(plan.cut(batch.view()).ok());
  return plan;
}

// The row of the batch that a pair of an item is of.
int row_of(const CudaAttentionPlan& plan, const AttentionItem& item, int pair, int group) {
  const int row = item.first_row + pair / group;
  return item.run == 0 ? row : plan.shared_rows()[static_cast<std::size_t>(row)];
}

// How often each (row, query head of its KV head, tile) is computed.
std::map<std::tuple<int, int, int>, int> coverage(const CudaAttentionPlan& plan, int group) {
  std::map<std::tuple<int, int, int>, int> counts;
  for (const AttentionList list : kLists) {
    for (const AttentionItem& item : plan.items(list)) {
      EXPECT_LE(item.pairs, kListPairs[list]);
      for (int pair = item.first_pair; pair < item.first_pair + item.pairs; ++pair) {
        for (int tile = item.first_tile; tile < item.end_tile; ++tile) {
          ++counts[{row_of(plan, item, pair, group), pair % group, tile}];
        }
      }
    }
  }
  return counts;
}

// Every tile that a row sees, or of its choice, is computed once for each head; further ones at
// most once.
void expect_covered(const AttentionShape& shape, const PlannedBatch& batch,
                    const CudaAttentionPlan& plan, const SparseDial& dial = {}) {
  const auto group = static_cast<int>(shape.query_heads / shape.kv_heads);
  auto counts = coverage(plan, group);
  for (std::size_t row = 0; row < batch.positions.size(); ++row) {
    const std::int32_t position = batch.positions[row];
    for (int head = 0; head < group; ++head) {
      for (auto tile = static_cast<int>(shape.first_seen(position) / kCudaTileKeys);
           tile <= (dial.tokens_kept(position + 1) - 1) / kCudaTileKeys; ++tile) {
        EXPECT_EQ((counts[{static_cast<int>(row), head, tile}]), 1)
            << "row " << row << ", head " << head << ", tile " << tile;
      }
    }
  }
  for (const auto& [what, count] : counts) EXPECT_LE(count, 1);
}

// The items of a row go to its sums one by one, from the first to the last, and no sum is two
// rows'.
void expect_folded(const AttentionShape& shape, const CudaAttentionPlan& plan,
                   std::int64_t sums_max) {
  const auto group = static_cast<int>(shape.query_heads / shape.kv_heads);
  std::map<std::int32_t, std::size_t> owners;
  for (std::size_t i = 0; i < plan.rows().size(); ++i) {
    const AttentionRow& row = plan.rows()[i];
    std::map<std::int32_t, std::int32_t> ends;  // of the tiles of each sum
    bool leaves_sums = row.sums > 1;
    for (const AttentionList list : kLists) {
      for (const AttentionItem& item : plan.items(list)) {
        bool has_row = false;
        for (int pair = item.first_pair; pair < item.first_pair + item.pairs; ++pair) {
          has_row = has_row || row_of(plan, item, pair, group) == static_cast<int>(i);
        }
        if (!has_row) continue;
        const std::int32_t partition = item.first_tile / kCudaPartitionTiles;
        const std::int32_t sum = std::max(0, partition - row.split_at);
        EXPECT_LT(sum, row.sums);
        EXPECT_TRUE(sum == 0 || item.end_tile <= (partition + 1) * kCudaPartitionTiles);
        EXPECT_TRUE(!ends.contains(sum) || ends[sum] == item.end_tile) << "two items for one sum";
        ends[sum] = item.end_tile;
        leaves_sums = leaves_sums || item.end_tile > (partition + 1) * kCudaPartitionTiles;
      }
    }
    EXPECT_EQ(ends.size(), static_cast<std::size_t>(row.sums));
    for (std::int32_t sum = 0; leaves_sums && sum < row.sums; ++sum) {
      EXPECT_LT(row.first_sum + sum, sums_max);
      EXPECT_TRUE(owners.emplace(row.first_sum + sum, i).second) << "sum of two rows";
    }
  }
}

TEST(CudaAttentionPlan, CutsADecodeRowIntoItsPartitions) {
  PlannedBatch batch;
  batch.add(kPartitionKeys + 1, 1);
  const CudaAttentionPlan plan = plan_of(kShape, batch);
  ASSERT_EQ(plan.items(kSinglePairs).size(), 2u);
  EXPECT_TRUE(plan.items(kSharedPairs).empty());
  EXPECT_EQ(plan.items(kSinglePairs)[0].end_tile, kCudaPartitionTiles);
  EXPECT_EQ(plan.items(kSinglePairs)[1].end_tile, kCudaPartitionTiles + 1);
  EXPECT_EQ(plan.rows()[0].sums, 2);
  EXPECT_THAT(plan.merged_rows(), ElementsAre(0));
}

TEST(CudaAttentionPlan, MergesNothingWhereOnePartitionIsAll) {
  PlannedBatch batch;
  batch.add(kPartitionKeys, 1);
  const CudaAttentionPlan plan = plan_of(kShape, batch);
  EXPECT_EQ(plan.items(kSinglePairs).size(), 1u);
  EXPECT_TRUE(plan.merged_rows().empty());
}

TEST(CudaAttentionPlan, SplitsChunksOnlyWhereItemsAreFew) {
  PlannedBatch few;
  few.add(1200, 64);
  EXPECT_EQ(plan_of(kShape, few).items(kChunkPairs).size(), 2u * 3u);
  PlannedBatch many;
  many.add(1200, 128);
  const CudaAttentionPlan plan = plan_of(kShape, many);
  EXPECT_EQ(plan.items(kChunkPairs).size(), 4u);
  EXPECT_TRUE(plan.merged_rows().empty());
}

// Four walks of ten partitions on each of two KV heads, for eight teams: five of each are half of a
// team's work.
//
//   walk   |=========|-|-|-|-|-|   an item of five, five of one
TEST(CudaAttentionPlan, BeginsWalksOfManyPairsWithLongItems) {
  PlannedBatch batch;
  for (int request = 0; request < 4; ++request) batch.add(9 * kPartitionKeys + 100, 16);
  const CudaAttentionPlan plan = plan_of(kShape, batch);
  const auto items = plan.items(kSharedPairs);
  ASSERT_EQ(items.size(), 4u * 6u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(items[i].first_tile, 0);
    EXPECT_EQ(items[i].end_tile, 5 * kCudaPartitionTiles);
  }
  EXPECT_EQ(plan.rows()[0].sums, 6);
  EXPECT_EQ(plan.rows()[0].split_at, 4);
  expect_covered(kShape, batch, plan);
}

TEST(CudaAttentionPlan, CutsWalksOfManyPairsIntoPartitionsWhereTheyAreFew) {
  PlannedBatch batch;
  batch.add(9 * kPartitionKeys + 100, 16);
  const CudaAttentionPlan plan = plan_of(kShape, batch);
  EXPECT_EQ(plan.items(kSharedPairs).size(), 10u);
}

TEST(CudaAttentionPlan, GivesWhatIsLeftOfAChunkToSmallerItems) {
  PlannedBatch batch;
  batch.add(100, 32 + 16);
  batch.add(100, 32 + 4);
  const CudaAttentionPlan plan = plan_of(kShape, batch);
  EXPECT_EQ(plan.items(kChunkPairs).size(), 2u);
  EXPECT_EQ(plan.items(kSharedPairs).size(), 1u);
  EXPECT_EQ(plan.items(kSinglePairs).size(), 1u);
}

TEST(CudaAttentionPlan, HasNoItemsThatThereIsNoKernelFor) {
  CudaPlanLimits limits = limits_with(6000);
  PlannedBatch batch;
  batch.add(300, 40);
  for (const AttentionList last : {kSinglePairs, kSharedPairs}) {
    limits.last_list = last;
    CudaAttentionPlan plan(kShape, limits);
    ASSERT_TRUE(plan.cut(batch.view()).ok());
    for (int list = last + 1; list < kAttentionLists; ++list) {
      EXPECT_TRUE(plan.items(static_cast<AttentionList>(list)).empty());
    }
    expect_covered(kShape, batch, plan);
  }
}

TEST(CudaAttentionPlan, BeginsWhereAWindowDoes) {
  AttentionShape shape = kShape;
  shape.window_tokens = 100;
  PlannedBatch batch;
  batch.add(1200, 1);
  const CudaAttentionPlan plan = plan_of(shape, batch);
  ASSERT_EQ(plan.items(kSinglePairs).size(), 1u);
  EXPECT_EQ(plan.items(kSinglePairs)[0].first_tile, 1100 / kCudaTileKeys);
  expect_covered(shape, batch, plan);
}

TEST(CudaAttentionPlan, ComputesWhatDecodeRowsShareTogether) {
  PlannedBatch batch;
  for (int i = 0; i < 20; ++i) batch.add(2 * kPartitionKeys + 10, 1, 2 * kPartitionKeys);
  CudaPlanLimits limits = limits_with(6000);
  limits.batch.requests_max = 20;
  limits.share_prefixes = true;
  CudaAttentionPlan plan(kShape, limits);
  ASSERT_TRUE(plan.cut(batch.view()).ok());
  EXPECT_EQ(plan.items(kSharedPairs).size(), 2u * 2u);  // partitions, of 16 and of 4 rows
  EXPECT_EQ(plan.items(kSinglePairs).size(), 20u);
  expect_covered(kShape, batch, plan);
  expect_folded(kShape, plan, 6000);
}

TEST(CudaAttentionPlan, SharesNothingWithoutRoomForTheSums) {
  PlannedBatch batch;
  for (int i = 0; i < 2; ++i) batch.add(2 * kPartitionKeys + 10, 1, 2 * kPartitionKeys);
  batch.add(2000, 597);
  const CudaAttentionPlan plan = plan_of(kShape, batch, 600);
  for (const AttentionList list : kLists) {
    for (const AttentionItem& item : plan.items(list)) EXPECT_EQ(item.run, 0);
  }
  expect_covered(kShape, batch, plan);
  expect_folded(kShape, plan, 600);
}

TEST(CudaAttentionPlan, GivesLongerItemsToWalksThatThereIsNoRoomToSplit) {
  PlannedBatch batch;
  for (int i = 0; i < 3; ++i) batch.add(2000, 200);
  const CudaAttentionPlan plan = plan_of(kShape, batch, 600);
  EXPECT_TRUE(plan.merged_rows().empty());
  expect_covered(kShape, batch, plan);
  expect_folded(kShape, plan, 600);
}

TEST(CudaAttentionPlan, CutsSparseRowsByThemselvesIntoPartitionsOfTheirChoices) {
  PlannedBatch batch;
  batch.add(60, 1);
  batch.add(1202, 4);  // two dense rows, then two sparse ones
  batch.add(4000, 1);
  batch.add(1300, 1);
  const SparseDial dial = {.dense_tokens = 1200, .kept_tokens = 1, .kept_of = 2};
  const CudaAttentionPlan plan = plan_of(kShape, batch, 6000, dial);
  ASSERT_EQ(plan.choices().size(), 4u);
  const ChoosingRow& row = plan.choices()[2];
  EXPECT_EQ(row.row, 5);
  EXPECT_EQ(row.table_begin, 60 + 1202);
  EXPECT_EQ(row.tokens, 4000);
  EXPECT_EQ(row.kept_tokens, 2000);
  EXPECT_EQ(plan.rows()[5].position, 1999);
  EXPECT_EQ(plan.rows()[2].position, 1199);
  // Of 601, 601 and 2000 kept tokens, and, in a wave of its own, of 650.
  EXPECT_THAT(plan.wave_items(), ElementsAre(0, 2 + 2 + 4, 2 + 2 + 4 + 2));
  for (const AttentionItem& item : plan.items(kChosenPairs)) {
    EXPECT_EQ(item.first_row, plan.choices()[static_cast<std::size_t>(item.choice)].row);
    EXPECT_EQ(item.keys, plan.choices()[static_cast<std::size_t>(item.choice)].kept_tokens);
  }
  EXPECT_THAT(plan.merged_rows(), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(CudaAttentionPlan, CoversRandomBatchesOfSparseRows) {
  const auto seed = static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  Prng prng(seed);
  for (int round = 0; round < 40; ++round) {
    AttentionShape shape = kShape;
    constexpr std::int64_t kGroups[] = {1, 4, 16, 71};
    shape.query_heads = 2 * kGroups[prng.below(4)];
    const std::int64_t sums_max = 600 + prng.below(1500);
    const SparseDial dial = {
        .dense_tokens = prng.below(2000), .kept_tokens = 1 + prng.below(3), .kept_of = 4};
    PlannedBatch batch;
    for (std::int64_t requests = 1 + prng.below(8); requests > 0; --requests) {
      const std::int64_t tokens = 1 + prng.below(3000);
      const std::int64_t rows = prng.below(2) == 0 ? 1 : 1 + prng.below(75);
      batch.add(tokens, std::min(tokens, rows), std::min(tokens, 512 * prng.below(4)));
    }
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round);
    const CudaAttentionPlan plan = plan_of(shape, batch, sums_max, dial);
    expect_covered(shape, batch, plan, dial);
    expect_folded(shape, plan, sums_max);
    std::vector<std::byte> image(static_cast<std::size_t>(plan.image_bytes_max()));
    EXPECT_LE(plan.write(batch.view(), image.data()), plan.image_bytes_max());
  }
}

TEST(CudaAttentionPlan, CoversRandomBatches) {
  const auto seed = static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  Prng prng(seed);
  for (int round = 0; round < 60; ++round) {
    AttentionShape shape = kShape;
    constexpr std::int64_t kGroups[] = {1, 3, 4, 16, 71, 130};
    shape.query_heads = 2 * kGroups[prng.below(6)];
    shape.window_tokens = prng.below(3) == 0 ? 1 + prng.below(900) : 0;
    const std::int64_t sums_max = 600 + prng.below(1500);
    PlannedBatch batch;
    for (std::int64_t requests = 1 + prng.below(8); requests > 0; --requests) {
      const std::int64_t tokens = 1 + prng.below(3000);
      const std::int64_t rows = prng.below(2) == 0 ? 1 : 1 + prng.below(75);
      batch.add(tokens, std::min(tokens, rows), std::min(tokens, 512 * prng.below(4)));
    }
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round);
    const CudaAttentionPlan plan = plan_of(shape, batch, sums_max);
    expect_covered(shape, batch, plan);
    expect_folded(shape, plan, sums_max);
  }
}

template <typename T>
std::vector<T> array_at(const std::vector<std::byte>& image, std::int32_t at, std::size_t count) {
  std::vector<T> values(count);
  std::memcpy(values.data(), &image[static_cast<std::size_t>(at) * 16], count * sizeof(T));
  return values;
}

TEST(CudaAttentionPlan, WritesAnImageOfRowsItemsAndPages) {
  PlannedBatch batch;
  batch.add(700, 1);
  batch.add(50, 36);
  const CudaAttentionPlan plan = plan_of(kShape, batch);
  std::vector<std::byte> image(static_cast<std::size_t>(plan.image_bytes_max()));
  const std::int64_t bytes = plan.write(batch.view(), image.data());
  EXPECT_LE(bytes, plan.image_bytes_max());
  AttentionHeader header;
  std::memcpy(&header, image.data(), sizeof(header));
  EXPECT_EQ(header.items[kSinglePairs], 3);  // the last rows of the chunk are few, too
  EXPECT_EQ(header.items[kChunkPairs], 1);
  const auto chunk = array_at<AttentionItem>(image, header.items_at[kChunkPairs], 1)[0];
  EXPECT_EQ(chunk.first_row, 1);
  EXPECT_EQ(chunk.pairs, 128);
  EXPECT_EQ(chunk.table_begin, 700);
  EXPECT_EQ(array_at<AttentionRow>(image, header.rows_at, 37)[36].position, 49);
  EXPECT_EQ(array_at<std::int32_t>(image, header.merged_rows_at, 1)[0], 0);
  EXPECT_EQ(array_at<PageId>(image, header.table_at, 750), batch.pages);
}

TEST(CudaAttentionPlan, RefusesWhatIsBeyondItsLimits) {
  CudaAttentionPlan plan(kShape, limits_with(6000));
  const auto code = [&](const PlannedBatch& batch) {
    const Status status = plan.cut(batch.view());
    return status.ok() ? ErrorCode::kInternal : status.error().code;
  };
  PlannedBatch rows;
  rows.add(700, 601);
  EXPECT_EQ(code(rows), ErrorCode::kInvalidArgument);
  PlannedBatch requests;
  for (int i = 0; i < 9; ++i) requests.add(1, 1);
  EXPECT_EQ(code(requests), ErrorCode::kInvalidArgument);
  PlannedBatch context;
  context.add(5001, 1);
  EXPECT_EQ(code(context), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace stemma
