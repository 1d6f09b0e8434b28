// What leaves the radix prefix cache, in which order, and what never does.
#include <gtest/gtest.h>

#include "prefix/prefix_fixture.h"

namespace stemma {
namespace {

TEST(RadixEviction, AnEmptyCacheHasNothingToGive) {
  PrefixFixture f;
  EXPECT_TRUE(f.evict(5).empty());
  EXPECT_TRUE(f.evict(0).empty());
}

TEST(RadixEviction, PagesLeaveFromTheEndOfALeafExactlyAsManyAsAreShort) {
  PrefixFixture f({.page_size = 2});
  f.add(counted(1, 8));
  EXPECT_EQ(f.evict(1), (std::vector{3}));
  EXPECT_EQ(f.draw(), R"(
namespace 0
  [1 2|3 4|5 6] @0-2
)");
  EXPECT_EQ(f.probe(counted(1, 8)), 6);
  EXPECT_EQ(f.evict(2), (std::vector{1, 2}));
  EXPECT_EQ(f.evict(100), (std::vector{0}));
  EXPECT_EQ(f.cache->usage().total_tokens(), 0);
  EXPECT_EQ(f.allocator.free_pages(), 64);
}

TEST(RadixEviction, OnlyTheShortfallLeavesAcrossLeaves) {
  PrefixFixture f;
  f.add({1, 2});
  f.add({3, 4});
  EXPECT_EQ(f.evict(3), (std::vector{0, 1, 3}));
  EXPECT_EQ(f.draw(), R"(
namespace 0
  [3] @2
)");
}

TEST(RadixEviction, GivenUpPagesBelongToWhoAsked) {
  PrefixFixture f;
  f.add({1, 2, 3});
  {
    const OwnedPages pages = f.cache->evict(2);
    EXPECT_EQ(pages.pages(), 2);
    EXPECT_EQ(f.allocator.free_pages(), 61);
  }
  EXPECT_EQ(f.allocator.free_pages(), 63);
}

TEST(RadixEviction, LockedPathsStay) {
  PrefixFixture f;
  f.add({1, 2, 3, 4});
  f.add({1, 2, 5});
  PrefixLock lock = f.begin({1, 2, 3, 4});
  f.add({8, 9});
  EXPECT_EQ(f.evict(100), (std::vector{4, 5, 6}));
  EXPECT_EQ(f.draw(), R"(
namespace 0
  [1|2] @0-1 locks 1
    [3|4] @2-3 locks 1
)");
  EXPECT_TRUE(f.evict(1).empty());
  lock.reset();
  EXPECT_EQ(f.evict(100), (std::vector{2, 3, 0, 1}));
}

TEST(RadixEviction, AParentFollowsItsLastChild) {
  PrefixFixture f;
  f.add({1, 2});
  f.add({1, 3});
  EXPECT_EQ(f.evict(1), (std::vector{1}));
  EXPECT_EQ(f.evict(1), (std::vector{2}));
  EXPECT_EQ(f.evict(1), (std::vector{0}));
}

// A match refreshes every node it covers, the upper part of a split included, and nothing below.
TEST(RadixEviction, AMatchInsideANodeRefreshesItsUpperPartOnly) {
  PrefixFixture f;
  f.add({1, 2, 3, 4});  // @0-3
  f.add({5, 6});        // @4-5
  f.touch({1, 2});
  EXPECT_EQ(f.evict(2), (std::vector{2, 3}));  // below the match: as old as before
  EXPECT_EQ(f.evict(2), (std::vector{4, 5}));  // older than the upper part
  EXPECT_EQ(f.evict(2), (std::vector{0, 1}));
}

// A request that goes on for long keeps its whole prefix fresh, though an insert does not walk it.
TEST(RadixEviction, APrefixIsAsFreshAsTheLastInsertBelowIt) {
  PrefixFixture f;
  PrefixLock lock = f.begin({1});
  const PrefixLock fork = f.begin({1, 9});  // so that [1] does not grow
  f.add({7});
  lock = f.publish(std::move(lock), {1, 2});
  lock = f.publish(std::move(lock), {1, 2, 3});
  lock.reset();
  EXPECT_EQ(f.draw(), R"(
namespace 0
  [1] @0 locks 1
    [2|3] @3-4
    [9] @1 locks 1
  [7] @2
)");
  EXPECT_EQ(f.evict(3), (std::vector{2, 3, 4}));
}

TEST(RadixEviction, AnEvictedBranchLeavesItsLastUseToItsParent) {
  PrefixFixture f;
  {
    PrefixLock lock = f.begin({1});             // @0, used at 2
    const PrefixLock other = f.begin({1});      // so that [1] does not grow
    f.add({7});                                 // @1
    lock = f.publish(std::move(lock), {1, 2});  // @2, later than [7]
  }
  EXPECT_EQ(f.evict(3), (std::vector{1, 2, 0}));
}

TEST(RadixEviction, LeastRecentlyUsedFirst) {
  PrefixFixture f({.eviction = "lru"});
  f.add({1});
  f.add({2});
  f.add({3});
  f.touch({1});
  EXPECT_EQ(f.evict(3), (std::vector{1, 2, 0}));
}

TEST(RadixEviction, LeastOftenMatchedFirst) {
  PrefixFixture f({.eviction = "lfu"});
  f.add({1});
  f.add({2});
  f.add({3});
  f.touch({1});
  f.touch({1});
  f.touch({2});
  EXPECT_EQ(f.evict(3), (std::vector{2, 1, 0}));
}

// Three uses of long ago are worth less than one now, once enough was evicted in between.
TEST(RadixEviction, WhatWasMatchedOftenLongAgoAgesWithWhatIsEvicted) {
  PrefixFixture f({.eviction = "gdsf"});
  f.add({1});
  f.touch({1});
  f.touch({1});
  for (TokenId text = 10; text < 12; ++text) {
    f.add({text});
    f.evict(1);
  }
  EXPECT_EQ(f.probe({1}), 1);
  f.add({50});
  EXPECT_EQ(f.evict(1), (std::vector{0}));
}

TEST(RadixEviction, AProbeAndAContinuingInsertAreNoHits) {
  PrefixFixture f({.eviction = "lfu"});
  PrefixLock lock = f.begin({1});
  for (TokenId end = 2; end <= 5; ++end) {
    lock = f.publish(std::move(lock), counted(1, end));
    f.probe(counted(1, end));
  }
  lock.reset();
  f.add({9});
  f.touch({9});
  EXPECT_EQ(f.evict(1), (std::vector{4}));  // never matched again
}

TEST(RadixEviction, OldestFirst) {
  PrefixFixture f({.eviction = "fifo"});
  f.add({1});
  f.add({2});
  f.touch({1});
  EXPECT_EQ(f.evict(2), (std::vector{0, 1}));
}

TEST(RadixEviction, MostRecentlyUsedFirst) {
  PrefixFixture f({.eviction = "mru"});
  f.add({1});
  f.add({2});
  f.touch({1});
  EXPECT_EQ(f.evict(2), (std::vector{0, 1}));
}

TEST(RadixEviction, YoungestFirst) {
  PrefixFixture f({.eviction = "filo"});
  f.add({1});
  f.add({2});
  f.touch({1});
  EXPECT_EQ(f.evict(2), (std::vector{1, 0}));
}

TEST(RadixEviction, WhatWasMatchedTwiceIsProtected) {
  PrefixFixture f({.eviction = "slru"});
  f.add({1});
  f.touch({1});
  f.touch({1});  // protected
  f.add({2});
  f.touch({2});  // one hit: on probation
  f.add({3});
  EXPECT_EQ(f.evict(3), (std::vector{1, 2, 0}));
}

TEST(RadixEviction, LowestPriorityFirstThenLeastRecentlyUsed) {
  PrefixFixture f({.eviction = "priority"});
  f.add({1}, 5);
  f.add({2}, 0);
  f.add({3}, 0);
  f.touch({2});
  EXPECT_EQ(f.evict(3), (std::vector{2, 1, 0}));
}

TEST(RadixEviction, APathKeepsTheHighestPriorityItWasGiven) {
  PrefixFixture f({.eviction = "priority"});
  f.add({1}, 0);  // @0
  f.add({2}, 3);  // @1
  const PrefixLock fork = f.begin_in(f.ns, {1, 8}, 0);
  f.add({1, 2}, 7);  // @3: its path is worth 7 from now on
  EXPECT_EQ(f.evict(1), (std::vector{1}));
}

TEST(RadixEviction, APromptOutlivesItsOutput) {
  PrefixFixture f;
  const Tokens prompt = counted(0, 10);
  PrefixLock lock = f.begin(prompt);
  lock = f.publish(std::move(lock), counted(0, 16));
  lock.reset();
  f.evict(6);
  EXPECT_EQ(f.probe(counted(0, 16)), 10);
}

TEST(RadixEviction, TheUntouchedBranchGoesFirst) {
  PrefixFixture f({.page_size = 2});
  f.add({1, 2, 3, 4});
  f.add({1, 2, 5, 6});
  f.touch({1, 2, 3, 4});
  EXPECT_EQ(f.evict(1), (std::vector{2}));
  EXPECT_EQ(f.probe({1, 2, 5, 6}), 2);
}

// Pools that are full of cached pages: allocation evicts what it is short of.
TEST(RadixEviction, AllocatingFromAFullPoolEvictsTheShortfall) {
  PrefixFixture f({.page_size = 4, .pages = 4});
  f.add(counted(0, 8));
  OwnedPages two = f.allocate(2);
  EXPECT_EQ(f.cache->usage().total_tokens(), 8);
  OwnedPages third = f.allocate(1);
  EXPECT_EQ(f.cache->usage().total_tokens(), 4);
  OwnedPages fourth = f.allocate(1);
  EXPECT_EQ(f.cache->usage().total_tokens(), 0);
  EXPECT_EQ(f.ids(third), (std::vector{1}));
  EXPECT_EQ(f.ids(fourth), (std::vector{0}));
  EXPECT_EQ(f.allocator.free_pages(), 0);
}

TEST(RadixEviction, EveryPageIsFreeOrCachedThroughAWholeCycle) {
  PrefixFixture f({.page_size = 4, .pages = 8});
  f.add(counted(0, 8));
  EXPECT_EQ(f.allocator.free_pages(), 6);
  EXPECT_EQ(f.cache->usage().total_tokens() / 4, 2);
  {
    OwnedPages six = f.allocate(6);
    EXPECT_EQ(f.allocator.free_pages(), 0);
    OwnedPages seventh = f.allocate(1);
    EXPECT_EQ(f.cache->usage().total_tokens() / 4, 1);
  }
  EXPECT_EQ(f.allocator.free_pages(), 7);
  EXPECT_EQ(f.allocator.audit(), std::nullopt);
}

}  // namespace
}  // namespace stemma
