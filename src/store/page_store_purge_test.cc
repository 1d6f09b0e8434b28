// A purge: what it says is gone is found no more, by nobody, not after a crash, not where the index
// is lost; what it did not get to it goes on with.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <array>

#include "stemma/log.h"
#include "store/disk_store_fixture.h"
#include "tier/guarded_store.h"
#include "tier/memory_page_store.h"

namespace stemma {
namespace {

using ::testing::Each;

// Of another namespace than small_format's pages.
PageFormat other_format() {
  PageFormat format = small_format();
  format.dtype = DType::kBF16;
  return format;
}

std::vector<NamespaceFamily> namespace_of(std::span<const TestPage> pages) {
  return {family_of(pages.front().identity().namespace_digest)};
}

class DiskPurgeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_sink({});
    ASSERT_TRUE(f.open());
    ASSERT_THAT(f.put_all(ours), Each(PageVerdict::kDone));
    ASSERT_THAT(f.put_all(others), Each(PageVerdict::kDone));
  }
  PurgeOutcome purge(std::span<const NamespaceFamily> namespaces) {
    return f.store->purge(namespaces, f.soon());
  }
  void expect_found(std::int64_t ours_found, std::int64_t others_found) {
    EXPECT_EQ(f.count_right(ours), ours_found);
    EXPECT_EQ(f.count_right(others), others_found);
    EXPECT_EQ(f.store->usage().pages, ours_found + others_found);
  }

  DiskStoreFixture f{1};
  std::vector<TestPage> ours = make_pages(small_format(), 1, 30);
  std::vector<TestPage> others = make_pages(other_format(), 2, 20);
};

TEST_F(DiskPurgeTest, TakesTheNamespaceAndLeavesTheOthers) {
  const PurgeOutcome outcome = purge(namespace_of(ours));
  EXPECT_TRUE(outcome.status.ok());
  EXPECT_EQ(outcome.pages, 30);
  expect_found(0, 20);
  EXPECT_EQ(f.metric("purged_pages_total"), 30);
  EXPECT_EQ(purge(namespace_of(ours)).pages, 0) << "there is nothing left";
}

TEST_F(DiskPurgeTest, LastsOverARestartAndACrash) {
  EXPECT_TRUE(purge(namespace_of(ours)).status.ok());
  f.crash();
  ASSERT_TRUE(f.open());
  expect_found(0, 20);
  ASSERT_TRUE(f.open());
  expect_found(0, 20);
}

TEST_F(DiskPurgeTest, AnIndexThatIsLostDoesNotBringItBack) {
  EXPECT_TRUE(purge(namespace_of(ours)).status.ok());
  f.lose_index();
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.metric("index_rebuilds_total"), 1);
  expect_found(0, 20);
}

// Of pages that were evicted before the purge the frames lie there still, until it comes.
TEST_F(DiskPurgeTest, WhatWasEvictedBeforeDoesNotComeBackEither) {
  for (std::uint64_t i = 0; i < 8; ++i) f.put_all(make_pages(other_format(), 100 + i, 8));
  ASSERT_LT(f.count_right(ours), 30);
  EXPECT_TRUE(purge(namespace_of(ours)).status.ok());
  f.lose_index();
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.count_right(ours), 0);
  EXPECT_GT(f.store->usage().pages, 0) << "others are found anew";
}

TEST_F(DiskPurgeTest, AnIndexThatCannotBeReadDoesNotBringItBack) {
  EXPECT_TRUE(purge(namespace_of(ours)).status.ok());
  for (std::int64_t failing = 0; failing < 8; ++failing) {
    SCOPED_TRACE(failing);
    f.store.reset();
    f.disk.faults.fail_at = f.disk.operations + failing;
    ASSERT_TRUE(f.open());
    f.disk.faults = {};
    EXPECT_EQ(f.metric("index_rebuilds_total"), 0) << "it is there";
    EXPECT_EQ(f.count_right(ours), 0);
  }
  f.store.reset();
  f.disk.faults.failing = DiskVerb::kRead;
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.metric("index_rebuilds_total"), 0) << "nor when it is tried again";
}

TEST_F(DiskPurgeTest, AnIndexThatCannotBeReadOnceCostsNothing) {
  const std::int64_t slabs = std::ssize(f.disk.names()) - 1;
  f.store.reset();
  f.disk.faults.fail_at = f.disk.operations + slabs + 1;  // behind the slabs' openings and its own
  ASSERT_TRUE(f.open());
  expect_found(30, 20);
}

