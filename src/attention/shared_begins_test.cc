// SharedBegins: runs of rows that read the same pages, found from page tables alone.
#include "attention/shared_begins.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "attention/attention_kernel.h"
#include "base/prng.h"

namespace stemma {
namespace {

// Requests given by their pages and rows; the last page is full.
struct Requests {
  explicit Requests(std::int64_t tokens_of_page) : page_size(tokens_of_page) {}

  void add(const std::vector<std::int32_t>& own_pages, std::int32_t rows = 1) {
    for (const std::int32_t page : own_pages) pages.emplace_back(page);
    indptr.push_back(static_cast<std::int32_t>(pages.size()));
    last_page_tokens.push_back(static_cast<std::int32_t>(page_size));
    row_indptr.push_back(row_indptr.back() + rows);
  }

  KvBatch batch() const {
    KvBatch batch;
    batch.row_indptr = row_indptr;
    batch.page_table = {indptr, pages, last_page_tokens, page_size};
    return batch;
  }

  std::int64_t page_size;
  std::vector<PageId> pages;
  std::vector<std::int32_t> indptr = {0};
  std::vector<std::int32_t> last_page_tokens;
  std::vector<std::int32_t> row_indptr = {0};
};

constexpr std::int64_t kAnyKeys = 1 << 20;

// Requests of the run's rows, sorted.
std::vector<int> members(const SharedBegins& shared, const SharedRun& run) {
  std::vector<int> requests;
  for (int i = 0; i < run.rows; ++i) requests.push_back(shared.request_of(run.first_row + i));
  std::sort(requests.begin(), requests.end());
  return requests;
}

//            ┌ 4 ─ 5 ─ 6     request 0
//  1 ─ 2 ─ 3 ┼ 4 ─ 7 ─ 8     request 1         pages of one partition each
//            └ 9 ─ 10        request 2
//  11 ─ 12                   request 3
TEST(SharedBegins, AreATreeOfRuns) {
  Requests requests(kPartitionKeys);
  requests.add({1, 2, 3, 4, 5, 6});
  requests.add({1, 2, 3, 4, 7, 8});
  requests.add({1, 2, 3, 9, 10});
  requests.add({11, 12});
  SharedBegins shared(4, 32, kPartitionKeys);
  shared.find(requests.batch(), kAnyKeys);
  ASSERT_EQ(shared.runs().size(), 2u);
  EXPECT_EQ(members(shared, shared.runs()[0]), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(shared.runs()[0].first_partition, 0);
  EXPECT_EQ(shared.runs()[0].partitions, 3);
  EXPECT_EQ(shared.runs()[0].level, 0);
  EXPECT_EQ(members(shared, shared.runs()[1]), (std::vector<int>{0, 1}));
  EXPECT_EQ(shared.runs()[1].first_partition, 3);
  EXPECT_EQ(shared.runs()[1].partitions, 1);
  EXPECT_EQ(shared.runs()[1].level, 1);
  EXPECT_EQ(shared.share_of(0).partitions, 4);
  EXPECT_EQ(shared.share_of(2).partitions, 3);
  EXPECT_EQ(shared.share_of(3).place, -1);
}

// The last key of a row is its own: a page that two requests end with is not shared in whole.
TEST(SharedBegins, EndBeforeTheLastKey) {
  Requests requests(kPartitionKeys);
  requests.add({1, 2});
  requests.add({1, 2, 3});
  SharedBegins shared(2, 16, kPartitionKeys);
  shared.find(requests.batch(), kAnyKeys);
  ASSERT_EQ(shared.runs().size(), 1u);
  EXPECT_EQ(shared.runs()[0].partitions, 1);
}

// Pages of 48 tokens: three of them, 144 tokens, have one partition in whole.
TEST(SharedBegins, AreCutOnBordersOfPartitions) {
  Requests requests(48);
  requests.add({1, 2, 3, 4});
  requests.add({1, 2, 3, 5});
  requests.add({1, 2, 6, 7});
  SharedBegins shared(3, 16, kPartitionKeys);
  shared.find(requests.batch(), kAnyKeys);
  ASSERT_EQ(shared.runs().size(), 1u);
  EXPECT_EQ(members(shared, shared.runs()[0]), (std::vector<int>{0, 1}));
  EXPECT_EQ(shared.runs()[0].partitions, 1);
}

TEST(SharedBegins, HaveRequestsOfOneRowWithinTheBoundOnly) {
  Requests requests(kPartitionKeys);
  requests.add({1, 2, 3});
  requests.add({1, 2, 4}, 5);
  requests.add({1, 2, 3, 4, 5});
  SharedBegins shared(3, 16, kPartitionKeys);
  shared.find(requests.batch(), 4 * kPartitionKeys);
  EXPECT_TRUE(shared.runs().empty());
}

TEST(SharedBegins, LeaveRowsBeyondTheirBoundToThemselves) {
  Requests requests(kPartitionKeys);
  for (int i = 0; i < 4; ++i) requests.add({1, 2 + i / 2, 10 + i});
  SharedBegins shared(4, 4, kPartitionKeys);
  shared.find(requests.batch(), kAnyKeys);
  ASSERT_EQ(shared.runs().size(), 1u);
  EXPECT_EQ(shared.runs()[0].rows, 4);
}

// Every row's runs follow each other without a hole, have the same pages as the row, and none could
// be longer.
TEST(SharedBegins, AreWhatPageTablesHaveInCommon) {
  constexpr std::uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  for (int round = 0; round < 300; ++round) {
    const std::int64_t page_size =
        std::vector<std::int64_t>{1, 16, 128, 200}[static_cast<std::size_t>(prng.below(4))];
    const std::int64_t pages_max = 8 * kPartitionKeys / page_size + 1;
    Requests requests(page_size);
    std::vector<std::vector<std::int32_t>> tables;
    for (int r = 0; r < 12; ++r) {
      std::vector<std::int32_t> table;
      if (r > 0 && prng.below(4) != 0) {
        const auto& other = tables[static_cast<std::size_t>(prng.below(r))];
        const auto kept =
            static_cast<std::ptrdiff_t>(1 + prng.below(static_cast<std::int64_t>(other.size())));
        table.assign(other.begin(), other.begin() + kept);
      }
      const std::int64_t more = 1 + prng.below(pages_max);
      for (std::int64_t i = 0; i < more; ++i) {
        table.push_back(static_cast<std::int32_t>((r + 1) * 100000 + i));
      }
      tables.push_back(table);
      requests.add(table);
    }
    SharedBegins shared(12, 12 * 12, kPartitionKeys);
    shared.find(requests.batch(), kAnyKeys);
    const KvBatch batch = requests.batch();
    std::map<int, int> reached;
    for (const SharedRun& run : shared.runs()) {
      for (const int request : members(shared, run)) {
        EXPECT_EQ(reached[request], run.first_partition);
        reached[request] += run.partitions;
        const int first = shared.request_of(run.first_row);
        for (std::int64_t key = 0; key < reached[request] * kPartitionKeys; ++key) {
          ASSERT_EQ(batch.page_table.slot(request, key), batch.page_table.slot(first, key));
        }
      }
    }
    for (int a = 0; a < 12; ++a) {
      EXPECT_EQ(shared.share_of(a).partitions, reached[a]);
      std::int64_t longest = 0;
      for (int b = 0; b < 12; ++b) {
        if (a == b) continue;
        const std::int64_t keys =
            std::min(batch.page_table.tokens_of(a), batch.page_table.tokens_of(b)) - 1;
        std::int64_t same = 0;
        while (same < keys && batch.page_table.slot(a, same) == batch.page_table.slot(b, same)) {
          ++same;
        }
        longest = std::max(longest, same / kPartitionKeys);
      }
      EXPECT_EQ(reached[a], longest);
    }
  }
}

}  // namespace
}  // namespace stemma
