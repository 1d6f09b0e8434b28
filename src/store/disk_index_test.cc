// The index of a disk: which of its records count; what is written anew comes to its end, however
// short the time of a call is; what could not be made durable is not believed.
#include "store/disk_index.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "store/simulated_disk.h"

namespace stemma {
namespace {

constexpr std::int64_t kOperationUs = 1'000;

IndexedPage page_of(std::int32_t number) {
  IndexedPage page;
  page.slot = {0, number};
  page.key.bytes[0] = static_cast<std::uint8_t>(number);
  page.key.bytes[1] = static_cast<std::uint8_t>(number >> 8);
  page.key.bytes[2] = static_cast<std::uint8_t>(number >> 16);
  return page;
}

// An index of several pieces, on a disk on which every operation takes its time.
class DiskIndexRewrite : public ::testing::Test {
 protected:
  static constexpr std::int32_t kPages = 100'000;

  DiskIndexRewrite() { disk_.faults.latency_us = kOperationUs; }

  // So many operations have time, and the one after them has half of what it needs.
  Status rewrite(std::int64_t operations) {
    disk_.let_go();
    return index_.rewrite(
        [this](IndexCells& cells) {
          if (next_ == kPages) return false;
          cells.put(page_of(next_++));
          return true;
        },
        clock_.now_us() + operations * kOperationUs + kOperationUs / 2);
  }

  IndexContents reread() {
    disk_.let_go();
    DiskIndex again(*files_);
    return again.load(clock_.now_us() + 1'000'000).value();
  }

  FakeClock clock_;
  SimulatedDisk disk_{1, clock_};
  std::unique_ptr<DiskFiles> files_ = disk_.open();
  DiskIndex index_{*files_};
  std::int32_t next_ = 0;  // to be written
};

TEST_F(DiskIndexRewrite, GoesOnInTheNextCallWhereTheTimeIsOver) {
  int calls = 1;
  while (!rewrite(2).ok()) {
    ASSERT_TRUE(index_.is_rewriting());
    ASSERT_LT(++calls, 20) << "each call is to come further";
  }
  EXPECT_GT(calls, 3);
  EXPECT_FALSE(index_.is_rewriting());
  EXPECT_TRUE(index_.usable());
  const IndexContents contents = reread();
  EXPECT_EQ(contents.bad_cells, 0);
  ASSERT_EQ(std::ssize(contents.pages), kPages);
  for (std::int32_t i = 0; i < kPages; ++i) {
    ASSERT_EQ(contents.pages[static_cast<std::size_t>(i)].key, page_of(i).key) << i;
  }
}

TEST_F(DiskIndexRewrite, BeginsAnewWhereSomethingWasAppendedInBetween) {
  next_ = kPages - 1;
  ASSERT_TRUE(rewrite(5).ok()) << "of one page";
  next_ = 0;
  ASSERT_FALSE(rewrite(3).ok());
  ASSERT_TRUE(index_.is_rewriting());
  disk_.let_go();
  IndexCells more;
  more.put(page_of(kPages));
  ASSERT_TRUE(index_.append(more, clock_.now_us() + 1'000'000).ok());
  EXPECT_FALSE(index_.is_rewriting());
  EXPECT_EQ(std::ssize(reread().pages), 2);
}

TEST_F(DiskIndexRewrite, OfOnePieceIsDoneInOneCall) {
  next_ = kPages - 10;
  EXPECT_TRUE(rewrite(5).ok()) << "made, written, synced, named, and the name synced";
  EXPECT_EQ(std::ssize(reread().pages), 10);
}

IndexContents contents_of(const IndexCells& cells) {
  IndexReader reader;
  reader.take(cells.bytes());
  return std::move(reader).finish();
}

// What took it away from the first was lost, and others may be: frames are looked at first.
TEST(DiskIndexRecords, ASlotThatTwoKeysNameIsTheLaterOnes) {
  IndexedPage later = page_of(3);
  later.slot = page_of(1).slot;
  IndexCells cells;
  cells.put(page_of(1));
  cells.put(page_of(2));
  cells.put(later);
  const IndexContents contents = contents_of(cells);
  EXPECT_TRUE(contents.contested);
  EXPECT_EQ(contents.bad_cells, 0);
  ASSERT_EQ(std::ssize(contents.pages), 2);
  EXPECT_EQ(contents.pages[1].key, later.key);
  for (const IndexedPage& page : contents.pages) EXPECT_TRUE(page.unread);
}

TEST(DiskIndexRecords, APageIsUnreadUntilItsRecordSaysOtherwise) {
  IndexedPage page = page_of(1);
  page.unread = true;
  IndexCells cells;
  cells.put(page);
  EXPECT_TRUE(contents_of(cells).pages[0].unread);
  cells.put(page_of(1));
  EXPECT_FALSE(contents_of(cells).pages[0].unread);
}

TEST(DiskIndexRecords, AShorterDescriptionTakesThePlaceOfALongerOne) {
  const NamespaceDigest digest;
  IndexCells cells;
  cells.describe(digest, std::string(200, 'a'));
  cells.describe(digest, "model=scribe");
  EXPECT_EQ(contents_of(cells).descriptions.at(digest), "model=scribe");
}

// An index of one page, on a disk that does as a test says.
class DiskIndexFaults : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(rewrite(index_).ok()); }

