// What "s3fifo" drops, on small trees: new pages, pages that were used again, pages that came back.
#include "prefix/s3fifo_policy.h"

#include <gtest/gtest.h>

#include <vector>

#include "prefix/prefix_fixture.h"

namespace stemma {
namespace {

// The small queue's share is one page of 10, or two of 20.
struct S3Fifo : PrefixFixture {
  explicit S3Fifo(std::int64_t pages) : PrefixFixture({.pages = pages, .eviction = "s3fifo"}) {}

  // Whole requests for one text.
  void serve(const Tokens& text, int times = 1) {
    for (int i = 0; i < times; ++i) cache->complete(begin(text), {});
  }
};

TEST(S3FifoPolicy, WhatNobodyUsedAgainGoesInTheOrderOfArrival) {
  S3Fifo f(20);
  f.serve({1});
  f.serve({2});
  f.serve({3});
  EXPECT_EQ(f.evict(3), (std::vector{0, 1, 2}));
}

TEST(S3FifoPolicy, WhatWasUsedAgainStaysWhileTheSmallQueueHasItsShare) {
  S3Fifo f(20);
  f.serve({1}, 2);
  f.serve({2});
  f.serve({3});
  EXPECT_EQ(f.evict(3), (std::vector{1, 0, 2}));
}

TEST(S3FifoPolicy, WhatComesBackAfterItWentUnusedIsNotNew) {
  S3Fifo f(10);
  f.serve({1});
  EXPECT_EQ(f.evict(1), (std::vector{0}));
  f.serve({1});
  f.serve({2});
  EXPECT_EQ(f.evict(1).size(), 1u);
  EXPECT_EQ(f.probe({1}), 1);
  EXPECT_EQ(f.probe({2}), 0);
}

// The page that came back is in the main queue, which loses pages while the small one has less than
// its share.
TEST(S3FifoPolicy, WhateverGoesIsOfTheSmallQueueNoMore) {
  for (const bool purged : {false, true}) {
    S3Fifo f(20);
    f.serve({1});
    f.evict(1);
    f.serve({7});
    f.serve({8});
    if (purged) {
      f.cache->purge({});
    } else {  // though somebody waits for them
      for (const TokenId wanted : {7, 8}) f.cache->want(f.ns, Tokens{wanted}, 0);
      EXPECT_EQ(f.evict(2).size(), 2u);
    }
    f.serve({1});
    f.serve({2});
    EXPECT_EQ(f.evict(1).size(), 1u);
    EXPECT_EQ(f.probe({1}), 0) << purged;
    EXPECT_EQ(f.probe({2}), 1) << purged;
  }
}

TEST(S3FifoPolicy, MoreThanThreeUsesCountAsThree) {
  S3Fifo f(10);
  f.serve({1}, 2);
  f.serve({2}, 2);
  f.serve({3});
  EXPECT_EQ(f.evict(1), (std::vector{2}));  // the others are in the main queue now
  f.serve({1}, 9);
  f.serve({2}, 3);
  EXPECT_EQ(f.evict(1), (std::vector{0}));
}

TEST(S3FifoPolicy, EachTurnInTheMainQueueCostsAUse) {
  S3Fifo f(10);
  f.serve({1}, 2);
  f.serve({2}, 2);
  f.serve({3});
  EXPECT_EQ(f.evict(1), (std::vector{2}));
  f.serve({1}, 2);
  f.serve({2}, 1);
  EXPECT_EQ(f.evict(2), (std::vector{1, 0}));
}

TEST(S3FifoPolicy, PagesThatOthersContinueDoNotFillTheSmallQueue) {
  S3Fifo f(20);
  f.serve({1, 2}, 2);
  f.serve({8});
  f.serve({9});
  EXPECT_EQ(f.evict(2), (std::vector{2, 1}));
}

TEST(S3FifoPolicy, PagesOfARequestThatNeverEndedGoToo) {
  S3Fifo f(20);
  { const PrefixLock lock = f.begin({1, 2, 3}); }
  f.serve({7, 8});
  EXPECT_EQ(f.evict(10).size(), 5u);
}

TEST(S3FifoPolicy, LockedPagesStay) {
  S3Fifo f(20);
  const PrefixLock lock = f.begin({1, 2, 3});
  f.serve({1, 2, 9});
  EXPECT_EQ(f.evict(10), (std::vector{3}));
}

}  // namespace
}  // namespace stemma
