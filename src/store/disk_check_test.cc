// Listing, checking and repairing the directory of a disk store.
#include "store/disk_check.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/crc32c.h"
#include "stemma/log.h"
#include "store/disk_store_fixture.h"

namespace stemma {
namespace {

using ::testing::HasSubstr;

class DiskCheck : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_sink({});
    ASSERT_TRUE(f_.open());
    f_.disk.wall_time_s = 1'000;
    f_.store->describe(pages_[0].identity().namespace_digest, "model=scribe dtype=f16");
    f_.put_all(pages_);
    f_.store.reset();
    f_.disk.wall_time_s = 1'090;
  }

  DiskCheckReport check(bool repair) {
    const auto files = f_.disk.open();
    auto report = check_disk(*files, {.repair = repair, .deadline_us = f_.soon()});
    EXPECT_TRUE(report.ok()) << to_string(report.error());
    return *std::move(report);
  }
  // The index anew, each of its pages as `change` has it.
  void rewrite_index(const std::function<void(IndexedPage&)>& change) {
    const auto files = f_.disk.open();
    DiskIndex index(*files);
    IndexContents contents = index.load(f_.soon()).value();
    std::size_t next = 0;
    const auto put_next = [&](IndexCells& cells) {
      if (next == contents.pages.size()) return false;
      change(contents.pages[next]);
      cells.put(contents.pages[next++]);
      return true;
    };
    ASSERT_TRUE(index.rewrite(put_next, f_.soon()).ok());
  }
  std::vector<std::byte>& bytes(const std::string& name) { return f_.disk.file_or_null(name)->now; }
  std::int64_t right_after_opening() {
    EXPECT_TRUE(f_.open());
    const std::int64_t right = f_.count_right(pages_);
    f_.store.reset();
    return right;
  }

  DiskStoreFixture f_{1};
  std::vector<TestPage> pages_ = make_pages(small_format(), 1, 20);
};

TEST_F(DiskCheck, AStoreThatWasClosedIsClean) {
  const DiskCheckReport report = check(false);
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(report.good_pages, 20);
}

TEST_F(DiskCheck, ListsNamespacesWithPagesAgesAndSizes) {
  const auto files = f_.disk.open();
  const auto listing = list_disk(*files, f_.soon());
  ASSERT_TRUE(listing.ok()) << to_string(listing.error());
  ASSERT_EQ(listing->namespaces.size(), 1u);
  const DiskNamespace& named = listing->namespaces[0];
  EXPECT_EQ(named.description, "model=scribe dtype=f16");
  EXPECT_EQ(named.pages, 20);
  EXPECT_EQ(named.bytes, 20 * 8192);
  EXPECT_EQ(named.oldest_age_s, 90);
  EXPECT_EQ(listing->bytes, f_.disk.used_bytes());
}

TEST_F(DiskCheck, ADirectoryWithoutAStoreIsNotFound) {
  FakeClock clock;
  SimulatedDisk empty(1, clock);
  EXPECT_EQ(list_disk(*empty.open(), 1'000'000).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(check_disk(*empty.open(), {.deadline_us = 1'000'000}).error().code,
            ErrorCode::kNotFound);
}

TEST_F(DiskCheck, FindsADamagedBodyAndRepairTakesItOut) {
  bytes("slab-0-8192")[3 * 8192 + 5000] ^= std::byte{1};
  const DiskCheckReport found = check(false);
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].file, "slab-0-8192");
  EXPECT_EQ(found.findings[0].slot, 3);
  EXPECT_THAT(found.findings[0].what, HasSubstr("layer 0"));
  EXPECT_FALSE(found.repaired);
  const DiskCheckReport repaired = check(true);
  EXPECT_TRUE(repaired.repaired);
  EXPECT_EQ(repaired.bad_pages, 1);
  EXPECT_TRUE(check(false).findings.empty());
  EXPECT_EQ(right_after_opening(), 19);
}