  Status rewrite(DiskIndex& index) {
    bool more = true;
    return index.rewrite(
        [&](IndexCells& cells) {
          if (std::exchange(more, false)) cells.put(page_of(1));
          return more;
        },
        soon());
  }
  Status append(DiskIndex& index, std::int32_t number) {
    IndexCells cells;
    cells.put(page_of(number));
    return index.append(cells, soon());
  }
  std::int64_t soon() const { return clock_.now_us() + 1'000'000; }

  FakeClock clock_;
  SimulatedDisk disk_{1, clock_};
  std::unique_ptr<DiskFiles> files_ = disk_.open();
  DiskIndex index_{*files_};
};

TEST_F(DiskIndexFaults, BehindAnAppendThatFailedNothingIsAppended) {
  disk_.faults.failing = DiskVerb::kWrite;
  EXPECT_FALSE(append(index_, 2).ok());
  EXPECT_FALSE(index_.usable());
  EXPECT_FALSE(index_.sync_failed());
  disk_.faults = {};
  ASSERT_TRUE(rewrite(index_).ok());
  EXPECT_TRUE(index_.usable());
  disk_.faults.failing = DiskVerb::kSync;
  EXPECT_FALSE(append(index_, 2).ok());
  EXPECT_FALSE(index_.usable());
  EXPECT_TRUE(index_.sync_failed());
}

// Nobody knows which of the two files has the name behind a loss of power.
TEST_F(DiskIndexFaults, ANameThatCouldNotBeMadeDurableIsNotBelieved) {
  disk_.faults.failing = DiskVerb::kSyncDirectory;
  EXPECT_FALSE(rewrite(index_).ok());
  EXPECT_FALSE(index_.usable());
  EXPECT_TRUE(index_.sync_failed());
}

TEST_F(DiskIndexFaults, BehindATornRecordTheNextOneIsFoundAgain) {
  disk_.file_or_null("index")->now.resize(kIndexCellBytes + 50);
  DiskIndex next(*files_);
  ASSERT_EQ(next.load(soon()).value().bad_cells, 1);
  ASSERT_TRUE(append(next, 2).ok());
  const IndexContents contents = DiskIndex(*files_).load(soon()).value();
  EXPECT_EQ(contents.bad_cells, 1);
  ASSERT_EQ(std::ssize(contents.pages), 2);
  EXPECT_EQ(contents.pages[1].key, page_of(2).key);
}

}  // namespace
}  // namespace stemma
