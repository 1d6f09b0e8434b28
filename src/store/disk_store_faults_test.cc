// The disk store on a disk that loses, tears, fails, fills up, hangs and lies (docs/FAULTS.md).
// What is served is right or a miss, always; what was confirmed is there after the power came back.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "base/long_tests_fixture.h"
#include "stemma/log.h"
#include "store/disk_store_fixture.h"

namespace stemma {
namespace {

using ::testing::Each;

class DiskStoreFaults : public ::testing::Test {
 protected:
  void SetUp() override { set_log_sink({}); }
};

// Writes, uses, removes and evicts: 30 calls over a store that holds fewer pages than that.
void run_script(DiskStoreFixture& f, std::span<const TestPage> pages) {
  for (std::size_t first = 0; first + 6 <= pages.size(); first += 5) {
    f.put_all(pages.subspan(first, 6));
    f.lookup(pages.first(3));
    if (first % 20 == 0) {
      const PageRemoval removal{pages[first + 1].key(), pages[first + 1].frame()};
      f.store->remove(std::span(&removal, 1), f.soon());
    }
  }
}

std::vector<bool> found_by_lookup(DiskStoreFixture& f, std::span<const TestPage> pages) {
  std::vector<bool> found;
  for (const TestPage& page : pages) {
    found.push_back(f.store->lookup(std::array{page.key()}, 0).value() == 1);
  }
  return found;
}

// Faults 1, 2 and 30: at every single operation the power goes; afterwards each page is whole or
// absent, and every page that the store had is there.
TEST_F(DiskStoreFaults, PowerLossAtEveryOperationLeavesEachPageWholeOrAbsent) {
  const auto pages = make_pages(small_format(), 1, 120);
  std::int64_t operations = 0;
  {
    DiskStoreFixture f(1);
    ASSERT_TRUE(f.open(kDiskBytesMin));
    run_script(f, pages);
    operations = f.disk.operations;
    EXPECT_GT(f.metric("evicted_pages_total"), 40);
    EXPECT_GT(f.metric("index_rewrites_total"), 0);
  }
  for (std::int64_t at = 0; at < operations; ++at) {
    SCOPED_TRACE(at);
    DiskStoreFixture f(static_cast<std::uint64_t>(at));
    f.disk.faults.power_off_at = at;
    std::vector<bool> found(pages.size());
    if (f.open(kDiskBytesMin)) {
      run_script(f, pages);
      found = found_by_lookup(f, pages);
    }
    f.crash(at % 2 == 0 ? 512 : 4096);
    f.disk.faults = {};
    ASSERT_TRUE(f.open(kDiskBytesMin));
    for (std::size_t i = 0; i < pages.size(); ++i) {
      const Served served = f.serve(pages[i]);
      ASSERT_TRUE(served == Served::kRight || (served == Served::kMiss && !found[i])) << i;
    }
    ASSERT_EQ(f.put(pages[119]), PageVerdict::kDone);
    ASSERT_LE(f.disk.used_bytes(), kDiskBytesMin);
  }
}

// One operation fails, whichever it is, with each error: no wrong page, and the store goes on or,
// if it was a sync, only reads.
TEST_F(DiskStoreFaults, AnyOneOperationMayFail) {
  const auto pages = make_pages(small_format(), 2, 120);
  for (const int sys_errno : {EIO, ENOSPC}) {
    for (std::int64_t at = 0;; ++at) {
      SCOPED_TRACE(std::to_string(at) + " errno " + std::to_string(sys_errno));
      DiskStoreFixture f(2);
      f.disk.faults.fail_at = at;
      f.disk.faults.sys_errno = sys_errno;
      if (!f.open(kDiskBytesMin)) {
        ASSERT_LT(at, 3);
        continue;
      }
      run_script(f, pages);
      if (f.disk.operations <= at) break;  // all have had their turn
      ASSERT_LE(f.disk.used_bytes(), kDiskBytesMin);
      const std::vector<bool> found = found_by_lookup(f, pages);
      for (std::size_t i = 0; i < pages.size(); ++i) {
        ASSERT_EQ(f.serve(pages[i]), found[i] ? Served::kRight : Served::kMiss) << i;
      }
      const TestPage another(small_format(), 999);
      f.clock.advance_us(61'000'000);  // a slab that could not be made is tried again
      ASSERT_EQ(f.put(another), f.store->read_only() ? PageVerdict::kRefused : PageVerdict::kDone);
      ASSERT_TRUE(f.open(kDiskBytesMin));
      ASSERT_EQ(f.put(another), PageVerdict::kDone);
    }
  }
}

// Fault 7.
TEST_F(DiskStoreFaults, AfterAFailedSyncTheStoreOnlyReads) {
  DiskStoreFixture f(3);
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 3, 10);
  f.put_all(std::span(pages).first(5));
  f.disk.faults.failing = DiskVerb::kSync;
  EXPECT_EQ(f.put(pages[5]), PageVerdict::kFailed);
  EXPECT_TRUE(f.store->read_only());
  EXPECT_EQ(f.metric("read_only"), 1);
  f.disk.faults = {};  // it would work now; what it says is not believed
  EXPECT_EQ(f.put(pages[5]), PageVerdict::kRefused);
  EXPECT_EQ(f.serve(pages[5]), Served::kMiss);
  EXPECT_EQ(f.count_right(pages), 5);
  f.crash();
  ASSERT_TRUE(f.open());
  EXPECT_FALSE(f.store->read_only());
  EXPECT_EQ(f.count_right(pages), 5);
  EXPECT_EQ(f.put(pages[5]), PageVerdict::kDone);
}

// Fault 5: a disk smaller than the limit.
TEST_F(DiskStoreFaults, AFullDiskIsALowerLimitUntilThereIsRoomAgain) {
  DiskStoreFixture f(4);
  f.disk.faults.space_bytes = 300 << 10;
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 4, 100);
  for (const TestPage& page : pages) {
    ASSERT_EQ(f.put(page), PageVerdict::kDone);
    ASSERT_EQ(f.serve(page), Served::kRight);
  }
  const std::int64_t held = f.store->usage().pages;
  EXPECT_GT(held, 10);
  f.disk.faults.space_bytes = std::numeric_limits<std::int64_t>::max();
  f.clock.advance_us(120'000'000);
  EXPECT_THAT(f.put_all(make_pages(small_format(), 5, 60)), Each(PageVerdict::kDone));
  EXPECT_GT(f.store->usage().pages, held + 20);
}

