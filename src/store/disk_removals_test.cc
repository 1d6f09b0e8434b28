// Pages that were computed wrong have the right sums: once the store says that their removal lasts,
// no later life finds them, whatever was lost in between; while it cannot, it does not say so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "stemma/log.h"
#include "store/disk_store_fixture.h"

namespace stemma {
namespace {

constexpr std::uint64_t kSeed = 5;

// The frame of the same page with other bytes in its layers, under right sums.
TestPage computed_wrong(const PageFormat& format) {
  const auto layer_bytes = static_cast<std::size_t>(format.layer_bytes);
  TestPage wrong(format, kSeed);
  std::vector<std::uint32_t> sums;
  for (std::int64_t layer = 0; layer < format.layers; ++layer) {
    const std::size_t at =
        frame_body_offset(format) + static_cast<std::size_t>(layer) * layer_bytes;
    const std::span<std::byte> bytes = wrong.frame().subspan(at, layer_bytes);
    for (std::byte& byte : bytes) byte ^= std::byte{0xFF};
    sums.push_back(crc32c(bytes));
  }
  encode_frame(format, wrong.identity(), sums, 9, wrong.frame());
  return wrong;
}

class DiskRemovalsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_sink({});
    ASSERT_TRUE(f.open());
    ASSERT_EQ(f.put(wrong), PageVerdict::kDone);
    ASSERT_EQ(f.serve(right), Served::kWrong) << "nobody but an audit can tell";
  }
  void remove() {
    const PageRemoval removal{wrong.key(), wrong.frame()};
    f.store->remove({&removal, 1}, f.soon());
  }
  bool is_found() { return f.lookup({&wrong, 1}) == 1; }
  bool lasts() { return f.store->make_removals_last(f.soon()).ok(); }
  // The first time that it can be said to last, after the fault has gone.
  void expect_gone_for_good() {
    remove();
    EXPECT_TRUE(lasts());
    f.crash();
    ASSERT_TRUE(f.open());
    EXPECT_EQ(f.serve(right), Served::kMiss);
    f.lose_index();
    ASSERT_TRUE(f.open());
    EXPECT_EQ(f.serve(right), Served::kMiss);
  }

  DiskStoreFixture f{1};
  TestPage right{small_format(), kSeed};
  TestPage wrong = computed_wrong(small_format());
};

TEST_F(DiskRemovalsTest, ACrashAndALostIndexDoNotBringItBack) {
  expect_gone_for_good();
}

TEST_F(DiskRemovalsTest, ADamagedRecordOfItDoesNotBringItBack) {
  remove();
  EXPECT_TRUE(lasts());
  std::vector<std::byte> index = f.disk.file_or_null("index")->now;
  index[index.size() - 1] ^= std::byte{1};  // the last record, which is that of the removal
  f.store.reset();                          // and writes it anew
  f.disk.file_or_null("index")->now = index;
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.metric("bad_index_cells_total"), 1);
  EXPECT_EQ(f.serve(right), Served::kMiss);
}

// The removal of one page and the storing of the next in its slot are two records: where both are
// lost, the index gives the slot to the first, whose frame has gone.
class LostRecords : public DiskRemovalsTest {
 protected:
  void SetUp() override {
    set_log_sink({});
    ASSERT_TRUE(f.open());
    ASSERT_THAT(f.put_all(others), ::testing::Each(PageVerdict::kDone));
    ASSERT_EQ(f.put(first), PageVerdict::kDone);
    const PageRemoval removal{first.key(), first.frame()};
    f.store->remove({&removal, 1}, f.soon());
    ASSERT_EQ(f.put(second), PageVerdict::kDone);
    f.crash();
    SimulatedDisk::File& index = *f.disk.file_or_null("index");
    const auto cell = static_cast<std::size_t>(kIndexCellBytes);
    for (const std::size_t from_end : {cell, 2 * cell}) {
      index.now[index.now.size() - from_end + 40] ^= std::byte{1};
    }
    index.durable = index.now;
    ASSERT_TRUE(f.open());
    ASSERT_EQ(f.metric("bad_index_cells_total"), 2);
    ASSERT_TRUE(f.open());
    ASSERT_EQ(f.metric("bad_index_cells_total"), 0) << "it is whole again";
  }
  bool purge_second() {
    const NamespaceFamily family = family_of(second.identity().namespace_digest);
    return f.store->purge({&family, 1}, f.soon()).status.ok();
  }
  void expect_second_gone_for_good() {
    f.lose_index();
    ASSERT_TRUE(f.open());
    EXPECT_EQ(f.serve(second), Served::kMiss);
  }

  // Of another namespace: a purge of the second one's does not look for the first.
  static PageFormat format_of_first() {
    PageFormat format = small_format();
    format.dtype = DType::kBF16;
    return format;
  }

