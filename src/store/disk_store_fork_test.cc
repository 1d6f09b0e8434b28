// A disk store in a child of the process that opened it: of no use there, and no harm to its
// parent.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/forked_child.h"
#include "base/temp_directory.h"
#include "store/directory_files.h"
#include "store/disk_store_fixture.h"

namespace stemma {
namespace {

using ::testing::Each;

constexpr std::int64_t kBytesMax = 1 << 20;

class ForkedDiskStore : public testing::TestWithParam<DiskIo> {
 protected:
  void SetUp() override {
    open();
    EXPECT_THAT(put_all(0, 10), Each(PageVerdict::kDone));
  }

  void open() {
    store_.reset();
    auto files = DirectoryFiles::open(directory_.path(), clock_, {.io = GetParam()});
    ASSERT_TRUE(files.ok()) << to_string(files.error());
    auto opened = DiskPageStore::open(std::unique_ptr<DiskFiles>(std::move(files).value()), clock_,
                                      {.bytes_max = kBytesMax, .slab_bytes = 64 << 10});
    ASSERT_TRUE(opened.ok()) << to_string(opened.error());
    store_ = std::move(opened).value();
  }
  std::int64_t soon() const { return clock_.now_us() + 10'000'000; }
  std::vector<PageVerdict> put_all(std::size_t first, std::size_t end) {
    std::vector<PageVerdict> verdicts;
    for (; first < end; ++first) verdicts.push_back(put(*store_, pages_[first], soon()));
    return verdicts;
  }
  std::int64_t count_right() {
    return std::ranges::count_if(pages_, [&](const TestPage& page) {
      return serve(*store_, page, soon()) == Served::kRight;
    });
  }

  TempDirectory directory_;
  MonotonicClock clock_;
  std::vector<TestPage> pages_ = make_pages(small_format(), 1, 20);
  std::unique_ptr<DiskPageStore> store_;
};

TEST_P(ForkedDiskStore, ReadsAndWritesNothingInAChild) {
  const int answer = in_forked_child([&] {
    const bool serves = serve(*store_, pages_[0], soon()) != Served::kMiss;
    const bool stores = put(*store_, pages_[10], soon()) == PageVerdict::kDone;
    return (serves ? 1 : 0) + (stores ? 2 : 0);
  });
  EXPECT_EQ(answer, 0);
  EXPECT_EQ(count_right(), 10);
}

TEST_P(ForkedDiskStore, IsTheParentsStillWhenAChildHasLetGoOfIt) {
  const int answer = in_forked_child([&] {
    store_.reset();
    return 0;
  });
  EXPECT_EQ(answer, 0);
  EXPECT_THAT(put_all(10, 20), Each(PageVerdict::kDone));
  EXPECT_EQ(count_right(), 20);
  open();
  EXPECT_EQ(count_right(), 20);
}

TEST_P(ForkedDiskStore, GivesItsDirectoryUpThoughAChildLives) {
  beside_child([&] { open(); });
  EXPECT_EQ(count_right(), 10);
}

INSTANTIATE_TEST_SUITE_P(Io, ForkedDiskStore, testing::Values(DiskIo::kUring, DiskIo::kThreads));

}  // namespace
}  // namespace stemma