// A disk of 1,500 KiB that is full of them, and of their slabs.
std::vector<TestPage> fill_with_large_pages(DiskStoreFixture& f) {
  PageFormat large = small_format();
  large.layer_bytes *= 4;
  f.disk.faults.space_bytes = 1500 << 10;
  EXPECT_TRUE(f.open(64 << 20, 128 << 10));
  std::vector<TestPage> pages = make_pages(large, 1, 200);
  for (std::size_t i = 0; i < pages.size(); i += 20) f.put_all(std::span(pages).subspan(i, 20));
  return pages;
}

// Pages of a size that has no slab take one from another, not one a write.
TEST_F(DiskStoreFaults, OnAFullDiskASlabThatGoesForPagesOfAnotherSizeGivesThemRoom) {
  DiskStoreFixture f(4);
  const auto first = fill_with_large_pages(f);
  const std::int64_t held = f.count_right(first);
  f.clock.advance_us(61'000'000);
  const auto others = make_pages(small_format(), 2, 40);
  for (std::size_t i = 0; i < others.size(); i += 4) {
    EXPECT_THAT(f.put_all(std::span(others).subspan(i, 4)), Each(PageVerdict::kDone));
  }
  EXPECT_GT(f.count_right(first), held / 2);
}

// Nor are they refused for long where the index takes the room of their only slab.
TEST_F(DiskStoreFaults, ASizeThatLosesItsOnlySlabToTheIndexGetsAnother) {
  DiskStoreFixture f(1);
  const auto first = fill_with_large_pages(f);
  f.clock.advance_us(61'000'000);
  std::int64_t refused = 0;
  for (std::uint64_t i = 0; i < 60; ++i) {
    const auto others = make_pages(small_format(), 2 + i, 4);
    const auto verdicts = f.put_all(others);
    refused += std::ranges::count(verdicts, PageVerdict::kDone) == 4 ? 0 : 1;
  }
  EXPECT_LE(refused, 2);
  EXPECT_GT(f.count_right(first), 20);
}

// No slab goes while none can be made, as long as the disk was full a moment ago.
TEST_F(DiskStoreFaults, OnAFullDiskNoSlabGoesForNothing) {
  PageFormat large = small_format();
  large.layer_bytes *= 4;
  DiskStoreFixture f(4);
  ASSERT_TRUE(f.open(64 << 20, 128 << 10));
  const auto first = make_pages(small_format(), 1, 100);
  f.put_all(first);
  f.disk.faults.space_bytes = 0;  // as where others take what is freed
  const auto others = make_pages(large, 2, 60);
  for (std::size_t i = 0; i < others.size(); i += 4) {
    f.put_all(std::span(others).subspan(i, 4));
  }
  EXPECT_GT(f.count_right(first), 50);
}

