// Whose a slot is, and when it is free again: whatever fails, none is lost for good, none is used
// while anything may still write to it or name it, and none is taken for another's.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "stemma/log.h"
#include "store/disk_store_fixture.h"

namespace stemma {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Not;

constexpr std::int64_t kSlotBytes = 8192;  // of small_format's frames
constexpr std::int64_t kSlotsOfSlab = 8;

class DiskSlots : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_sink({});
    ASSERT_TRUE(f.open());
  }
  // How many pages there is room for.
  static std::int64_t fill(DiskStoreFixture& fixture) {
    for (const TestPage& page : make_pages(small_format(), 50, 150)) fixture.put(page);
    return fixture.store->usage().pages;
  }
  static std::int64_t room_of_a_new_store() {
    DiskStoreFixture fresh(2);
    EXPECT_TRUE(fresh.open());
    return fill(fresh);
  }
  void recover() {
    f.disk.faults = {};
    f.disk.let_go();
  }
  std::vector<std::byte>& bytes(const std::string& name) { return f.disk.file_or_null(name)->now; }

  DiskStoreFixture f{1};
  const std::vector<TestPage> pages = make_pages(small_format(), 1, kSlotsOfSlab);
  const TestPage another{small_format(), 2};
};

TEST_F(DiskSlots, OfAPageThatWasNotCommittedItsSlotIsUsedAgain) {
  ASSERT_EQ(f.put(pages[0]), PageVerdict::kDone);
  for (std::uint64_t call = 0; call < 5; ++call) {
    f.disk.faults.fail_at = f.disk.operations + 2;  // behind the body and its sync
    ASSERT_EQ(f.put(another), PageVerdict::kFailed);
    recover();
    ASSERT_EQ(f.put(TestPage(small_format(), 60 + call)), PageVerdict::kDone);
  }
  EXPECT_EQ(f.metric("lost_slots_total"), 0);
  EXPECT_EQ(fill(f), room_of_a_new_store());
}

// First the body takes too long, then its sync.
TEST_F(DiskSlots, OfAPageThatWasNotWrittenInTimeItsSlotIsUsedAgain) {
  ASSERT_EQ(f.put(pages[0]), PageVerdict::kDone);
  for (const std::int64_t latency_us : {1'100'000, 600'000}) {
    f.disk.faults.latency_us = latency_us;
    ASSERT_EQ(f.put(another), PageVerdict::kFailed);
    recover();
    ASSERT_EQ(f.put(pages[1]), PageVerdict::kDone);
  }
  EXPECT_EQ(fill(f), room_of_a_new_store());
}

TEST_F(DiskSlots, OneThatCannotBeWrittenIsNotUsedAgain) {
  ASSERT_EQ(f.put(pages[0]), PageVerdict::kDone);
  f.disk.faults.fail_at = f.disk.operations;
  ASSERT_EQ(f.put(another), PageVerdict::kFailed);
  recover();
  EXPECT_EQ(f.metric("lost_slots_total"), 1);
  EXPECT_EQ(fill(f), room_of_a_new_store() - 1);
}

TEST_F(DiskSlots, OneThatCannotBeReadIsNotUsedAgain) {
  ASSERT_EQ(f.put(another), PageVerdict::kDone);
  f.disk.faults.failing = DiskVerb::kRead;
  ASSERT_EQ(f.serve(another), Served::kMiss);
  recover();
  EXPECT_EQ(f.metric("lost_slots_total"), 1);
  EXPECT_EQ(fill(f), room_of_a_new_store() - 1);
}

TEST_F(DiskSlots, HoweverOftenAllIsPurgedThereIsAsMuchRoom) {
  const std::int64_t room = fill(f);
  for (int purge = 0; purge < 20; ++purge) {
    ASSERT_TRUE(f.store->purge({}, f.soon()).status.ok());
    ASSERT_EQ(fill(f), room);
  }
}

// It is nobody's page, but a frame: without an index it would be taken for one.
TEST_F(DiskSlots, WhatWasWrittenAndNeverCommittedDoesNotOutlastAPurge) {
  ASSERT_EQ(f.put(pages[0]), PageVerdict::kDone);
  f.disk.faults.fail_at = f.disk.operations + 2;
  ASSERT_EQ(f.put(another), PageVerdict::kFailed);
  recover();
  const NamespaceFamily family = family_of(another.identity().namespace_digest);
  ASSERT_TRUE(f.store->purge({&family, 1}, f.soon()).status.ok());
  f.lose_index();
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.serve(another), Served::kMiss);
}

// Records of its pages are in the index: in another file of that number they would name others.
TEST_F(DiskSlots, TheNumberOfASlabThatHasGoneIsNotUsedWhileTheIndexNamesIt) {
  f.put_all(pages);
  f.put(another);
  ASSERT_THAT(f.disk.names(), Contains("slab-1-8192"));
  f.store.reset();
  ASSERT_TRUE(f.disk.open()->remove("slab-1-8192", f.soon()).ok());
  ASSERT_TRUE(f.open());
  ASSERT_EQ(f.put(TestPage(small_format(), 3)), PageVerdict::kDone);
  EXPECT_THAT(f.disk.names(), Not(Contains("slab-1-8192")));
}