TEST_F(DiskCheck, FindsAPageThatIsNotTheOneOfTheIndex) {
  std::vector<std::byte>& slab = bytes("slab-0-8192");
  std::copy_n(slab.begin(), 8192, slab.begin() + 2 * 8192);
  const DiskCheckReport report = check(true);
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_THAT(report.findings[0].what, HasSubstr("another page"));
  EXPECT_EQ(right_after_opening(), 19);
}

TEST_F(DiskCheck, FindsAPageOfAnotherNamespaceThanTheIndexSays) {
  rewrite_index([](IndexedPage& page) {
    if (page.slot == SlotRef{0, 3}) page.namespace_digest.bytes[31] = 1;
  });
  const DiskCheckReport report = check(false);
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].slot, 3);
  EXPECT_THAT(report.findings[0].what, HasSubstr("another namespace"));
}

// Its header and its sums are right.
TEST_F(DiskCheck, FindsAPageWhoseKeyIsNotThatOfItsTokens) {
  TestPage forged = std::move(pages_[3]);
  std::vector<TokenId> tokens(forged.identity().tokens.begin(), forged.identity().tokens.end());
  ++tokens[5];
  const auto view = read_frame(forged.frame()).value();
  std::vector<std::uint32_t> sums;
  for (std::size_t layer = 0; layer < 2; ++layer) {
    sums.push_back(crc32c(view.body.subspan(layer * 2048, 2048)));
  }
  PageIdentity identity = forged.identity();
  identity.tokens = tokens;
  encode_frame(forged.format(), identity, sums, 7, forged.frame());
  std::ranges::copy(forged.frame(), bytes("slab-0-8192").begin() + 3 * 8192);
  const DiskCheckReport report = check(false);
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_THAT(report.findings[0].what, HasSubstr("not that of its tokens"));
}

// Frames in free slots of a whole index are of pages that went.
TEST_F(DiskCheck, WhatAWholeIndexDoesNotNameIsNotFound) {
  ASSERT_TRUE(f_.open());
  const PageRemoval removal{pages_[3].key(), pages_[3].frame()};
  f_.store->remove({&removal, 1}, f_.soon());
  f_.store.reset();
  bytes("slab-0-8192")[5 * 8192 + 5000] ^= std::byte{1};  // so that something is repaired
  EXPECT_EQ(check(true).found_pages, 0);
  EXPECT_EQ(right_after_opening(), 18);
}

TEST_F(DiskCheck, APageThatLiesInTwoSlotsIsFoundOnce) {
  f_.disk.open()->remove("index", f_.soon()).ok();
  std::vector<std::byte>& slab = bytes("slab-0-8192");
  std::copy_n(slab.begin(), 8192, slab.begin() + 2 * 8192);
  EXPECT_EQ(check(true).found_pages, 19);
  EXPECT_TRUE(check(false).findings.empty());
}

TEST_F(DiskCheck, ARepairKeepsDescriptionsAndRemovesFilesWithoutASlot) {
  bytes("slab-1-8192").resize(100);
  EXPECT_TRUE(check(true).repaired);
  EXPECT_EQ(f_.disk.file_or_null("slab-1-8192"), nullptr);
  const auto listing = list_disk(*f_.disk.open(), f_.soon());
  ASSERT_TRUE(listing.ok());
  EXPECT_EQ(listing->namespaces[0].description, "model=scribe dtype=f16");
}

TEST_F(DiskCheck, NothingIsRepairedWhereNothingIsWrong) {
  const std::int64_t operations = f_.disk.operations;
  check(false);
  const std::int64_t looked = f_.disk.operations - operations;
  EXPECT_FALSE(check(true).repaired);
  EXPECT_EQ(f_.disk.operations, operations + 2 * looked);
}

