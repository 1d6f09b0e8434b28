// A disk that is slow when its store opens: what lies there is found then, or by the next life.
#include <gtest/gtest.h>

#include "stemma/log.h"
#include "store/disk_store_fixture.h"

namespace stemma {
namespace {

constexpr std::int64_t kOpeningUs = 60'000'000;   // that one step may take
constexpr std::int64_t kReadingUs = 300'000'000;  // and all that only read

class DiskOpeningTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_sink({});
    ASSERT_TRUE(f.open());
    f.put_all(pages);
    ASSERT_EQ(f.count_right(pages), std::ssize(pages));
    f.store.reset();
  }
  // The disk is as it should be again.
  void recover() {
    f.disk.faults = {};
    f.disk.let_go();
  }

  DiskStoreFixture f{7};
  const std::vector<TestPage> pages = make_pages(small_format(), 7, 40);
};

TEST_F(DiskOpeningTest, EachStepHasItsOwnTime) {
  f.disk.faults.latency_us = kOpeningUs / 3;
  ASSERT_TRUE(f.open());
  recover();
  EXPECT_FALSE(f.store->read_only());
  EXPECT_EQ(f.count_right(pages), std::ssize(pages));
}

TEST_F(DiskOpeningTest, WhatIsTooSlowIsLeftToTheNextLife) {
  f.disk.faults.latency_us = kOpeningUs + 1;
  ASSERT_TRUE(f.open());
  recover();
  EXPECT_TRUE(f.store->read_only());
  EXPECT_EQ(f.count_right(pages), 0);
  EXPECT_EQ(f.put(TestPage(small_format(), 8)), PageVerdict::kRefused);
  EXPECT_FALSE(f.store->make_removals_last(f.soon()).ok()) << "nobody knows what is there";
  EXPECT_FALSE(f.store->purge({}, f.soon()).status.ok());
  ASSERT_TRUE(f.open());
  EXPECT_FALSE(f.store->read_only());
  EXPECT_EQ(f.count_right(pages), std::ssize(pages));
}

// Each step is just in time, and there is one for each slab.
TEST_F(DiskOpeningTest, ManySlowStepsDoNotHoldUpAStartForLong) {
  f.disk.faults.latency_us = kOpeningUs - 1;
  const std::int64_t began_us = f.clock.now_us();
  ASSERT_TRUE(f.open());
  EXPECT_LE(f.clock.now_us(), began_us + kReadingUs);
  recover();
  EXPECT_TRUE(f.store->read_only());
  EXPECT_EQ(f.count_right(pages), 0);
  ASSERT_TRUE(f.open());
  EXPECT_FALSE(f.store->read_only());
  EXPECT_EQ(f.count_right(pages), std::ssize(pages));
}

// Of some lives the index is read and a slab is not opened in time.
TEST_F(DiskOpeningTest, WhateverHangsNoPageIsLost) {
  bool some_wrote = false;
  bool some_only_read = false;
  for (int life = 0; life < 100; ++life) {
    SCOPED_TRACE(life);
    f.disk.faults.hang_share = 0.1;
    ASSERT_TRUE(f.open());
    (f.store->read_only() ? some_only_read : some_wrote) = true;
    recover();
    f.put(TestPage(small_format(), 8));
    ASSERT_FALSE(f.store->read_only() && f.store->make_removals_last(f.soon()).ok());
    ASSERT_TRUE(f.open());
    ASSERT_EQ(f.count_right(pages), std::ssize(pages));
  }
  EXPECT_TRUE(some_wrote && some_only_read);
}

}  // namespace
}  // namespace stemma