TEST_F(DiskStoreFaults, ADiskWithLessRoomThanASlabIsUsedAllTheSame) {
  DiskStoreFixture f(4);
  f.disk.faults.space_bytes = 700 << 10;
  ASSERT_TRUE(f.open(std::int64_t{64} << 20, 1 << 20));
  const auto pages = make_pages(small_format(), 1, 30);
  EXPECT_THAT(f.put_all(pages), Each(PageVerdict::kDone));
  EXPECT_EQ(f.count_right(pages), 30);
}

// One that is full before there is any slab is asked once a minute, not at each write.
TEST_F(DiskStoreFaults, AFullDiskWithoutASlabIsLeftAloneForAWhile) {
  DiskStoreFixture f(4);
  ASSERT_TRUE(f.open());
  f.disk.faults.space_bytes = f.disk.used_bytes();
  const auto pages = make_pages(small_format(), 1, 10);
  EXPECT_EQ(f.put(pages[0]), PageVerdict::kRefused);
  const std::int64_t asked = f.disk.operations;
  EXPECT_THAT(f.put_all(pages), Each(PageVerdict::kRefused));
  EXPECT_EQ(f.disk.operations, asked);
  f.disk.faults = {};
  f.clock.advance_us(61'000'000);
  EXPECT_THAT(f.put_all(pages), Each(PageVerdict::kDone));
}

// Whatever the room, it is not given to a slab beside which the index has none, again and again.
TEST_F(DiskStoreFaults, ADiskWithRoomForASlabAloneIsUsedAllTheSame) {
  for (const std::int64_t space_bytes : {64 << 10, 128 << 10, 256 << 10}) {
    SCOPED_TRACE(space_bytes);
    DiskStoreFixture f(4);
    f.disk.faults.space_bytes = space_bytes;
    ASSERT_TRUE(f.open(std::int64_t{64} << 20, 128 << 10));
    const auto pages = make_pages(small_format(), 1, 60);
    std::int64_t stored = 0;
    for (const TestPage& page : pages) stored += f.put(page) == PageVerdict::kDone ? 1 : 0;
    EXPECT_GE(stored, 57);
    EXPECT_GE(f.count_right(pages), 4);
  }
}

TEST_F(DiskStoreFaults, ADiskThatIsFullForTheIndexGivesUpASlab) {
  DiskStoreFixture f(5);
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 5, 30);
  f.put_all(pages);
  f.disk.faults.space_bytes = f.disk.used_bytes();
  const TestPage another(small_format(), 55);
  EXPECT_EQ(f.put(another), PageVerdict::kDone);
  EXPECT_EQ(f.serve(another), Served::kRight);
  EXPECT_GT(f.count_right(pages), 10);
  f.crash();
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.serve(another), Served::kRight);
}

// What it gives up frees nothing while a reader has it open: no more go for the same room.
TEST_F(DiskStoreFaults, OnAFullDiskASlabThatIsReadGoesAlone) {
  DiskStoreFixture f(5);
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 5, 60);
  f.put_all(pages);
  const auto others = make_pages(small_format(), 55, 3);
  f.disk.faults.space_bytes = f.disk.used_bytes();
  f.disk.while_reading = [&] {
    for (const TestPage& other : others) EXPECT_NE(f.put(other), PageVerdict::kDone);
    EXPECT_EQ(f.disk.used_bytes(), f.disk.faults.space_bytes) << "nothing of it is free yet";
    EXPECT_EQ(f.store->usage().bytes, f.disk.used_bytes());
  };
  EXPECT_EQ(f.serve(pages[55]), Served::kMiss) << "it went while it was read";
  const std::int64_t pages_of_slab = f.metric("evicted_pages_total");
  EXPECT_EQ(f.count_right(pages), 60 - pages_of_slab);
  EXPECT_LE(pages_of_slab, 8) << "of one slab";
  EXPECT_THAT(f.put_all(others), Each(PageVerdict::kDone));
  EXPECT_EQ(f.metric("evicted_pages_total"), pages_of_slab) << "its room has come";
}