TEST_F(DiskPurgeTest, OfAllLeavesNoFileOfPages) {
  const PurgeOutcome outcome = purge({});
  EXPECT_TRUE(outcome.status.ok());
  EXPECT_EQ(outcome.pages, 50);
  expect_found(0, 0);
  f.crash();
  ASSERT_TRUE(f.open());
  expect_found(0, 0);
  EXPECT_THAT(f.put_all(ours), Each(PageVerdict::kDone)) << "it is used afresh";
  expect_found(30, 0);
}

// What may have been computed from a page lies as far behind in its text, or further.
TEST_F(DiskPurgeTest, OfWhatLiesBehindAPageLeavesWhatLiesBefore) {
  const PurgeOutcome outcome = f.store->purge_behind(namespace_of(ours), 12, f.soon());
  EXPECT_TRUE(outcome.status.ok());
  EXPECT_EQ(outcome.pages, 18);
  EXPECT_EQ(f.lookup(ours), 12);
  f.crash();
  ASSERT_TRUE(f.open());
  expect_found(12, 20);
  f.lose_index();
  ASSERT_TRUE(f.open());
  expect_found(12, 20);
}

// Over a restart too the index says where in its text a page is, or its frame does.
TEST_F(DiskPurgeTest, OfWhatLiesBehindAPageKnowsItInAnotherLife) {
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.store->purge_behind(namespace_of(ours), 20, f.soon()).pages, 10);
  f.lose_index();
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.store->purge_behind(namespace_of(ours), 12, f.soon()).pages, 8);
  expect_found(12, 20);
}

// Of a page of which the index does not say it, as those of before, nobody knows that it may stay.
TEST_F(DiskPurgeTest, OfWhatLiesBehindAPageTakesWhatIsOfUnknownPlace) {
  f.store.reset();
  {
    const auto files = f.disk.open();
    DiskIndex index(*files);
    const IndexContents contents = index.load(f.soon()).value();
    std::size_t next = 0;
    const auto put_next = [&](IndexCells& cells) {
      if (next == contents.pages.size()) return false;
      IndexedPage page = contents.pages[next++];
      page.ordinal = -1;
      cells.put(page);
      return true;
    };
    ASSERT_TRUE(index.rewrite(put_next, f.soon()).ok());
  }
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.store->purge_behind(namespace_of(ours), 12, f.soon()).pages, 30);
  expect_found(0, 20);
}

TEST_F(DiskPurgeTest, OfAllLeavesNothingInTheIndex) {
  f.store->describe(ours[0].identity().namespace_digest, "model=scribe");
  EXPECT_TRUE(purge({}).status.ok());
  const auto files = f.disk.open();
  EXPECT_EQ(DiskIndex(*files).load(f.soon()).value().cells, 0) << "neither keys nor descriptions";
}

TEST_F(DiskPurgeTest, IsNotConfirmedWhereTheIndexCannotBeWritten) {
  f.disk.faults.fail_at = f.disk.operations;  // the append of what it has removed
  EXPECT_FALSE(purge(namespace_of(ours)).status.ok());
  EXPECT_FALSE(f.store->read_only());
  EXPECT_TRUE(purge(namespace_of(ours)).status.ok());
}

// What overwrites the frames may never come to the disk, however often it is tried.
TEST_F(DiskPurgeTest, BehindASyncThatFailedTheStoreOnlyReads) {
  const PageRemoval removal{ours[0].key(), ours[0].frame()};
  f.store->remove({&removal, 1}, f.soon());
  f.disk.faults.failing = DiskVerb::kSync;
  EXPECT_FALSE(f.store->make_removals_last(f.soon()).ok());
  EXPECT_TRUE(f.store->read_only());
}

// A file that went may be back behind a loss of power.
TEST_F(DiskPurgeTest, BehindASyncOfTheDirectoryThatFailedTheStoreOnlyReads) {
  f.disk.faults.fail_at = f.disk.operations;
  f.disk.faults.sys_errno = ENOSPC;
  ASSERT_EQ(f.put(TestPage(other_format(), 3, 0)), PageVerdict::kDone);
  ASSERT_LT(f.store->usage().pages, 51) << "a slab went for it";
  f.disk.faults = {.failing = DiskVerb::kSyncDirectory};
  EXPECT_FALSE(purge(namespace_of(others)).status.ok());
  EXPECT_TRUE(f.store->read_only());
}

TEST_F(DiskPurgeTest, OfAFileThatCouldNotBeOpenedTheRoomIsThereAgain) {
  f.store.reset();
  f.disk.faults.fail_at = f.disk.operations;
  ASSERT_TRUE(f.open());
  f.disk.faults = {};
  const std::int64_t before = f.store->usage().bytes;
  EXPECT_GE(before, f.disk.used_bytes());
  EXPECT_TRUE(purge({}).status.ok());
  EXPECT_EQ(f.store->usage().bytes, f.disk.used_bytes());
}