TEST_F(DiskSlots, ASlabThatCouldNotBeOpenedIsNotWrittenOver) {
  f.put_all(pages);
  f.lose_index();
  f.disk.faults.fail_at = f.disk.operations;
  ASSERT_TRUE(f.open());
  recover();
  const std::vector<std::byte> before = bytes("slab-0-8192");
  ASSERT_EQ(f.put(another), PageVerdict::kDone);
  EXPECT_EQ(bytes("slab-0-8192"), before);
  EXPECT_EQ(f.serve(another), Served::kRight);
}

TEST_F(DiskSlots, OfASlabThatWasCutTheLastOneIsNone) {
  f.put_all(pages);
  f.store.reset();
  bytes("slab-0-8192").resize((kSlotsOfSlab - 1) * kSlotBytes);
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.store->usage().pages, kSlotsOfSlab - 1);
  EXPECT_EQ(f.lookup(pages), kSlotsOfSlab - 1);
}

// A file that is left alone has its room.
TEST_F(DiskSlots, TheLimitHoldsBesideAFileThatIsLeftAlone) {
  fill(f);
  f.store.reset();
  ASSERT_TRUE(f.disk.open()->create("slab-0-90112", DiskAccess::kDirect, f.soon()).ok());
  bytes("slab-0-90112").resize(5 * 90112);
  ASSERT_TRUE(f.open());
  EXPECT_LE(f.disk.used_bytes(), DiskStoreFixture::kBytesMax);
  fill(f);
  EXPECT_LE(f.disk.used_bytes(), DiskStoreFixture::kBytesMax);
}

// As a disk does that reads another place than it was asked for, always.
TEST_F(DiskSlots, AFrameOfAnotherPageGoesWithItsFirstReader) {
  f.put_all(pages);
  std::copy_n(bytes("slab-0-8192").begin(), kSlotBytes,
              bytes("slab-0-8192").begin() + 2 * kSlotBytes);
  EXPECT_EQ(f.serve(pages[2]), Served::kMiss);
  EXPECT_EQ(f.metric("corrupt_pages_total"), 1);
  EXPECT_EQ(f.lookup(std::span(pages).subspan(2)), 0);
}

// While it is read it goes, another takes its slot, and it comes back in the next.
TEST_F(DiskSlots, APageThatWentAndCameBackWhileItWasReadStays) {
  f.put_all(std::span(pages).first(2));
  f.disk.while_reading = [&] {
    const PageRemoval removal{pages[1].key(), pages[1].frame()};
    f.store->remove({&removal, 1}, f.soon());
    ASSERT_EQ(f.put(another), PageVerdict::kDone);
    ASSERT_EQ(f.put(pages[1]), PageVerdict::kDone);
  };
  EXPECT_EQ(f.serve(pages[1]), Served::kMiss) << "what was read is the other's";
  EXPECT_EQ(f.serve(pages[1]), Served::kRight);
  EXPECT_EQ(f.serve(another), Served::kRight);
}

// Their frames follow each other in memory, and their slots would in one file.
TEST_F(DiskSlots, PagesOfTwoSlabsAreTwoWrites) {
  const auto more = make_pages(small_format(), 3, kSlotsOfSlab);
  f.put_all(pages);
  f.put_all(more);
  const std::array removals = {PageRemoval{pages[3].key(), pages[3].frame()},
                               PageRemoval{more[4].key(), more[4].frame()}};
  f.store->remove(removals, f.soon());
  const auto two = make_pages(small_format(), 4, 2);
  Buffer memory = Buffer::allocate(2 * kSlotBytes).value();
  std::vector<PageWrite> writes;
  for (const TestPage& page : two) {
    const auto frame = memory.as<std::byte>().subspan(writes.size() * kSlotBytes, kSlotBytes);
    std::ranges::copy(page.frame(), frame.begin());
    writes.push_back({page.key(), frame});
  }
  f.store->write(writes, f.soon());
  EXPECT_EQ(f.count_right(two), 2);
  EXPECT_EQ(f.count_right(pages), kSlotsOfSlab - 1);
  EXPECT_EQ(f.count_right(more), kSlotsOfSlab - 1);
}

// What was not made durable is not believed, nor is anything written over what may still come.
TEST_F(DiskSlots, AStoreThatOnlyReadsOrWaitsWritesNothingWhenItIsClosed) {
  for (const bool hangs : {false, true}) {
    ASSERT_TRUE(f.open());
    ASSERT_EQ(f.put(pages[0]), PageVerdict::kDone);
    f.disk.faults.hang_share = hangs ? 1 : 0;
    f.disk.faults.fail_at = hangs ? -1 : f.disk.operations + 1;
    ASSERT_EQ(f.put(another), PageVerdict::kFailed);
    f.disk.faults = {};
    ASSERT_EQ(f.store->read_only(), !hangs);
    const std::int64_t operations = f.disk.operations;
    f.store.reset();
    EXPECT_EQ(f.disk.operations, operations);
    f.disk.let_go();
  }
}

}  // namespace
}  // namespace stemma