// It would free nothing as long as a read that was given up may still be at work on it.
TEST_F(DiskStoreFaults, OnAFullDiskASlabGoesThatNobodyReads) {
  DiskStoreFixture f(5);
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 5, 60);
  f.put_all(pages);
  f.disk.faults.hang_share = 1;
  EXPECT_EQ(f.serve(pages[55]), Served::kMiss);
  f.disk.faults = {};
  f.disk.faults.space_bytes = f.disk.used_bytes();
  const TestPage another(small_format(), 55);
  EXPECT_EQ(f.put(another), PageVerdict::kDone);
  EXPECT_LE(f.metric("evicted_pages_total"), 8) << "of one slab";
  EXPECT_EQ(f.serve(pages[55]), Served::kRight) << "not of the one that was read";
}

// It may be a while before anybody reads again.
TEST_F(DiskStoreFaults, ASlabThatWentHasItsRoomTillAReadThatWasGivenUpHasEnded) {
  DiskStoreFixture f(5);
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 5, 60);
  f.put_all(pages);
  f.disk.faults.hang_share = 1;
  EXPECT_EQ(f.serve(pages[0]), Served::kMiss);
  f.disk.faults = {};
  ASSERT_TRUE(f.store->purge({}, f.soon()).status.ok());
  EXPECT_EQ(f.store->usage().pages, 0);
  EXPECT_EQ(f.store->usage().bytes, f.disk.used_bytes());
  EXPECT_GT(f.disk.used_bytes(), 60'000) << "of one slab";
  f.disk.let_go();
  EXPECT_EQ(f.put(TestPage(small_format(), 55)), PageVerdict::kDone);
  EXPECT_LT(f.disk.used_bytes(), 120'000) << "of its own";
  EXPECT_EQ(f.store->usage().bytes, f.disk.used_bytes());
}

// The system says so in another word where it is the user's share of the disk that is full.
TEST_F(DiskStoreFaults, AQuotaThatIsReachedIsADiskThatIsFull) {
  DiskStoreFixture f(5);
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 5, 30);
  f.put_all(pages);
  f.disk.faults.full_errno = EDQUOT;
  f.disk.faults.space_bytes = f.disk.used_bytes();
  for (const TestPage& another : make_pages(small_format(), 55, 20)) {
    EXPECT_EQ(f.put(another), PageVerdict::kDone);
    EXPECT_EQ(f.serve(another), Served::kRight);
  }
  EXPECT_GT(f.count_right(pages), 0);
}

// A loss of power may tear what was being committed: what was committed before is not looked at.
TEST_F(DiskStoreFaults, ATornRecordCostsItsPageAndNoTimeAtOpening) {
  DiskStoreFixture f(4);
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 1, 60);
  for (const TestPage& page : pages) f.put(page);
  f.store.reset();
  std::vector<std::byte>& index = f.disk.file_or_null("index")->now;
  index.resize(index.size() - 60);
  f.disk.faults.latency_us = 5'000'000;
  ASSERT_TRUE(f.open());
  f.disk.faults = {};
  EXPECT_EQ(f.metric("bad_index_cells_total"), 1);
  EXPECT_EQ(f.count_right(pages), 59);
}

// Fault 6.
TEST_F(DiskStoreFaults, EveryCallReturnsByItsDeadlineWhateverTheDiskDoes) {
  for (std::int64_t latency_us = 1'000; latency_us < 1'000'000'000'000'000; latency_us *= 32) {
    DiskStoreFixture f(6);
    ASSERT_TRUE(f.open());
    const auto pages = make_pages(small_format(), 6, 20);
    f.put_all(std::span(pages).first(10));
    f.disk.faults.latency_us = latency_us;
    for (const TestPage& page : pages) {
      const std::int64_t read_deadline_us = f.soon();
      const Served served = f.serve(page);
      EXPECT_TRUE(served == Served::kRight || served == Served::kMiss);
      ASSERT_LE(f.clock.now_us(), read_deadline_us);
      const std::int64_t deadline_us = f.soon();
      f.put(page);
      ASSERT_LE(f.clock.now_us(), deadline_us);
    }
    f.disk.faults = {};
    f.disk.let_go();
    EXPECT_THAT(f.put_all(pages), Each(PageVerdict::kDone)) << latency_us;
    EXPECT_EQ(f.count_right(pages), 20);
  }
}