  std::vector<TestPage> others = make_pages(small_format(), 13, 20);
  TestPage first{format_of_first(), 11};
  TestPage second{small_format(), 12};
};

TEST_F(LostRecords, WhatLiesInTheSlotOfAnotherPageDoesNotComeBackEither) {
  EXPECT_TRUE(purge_second());
  expect_second_gone_for_good();
}

TEST_F(LostRecords, CostThePagesThatTheyNamedAndNoOthers) {
  EXPECT_EQ(f.count_right(others), 20);
  const NamespaceFamily another = family_of(NamespaceDigest());
  ASSERT_TRUE(f.store->purge({&another, 1}, f.soon()).status.ok());
  EXPECT_EQ(f.count_right(others), 20);
}

TEST_F(LostRecords, APurgeIsNotDoneBeforeItHasLookedAtEverySlot) {
  const NamespaceFamily another = family_of(NamespaceDigest());
  f.disk.faults.latency_us = 1'100'000;
  EXPECT_FALSE(f.store->purge({&another, 1}, f.soon()).status.ok());
  f.disk.faults.latency_us = 0;
  f.disk.let_go();
  EXPECT_EQ(f.lookup(others), 20) << "of what was not read in time nothing is known";
  EXPECT_TRUE(f.store->purge({&another, 1}, f.soon()).status.ok());
  expect_second_gone_for_good();
}

TEST_F(DiskRemovalsTest, WhatWasEvictedBeforeDoesNotComeBackEither) {
  for (std::uint64_t i = 0; i < 20; ++i) f.put_all(make_pages(small_format(), 100 + i, 6));
  ASSERT_EQ(f.serve(right), Served::kMiss);
  expect_gone_for_good();
}

TEST_F(DiskRemovalsTest, WhatAReadCouldNotGetDoesNotComeBackEither) {
  f.disk.faults.failing = DiskVerb::kRead;
  EXPECT_EQ(f.serve(right), Served::kMiss);
  f.disk.faults = {};
  EXPECT_TRUE(lasts());
  f.crash();
  ASSERT_TRUE(f.open());
  EXPECT_FALSE(is_found()) << "nor is it said to be there";
  expect_gone_for_good();
}

TEST_F(DiskRemovalsTest, WhatASlabHasThatCouldNotBeOpenedDoesNotComeBackEither) {
  f.store.reset();
  f.disk.faults.fail_at = f.disk.operations;
  ASSERT_TRUE(f.open());
  f.disk.faults = {};
  ASSERT_EQ(f.serve(right), Served::kMiss);
  expect_gone_for_good();
}

TEST_F(DiskRemovalsTest, AStoreThatOnlyReadsDoesNotSayThatItLasts) {
  f.disk.faults.failing = DiskVerb::kSync;
  f.put(TestPage(small_format(), 6));
  ASSERT_TRUE(f.store->read_only());
  f.disk.faults = {};
  remove();
  EXPECT_EQ(f.serve(right), Served::kMiss);
  EXPECT_FALSE(lasts());
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.serve(right), Served::kMiss) << "it tried";
}

TEST_F(DiskRemovalsTest, WhileAnOperationIsOverdueItDoesNotSayThatItLasts) {
  f.disk.faults.hang_share = 1;
  f.put(TestPage(small_format(), 6));
  f.disk.faults = {};
  remove();
  EXPECT_FALSE(lasts());
  f.disk.let_go();
  EXPECT_TRUE(lasts());
  f.lose_index();
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.serve(right), Served::kMiss);
}

// Any one operation of it fails, with an error or for as long as the call lasts.
TEST_F(DiskRemovalsTest, WhateverFailsItSaysSoAndDoesItWhenItIsAskedAgain) {
  for (const bool hangs : {false, true}) {
    for (std::int64_t at = 0; at < 6; ++at) {
      SCOPED_TRACE(std::to_string(at) + (hangs ? " hangs" : " fails"));
      f.disk.faults = {};
      ASSERT_TRUE(f.open());
      ASSERT_EQ(f.put(wrong), PageVerdict::kDone);
      f.disk.faults.fail_at = hangs ? -1 : f.disk.operations + at;
      f.disk.faults.hang_share = hangs ? 0.3 : 0;
      remove();
      const bool said = !is_found() && lasts();
      f.disk.faults = {};
      f.disk.let_go();
      if (f.store->read_only()) {
        EXPECT_FALSE(said);
        ASSERT_TRUE(f.open());
      }
      EXPECT_TRUE(!said || f.serve(right) == Served::kMiss);
      expect_gone_for_good();
    }
  }
}

}  // namespace
}  // namespace stemma