TEST_F(DiskPurgeTest, TheSamePagesCanBeStoredAgain) {
  EXPECT_TRUE(purge(namespace_of(ours)).status.ok());
  EXPECT_THAT(f.put_all(ours), Each(PageVerdict::kDone));
  f.crash();
  ASSERT_TRUE(f.open());
  expect_found(30, 20);
}

// Whatever operation fails, what is left is found or is not, and asking again ends it.
TEST_F(DiskPurgeTest, AfterAnErrorItIsAskedAgain) {
  for (std::int64_t failing = 0; failing < 6; ++failing) {
    SCOPED_TRACE(failing);
    DiskStoreFixture fixture(static_cast<std::uint64_t>(failing) + 7);
    ASSERT_TRUE(fixture.open());
    fixture.put_all(ours);
    fixture.put_all(others);
    fixture.disk.faults.fail_at = fixture.disk.operations + failing;
    PurgeOutcome outcome = fixture.store->purge(namespace_of(ours), fixture.soon());
    EXPECT_EQ(fixture.count_right(ours), 0) << "nobody finds it meanwhile";
    fixture.disk.faults = {};
    if (fixture.store->read_only()) {  // only a restart makes it writable
      ASSERT_TRUE(fixture.open());
    }
    outcome = fixture.store->purge(namespace_of(ours), fixture.soon());
    EXPECT_TRUE(outcome.status.ok()) << to_string(outcome.status.error());
    fixture.crash();
    ASSERT_TRUE(fixture.open());
    EXPECT_EQ(fixture.count_right(ours), 0);
    EXPECT_EQ(fixture.count_right(others), 20);
  }
}

// The power goes at each operation of it in turn: what it confirmed is gone, nothing else is lost.
TEST_F(DiskPurgeTest, ALossOfPowerAtAnyTimeLosesNothingElse) {
  for (const bool all : {false, true}) {
    for (std::int64_t at = 0; at < 24; ++at) {
      SCOPED_TRACE(at);
      DiskStoreFixture fixture(static_cast<std::uint64_t>(at) + 70);
      ASSERT_TRUE(fixture.open());
      fixture.put_all(ours);
      fixture.put_all(others);
      fixture.disk.faults.power_off_at = fixture.disk.operations + at;
      const auto which = all ? std::vector<NamespaceFamily>() : namespace_of(ours);
      const bool done = fixture.store->purge(which, fixture.soon()).status.ok();
      fixture.disk.faults = {};
      fixture.crash();
      ASSERT_TRUE(fixture.open());
      EXPECT_TRUE(!done || fixture.count_right(ours) == 0);
      EXPECT_TRUE(all || fixture.count_right(others) == 20);
      for (const TestPage& page : ours) EXPECT_NE(fixture.serve(page), Served::kWrong);
    }
  }
}

// In the life in which the purge comes some file cannot be opened or read; in the next one it can.
TEST_F(DiskPurgeTest, WhatCouldNotBeReadThenDoesNotComeBack) {
  for (const bool all : {false, true}) {
    for (std::int64_t failing = 0; failing < 8; ++failing) {
      SCOPED_TRACE(failing);
      DiskStoreFixture fixture(static_cast<std::uint64_t>(failing) + 150);
      ASSERT_TRUE(fixture.open());
      fixture.put_all(ours);
      fixture.store.reset();
      fixture.disk.faults.fail_at = fixture.disk.operations + failing;
      const bool opened = fixture.open();
      fixture.disk.faults = {};
      if (!opened) continue;
      const auto which = all ? std::vector<NamespaceFamily>() : namespace_of(ours);
      const Status purged = fixture.store->purge(which, fixture.soon()).status;
      EXPECT_TRUE(purged.ok()) << to_string(purged.error());
      fixture.crash();
      ASSERT_TRUE(fixture.open());
      EXPECT_EQ(fixture.count_right(ours), 0);
      fixture.lose_index();
      ASSERT_TRUE(fixture.open());
      EXPECT_EQ(fixture.count_right(ours), 0) << "nor without the index";
    }
  }
}

// In the life in which the purge comes the directory does not say how large its files are.
TEST_F(DiskPurgeTest, WhatHadNoSizeThenDoesNotComeBack) {
  f.store.reset();
  f.disk.faults.tells_sizes = false;
  ASSERT_TRUE(f.open());
  f.disk.faults = {};
  EXPECT_TRUE(purge(namespace_of(ours)).status.ok());
  f.crash();
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.count_right(ours), 0);
  f.lose_index();
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.count_right(ours), 0) << "nor without the index";
}