// A page goes when a new index that has it has been begun, and not been given its name.
TEST_F(DiskStoreFaults, AnIndexThatIsWrittenInSeveralCallsHasNothingThatWentMeanwhile) {
  constexpr std::int64_t kOperationUs = 1'000;
  DiskStoreFixture f(26);
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 26, 200);
  f.put_all(std::span(pages).first(90));
  const std::int64_t rewrites = f.metric("index_rewrites_total");
  f.disk.faults.latency_us = kOperationUs;
  const auto time_for_a_page = [&] { return f.clock.now_us() + 9 * kOperationUs / 2; };
  std::size_t next = 90;
  while (put(*f.store, pages[next], time_for_a_page()) == PageVerdict::kDone) {
    next = next == 199 ? 0 : next + 1;
  }
  ASSERT_EQ(f.metric("index_rewrites_total"), rewrites);
  ASSERT_GT(f.metric("written_pages_total"), 500) << "until the index is full";
  f.disk.faults = {};
  f.disk.let_go();
  const TestPage& gone = pages[next - 1];
  const PageRemoval removal{gone.key(), gone.frame()};
  f.store->remove(std::span(&removal, 1), f.soon());
  EXPECT_EQ(f.put(pages[next]), PageVerdict::kDone);
  EXPECT_EQ(f.metric("index_rewrites_total"), rewrites + 1);
  EXPECT_EQ(f.metric("removed_pages_total"), 1);
  const std::int64_t right = f.count_right(pages);
  f.crash();
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.count_right(pages), right);
  EXPECT_EQ(f.serve(pages[next]), Served::kRight);
  EXPECT_EQ(f.serve(gone), Served::kMiss);
}

// Its room is asked for, but does not come in time; nor is there time left to remove it.
TEST_F(DiskStoreFaults, ASlabThatIsNotMadeInTimeCountsUntilItIsRemoved) {
  constexpr std::int64_t kOperationUs = 1'000;
  DiskStoreFixture f(27);
  ASSERT_TRUE(f.open());
  const TestPage page(small_format(), 27);
  f.disk.faults.starts_late = false;
  for (int i = 0; i < 40; ++i) {
    f.disk.faults.latency_us = kOperationUs;
    EXPECT_NE(put(*f.store, page, f.clock.now_us() + 3 * kOperationUs / 2), PageVerdict::kDone);
    EXPECT_GT(f.store->usage().bytes, 60'000) << "it may be there";
    f.disk.let_go();
    EXPECT_LE(f.disk.used_bytes(), DiskStoreFixture::kBytesMax);
    f.clock.advance_us(61'000'000);  // a slab that could not be made is tried again
  }
  f.disk.faults = {};
  EXPECT_EQ(f.put(page), PageVerdict::kDone);
  EXPECT_EQ(f.store->usage().bytes, f.disk.used_bytes());
}

TEST_F(DiskStoreFaults, NothingIsWrittenWhileAnOperationIsOverdue) {
  DiskStoreFixture f(7);
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 7, 3);
  f.put(pages[0]);
  f.disk.faults.hang_share = 1;
  EXPECT_EQ(f.put(pages[1]), PageVerdict::kFailed);
  f.disk.faults = {};
  const std::int64_t operations = f.disk.operations;
  EXPECT_EQ(f.put(pages[2]), PageVerdict::kFailed);
  EXPECT_EQ(f.disk.operations, operations);
  EXPECT_EQ(f.serve(pages[0]), Served::kRight);
  f.disk.let_go();
  EXPECT_EQ(f.put(pages[2]), PageVerdict::kDone);
  EXPECT_EQ(f.count_right(pages), 2);
}

// Faults 3 and 4, on the way: what comes back is another page, or has a bit flipped.
TEST_F(DiskStoreFaults, FlippedAndMisdirectedReadsAreNeverServed) {
  DiskStoreFixture f(8);
  const auto pages = make_pages(small_format(), 8, 40);
  ASSERT_TRUE(f.open());
  f.put_all(pages);
  f.disk.faults.flip_share = 0.3;
  f.disk.faults.misdirected_share = 0.3;
  std::int64_t right = 0;
  for (int round = 0; round < 200; ++round) {
    for (const TestPage& page : pages) {
      const Served served = f.serve(page);
      ASSERT_NE(served, Served::kWrong);
      right += served == Served::kRight ? 1 : 0;
    }
    if (round % 10 == 0) f.put_all(pages);
  }
  EXPECT_GT(right, 0);
  EXPECT_GT(f.metric("corrupt_pages_total"), 100);
}

