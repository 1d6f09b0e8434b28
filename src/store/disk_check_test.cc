// Listing, checking and repairing the directory of a disk store.
#include "store/disk_check.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

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