// What was repaired was looked at: a store need not do so again before a purge.
TEST_F(DiskCheck, ARepairedIndexHasNoPageThatNobodyHasRead) {
  bytes("index")[bytes("index").size() - 60] ^= std::byte{4};
  EXPECT_TRUE(check(true).repaired);
  const auto files = f_.disk.open();
  const IndexContents contents = DiskIndex(*files).load(f_.soon()).value();
  EXPECT_EQ(contents.pages.size(), 20u);
  EXPECT_TRUE(std::ranges::none_of(contents.pages, &IndexedPage::unread));
}

TEST_F(DiskCheck, PagesBehindTheEndOfAFileAreNotListed) {
  bytes("slab-0-8192").resize(5 * 8192);
  const auto listing = list_disk(*f_.disk.open(), f_.soon());
  ASSERT_TRUE(listing.ok());
  EXPECT_EQ(listing->pages, 20 - 3);
  EXPECT_EQ(listing->namespaces[0].pages, 20 - 3);
}

// Told with the first page, not when a store is closed.
TEST_F(DiskCheck, ADescriptionOutlastsALossOfPower) {
  ASSERT_TRUE(f_.open());
  PageFormat format = small_format();
  format.dtype = DType::kBF16;
  const TestPage page(format, 2);
  f_.store->describe(page.identity().namespace_digest, "model=scribe dtype=bf16");
  ASSERT_EQ(f_.put(page), PageVerdict::kDone);
  f_.crash();
  const auto listing = list_disk(*f_.disk.open(), f_.soon());
  ASSERT_TRUE(listing.ok());
  ASSERT_EQ(listing->namespaces.size(), 2u);
  EXPECT_EQ(listing->namespaces[1].description, "model=scribe dtype=bf16");
}

TEST_F(DiskCheck, ALostIndexIsMadeAnewFromTheFrames) {
  f_.disk.open()->remove("index", f_.soon()).ok();
  const DiskCheckReport report = check(true);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].file, "index");
  EXPECT_EQ(report.found_pages, 20);
  EXPECT_TRUE(check(false).findings.empty());
  EXPECT_EQ(right_after_opening(), 20);
}

TEST_F(DiskCheck, DamagedRecordsAreReportedAndTheirPagesFoundAgain) {
  std::vector<std::byte>& index = bytes("index");
  index[index.size() - 60] ^= std::byte{4};  // one page's
  EXPECT_EQ(check(false).found_pages, 1);
  EXPECT_TRUE(check(true).repaired);
  EXPECT_EQ(right_after_opening(), 20);
}

TEST_F(DiskCheck, ASecondSlabOfTheSameNumberIsReportedAndLeftAlone) {
  ASSERT_TRUE(f_.disk.open()->create("slab-0-90112", DiskAccess::kDirect, f_.soon()).ok());
  f_.disk.file_or_null("slab-0-90112")->now.resize(90112);
  const DiskCheckReport report = check(true);
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].file, "slab-0-90112");
  EXPECT_EQ(report.good_pages, 20);
  EXPECT_NE(f_.disk.file_or_null("slab-0-90112"), nullptr);
  EXPECT_EQ(right_after_opening(), 20);
}

TEST_F(DiskCheck, ASlabOfWhichNoSizeIsToldIsNotTakenForOneThatIsMissing) {
  f_.disk.faults.tells_sizes = false;
  const auto files = f_.disk.open();
  const auto report = check_disk(*files, {.repair = true, .deadline_us = f_.soon()});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::kIo);
}

TEST_F(DiskCheck, TruncatedAndMissingSlabsAreReported) {
  bytes("slab-0-8192").resize(5 * 8192 + 100);
  f_.disk.open()->remove("slab-1-8192", f_.soon()).ok();
  const DiskCheckReport report = check(true);
  EXPECT_EQ(report.findings.size(), 3u + 8u);
  EXPECT_TRUE(check(false).findings.empty());
  EXPECT_EQ(right_after_opening(), 20 - 11);
}

}  // namespace
}  // namespace stemma