// Fault 3, at rest: any bit of any file. A million in the long mode.
TEST_F(DiskStoreFaults, NoFlippedBitOnTheDiskIsServed) {
  const std::uint64_t seed = 20261123;
  SCOPED_TRACE(seed);
  Prng prng(seed);
  const std::int64_t flips = long_tests() ? 1'000'000 : 10'000;
  constexpr std::int64_t kFlipsAtOnce = 50;
  const auto pages = make_pages(small_format(), 9, 24);
  std::int64_t right = 0;
  for (std::int64_t flip = 0; flip < flips; flip += kFlipsAtOnce) {
    DiskStoreFixture f(seed);
    ASSERT_TRUE(f.open(kDiskBytesMin));
    f.put_all(pages);
    f.store.reset();
    const std::vector<std::string> names = f.disk.names();
    for (std::int64_t i = 0; i < kFlipsAtOnce; ++i) {
      // The index is small beside the pages, and gets as many.
      const std::string& name = names[static_cast<std::size_t>(prng.below(std::ssize(names)))];
      std::vector<std::byte>& bytes = f.disk.file_or_null(name)->now;
      bytes[static_cast<std::size_t>(prng.below(std::ssize(bytes)))] ^= std::byte{1}
                                                                        << prng.below(8);
    }
    ASSERT_TRUE(f.open(kDiskBytesMin));
    for (const TestPage& page : pages) {
      const Served served = f.serve(page);
      ASSERT_NE(served, Served::kWrong) << flip;
      right += served == Served::kRight ? 1 : 0;
    }
  }
  EXPECT_GT(right, 0);
}

// All of it at once, from a seed: random calls, faults that come and go, crashes, restarts.
void live_through(std::uint64_t seed, bool lies) {
  Prng prng(seed);
  DiskStoreFixture f(seed);
  const auto pages = make_pages(small_format(), 10, 150);
  const auto some_pages = [&] {
    const std::int64_t first = prng.below(std::ssize(pages) - 8);
    return std::span(pages).subspan(static_cast<std::size_t>(first),
                                    static_cast<std::size_t>(1 + prng.below(8)));
  };
  ASSERT_TRUE(f.open(kDiskBytesMin));
  bool rebuilt = false;  // from headers: bodies may have been torn with the index
  for (int step = 0; step < 150; ++step) {
    switch (prng.below(12)) {
      case 0:
        f.disk.faults.hang_share = 0.05;
        break;
      case 1:
        f.disk.faults.error_share = 0.02;
        break;
      case 2:
        f.disk.faults.space_bytes = f.disk.used_bytes() + prng.below(100'000);
        break;
      case 3:
        f.disk.faults.flip_share = lies ? 0.1 : 0;
        f.disk.faults.misdirected_share = lies ? 0.1 : 0;
        break;
      case 4:
      case 5:
        f.disk.faults = {};
        f.disk.let_go();
        f.clock.advance_us(prng.below(100'000'000));
        break;
      case 6:
        if (prng.below(2) == 0) f.crash(prng.below(2) == 0 ? 512 : 4096);
        f.disk.faults = {};
        f.disk.let_go();
        ASSERT_TRUE(f.open(kDiskBytesMin));
        rebuilt |= f.metric("index_rebuilds_total") > 0;
        break;
      case 7: {
        const TestPage& page = some_pages()[0];
        const PageRemoval removal{page.key(), page.frame()};
        f.store->remove(std::span(&removal, 1), f.soon());
        break;
      }
      default:
        f.put_all(some_pages());
        f.lookup(some_pages());
    }
    for (const TestPage& page : some_pages()) {
      const Served served = f.serve(page);
      ASSERT_NE(served, Served::kWrong) << "step " << step;
      ASSERT_TRUE(lies || rebuilt || served != Served::kRefusedByReader) << "step " << step;
    }
    ASSERT_LE(f.store->usage().bytes, kDiskBytesMin);
  }
  // The faults stop: everything works again.
  f.crash();
  f.disk.faults = {};
  ASSERT_TRUE(f.open(kDiskBytesMin));
  ASSERT_THAT(f.put_all(std::span(pages).first(10)), Each(PageVerdict::kDone));
  ASSERT_EQ(f.count_right(std::span(pages).first(10)), 10);
}

TEST_F(DiskStoreFaults, RandomLivesServeRightPagesOrNone) {
  const std::uint64_t first_seed = 5000;
  const std::uint64_t seeds = long_tests() ? 20'000 : 300;
  for (std::uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    live_through(seed, /*lies=*/seed % 2 == 0);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace stemma