// A full disk loses a slab without a word in the index, and nobody syncs the directory for it.
TEST_F(DiskPurgeTest, ASlabThatWentForRoomDoesNotComeBackWithALossOfPower) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    DiskStoreFixture fixture(seed);
    ASSERT_TRUE(fixture.open());
    fixture.put_all(ours);
    fixture.put_all(others);
    fixture.disk.faults.fail_at = fixture.disk.operations;
    fixture.disk.faults.sys_errno = ENOSPC;
    ASSERT_EQ(fixture.put(TestPage(other_format(), 3, 0)), PageVerdict::kDone);
    fixture.disk.faults = {};
    ASSERT_LT(fixture.store->usage().pages, 51);
    ASSERT_TRUE(fixture.store->purge(namespace_of(ours), fixture.soon()).status.ok());
    fixture.crash();
    ASSERT_TRUE(fixture.open());
    EXPECT_EQ(fixture.count_right(ours), 0);
  }
}

TEST_F(DiskPurgeTest, OfAllIsNotConfirmedWhileAFileCannotBeRemoved) {
  f.disk.faults.failing = DiskVerb::kRemove;
  for (int call = 0; call < 3; ++call) EXPECT_FALSE(purge({}).status.ok()) << call;
  EXPECT_FALSE(purge(namespace_of(ours)).status.ok())
      << "whose pages it holds nobody knows any more";
  f.disk.faults = {};
  EXPECT_TRUE(purge({}).status.ok());
  f.lose_index();
  ASSERT_TRUE(f.open());
  expect_found(0, 0);
}

TEST_F(DiskPurgeTest, BeyondItsDeadlineItGoesOnWhenItIsAskedAgain) {
  DiskStoreFixture fixture(9);
  ASSERT_TRUE(fixture.open(32 << 20, 1 << 20));
  const auto many = make_pages(small_format(), 3, 1500);
  fixture.put_all(many);
  const std::int64_t stored = fixture.store->usage().pages;
  ASSERT_GT(stored, 1100);
  fixture.disk.faults.latency_us = 1000;
  PurgeOutcome outcome;
  std::int64_t pages = 0;
  for (int calls = 0; calls < 20; ++calls) {
    outcome = fixture.store->purge(namespace_of(many), fixture.clock.now_us() + 600'000);
    pages += outcome.pages;
    if (outcome.status.ok()) break;
    fixture.disk.let_go();  // what was given up ends
  }
  EXPECT_TRUE(outcome.status.ok()) << to_string(outcome.status.error());
  EXPECT_EQ(pages, stored);
}

TEST_F(DiskPurgeTest, WhereOnlyOldFramesAreLeftItGetsOnAllTheSame) {
  DiskStoreFixture fixture(10);
  ASSERT_TRUE(fixture.open(32 << 20, 4 << 20));
  fixture.put_all(make_pages(small_format(), 3, 3));
  ASSERT_TRUE(fixture.open(32 << 20, 4 << 20));  // what lies in all other slots nobody knows now
  fixture.disk.faults.latency_us = 1000;
  PurgeOutcome outcome;
  int calls = 0;
  for (bool done = false; !done && calls < 20; ++calls) {
    outcome = fixture.store->purge(namespace_of(others), fixture.clock.now_us() + 100'000);
    EXPECT_EQ(outcome.pages, 0);
    done = outcome.status.ok();
    EXPECT_TRUE(done || outcome.got_on());
    fixture.disk.let_go();  // what was given up ends
  }
  EXPECT_TRUE(outcome.status.ok()) << to_string(outcome.status.error());
  EXPECT_GT(calls, 2);
}

TEST(MemoryPurge, TakesTheNamespaceOrAll) {
  MemoryPageStore store(Tier::kDisk, 1 << 30);
  const auto ours = make_pages(small_format(), 1, 3);
  const auto others = make_pages(other_format(), 2, 2);
  for (const TestPage& page : ours) put(store, page, 0);
  for (const TestPage& page : others) put(store, page, 0);
  EXPECT_EQ(store.purge(namespace_of(ours), 0).pages, 3);
  EXPECT_EQ(serve(store, ours[0], 0), Served::kMiss);
  EXPECT_EQ(serve(store, others[0], 0), Served::kRight);
  EXPECT_EQ(store.purge({}, 0).pages, 2);
  EXPECT_EQ(store.usage().bytes, 0);
}

}  // namespace
}  // namespace stemma
