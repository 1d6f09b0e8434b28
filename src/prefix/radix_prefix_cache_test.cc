// What a radix prefix cache does, as a specification: matches, inserts, splits, locks, namespaces,
// continuation. Trees are drawn: [tokens|page bars] @page ids, and how many locks hold a node.
#include "prefix/radix_prefix_cache.h"

#include <gtest/gtest.h>

#include "prefix/prefix_fixture.h"

namespace stemma {
namespace {

TEST(RadixPrefixCache, ANewCacheIsEmpty) {
  PrefixFixture f;
  EXPECT_EQ(f.probe({1, 2, 3}), 0);
  EXPECT_EQ(f.cache->usage().total_tokens(), 0);
  EXPECT_EQ(f.cache->epoch(), 0u);
  EXPECT_EQ(f.draw(), R"(
namespace 0
)");
}

TEST(RadixPrefixCache, WhatWasInsertedIsFoundWithItsPages) {
  PrefixFixture f;
  f.add({1, 2, 3});
  EXPECT_EQ(f.cache->usage().evictable_tokens, 3);
  EXPECT_EQ(f.ids(f.cache->match(f.ns, Tokens{1, 2, 3})), (std::vector{0, 1, 2}));
  EXPECT_EQ(f.ids(f.cache->match(f.ns, Tokens{1, 2})), (std::vector{0, 1}));
  EXPECT_EQ(f.cache->match(f.ns, Tokens{2, 3}).tokens(), 0);
  EXPECT_EQ(f.cache->match(f.ns, Tokens{}).tokens(), 0);
}

TEST(RadixPrefixCache, TotalIsTheNumberOfDifferentPrefixTokens) {
  PrefixFixture f;
  f.add({1, 2, 3});
  EXPECT_EQ(f.cache->usage().total_tokens(), 3);
  f.add({4, 5});
  EXPECT_EQ(f.cache->usage().total_tokens(), 5);
  f.add({1, 2, 3});
  EXPECT_EQ(f.cache->usage().total_tokens(), 5);
}

TEST(RadixPrefixCache, OnlyWholePagesMatch) {
  for (const auto& [page_size, length] : {std::pair{1, 5}, {2, 5}, {4, 6}}) {
    PrefixFixture f({.page_size = page_size});
    f.add(counted(1, length));
    const std::int64_t matched = f.probe(counted(1, length));
    EXPECT_GT(matched, 0);
    EXPECT_EQ(matched, length / page_size * page_size);
  }
}

TEST(RadixPrefixCache, AMismatchInsideAPageEndsTheMatchBeforeIt) {
  PrefixFixture f({.page_size = 4});
  f.add(counted(0, 12));
  EXPECT_EQ(f.probe({0, 1, 2}), 0);                                 // less than a page
  EXPECT_EQ(f.probe({0, 1, 2, 9, 4, 5, 6, 7}), 0);                  // in the first page
  EXPECT_EQ(f.probe({0, 1, 2, 3, 4, 5, 6, 9}), 4);                  // in the second
  EXPECT_EQ(f.probe({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), 8);        // the third is not whole
  EXPECT_EQ(f.probe(counted(0, 12) + Tokens{12, 13, 14, 15}), 12);  // goes on beyond
}

TEST(RadixPrefixCache, ASharedPrefixIsStoredOnce) {
  PrefixFixture f;
  f.add(counted(1, 8));
  f.add({1, 2, 9, 10});
  EXPECT_EQ(f.cache->usage().total_tokens(), 10);
  EXPECT_EQ(f.draw(), R"(
namespace 0
  [1|2] @0-1
    [3|4|5|6|7|8] @2-7
    [9|10] @8-9
)");
  EXPECT_EQ(f.ids(f.cache->match(f.ns, Tokens{1, 2, 3, 4, 999, 1000})), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(f.cache->usage().total_tokens(), 10);
  EXPECT_EQ(f.ids(f.cache->match(f.ns, counted(1, 8))), (std::vector{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(f.ids(f.cache->match(f.ns, Tokens{1, 2, 3, 4, 5, 6, 777, 888})),
            (std::vector{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(f.ids(f.cache->match(f.ns, Tokens{1, 2, 9, 10})), (std::vector{0, 1, 8, 9}));
}

TEST(RadixPrefixCache, ASharedPrefixIsStoredOnceInPages) {
  PrefixFixture f({.page_size = 2});
  f.add(counted(1, 8));
  f.add({1, 2, 9, 10});
  EXPECT_EQ(f.draw(), R"(
namespace 0
  [1 2] @0
    [3 4|5 6|7 8] @1-3
    [9 10] @4
)");
  EXPECT_EQ(f.probe({1, 2, 3, 4, 999, 1000}), 4);
  EXPECT_EQ(f.probe({1, 2, 3, 4, 5, 6, 777, 888}), 6);
}

// [1 2 3 4] is matched in its middle: the new node takes the prefix and goes above, the old one
// keeps its end, its lock and its children (I4).
TEST(RadixPrefixCache, ASplitGoesAboveAndLeavesLocksValid) {
  PrefixFixture f;
  const PrefixLock whole = f.begin({1, 2, 3, 4});
  const PrefixLock below = f.begin({1, 2, 3, 4, 5});
  EXPECT_EQ(f.draw(), R"(
namespace 0
  [1|2|3|4] @0-3 locks 2
    [5] @4 locks 1
)");
  const PrefixLock part = f.cache->match(f.ns, Tokens{1, 2, 7});
  EXPECT_EQ(f.draw(), R"(
namespace 0
  [1|2] @0-1 locks 3
    [3|4] @2-3 locks 2
      [5] @4 locks 1
)");
  EXPECT_EQ(part.tokens(), 2);
  EXPECT_EQ(f.ids(part), (std::vector{0, 1}));
  EXPECT_EQ(whole.tokens(), 4);
  EXPECT_EQ(f.ids(whole), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(f.ids(below, 1), (std::vector{1, 2, 3, 4}));
}

TEST(RadixPrefixCache, ProbeChangesNothing) {
  PrefixFixture f;
  f.add({1, 2, 3, 4});
  f.add({5, 6});
  const std::string before = f.draw();
  const std::uint64_t epoch = f.cache->epoch();
  EXPECT_EQ(f.probe({1, 2, 9}), 2);  // inside a node: no split
  EXPECT_EQ(f.probe({1, 2, 3, 4}), 4);
  EXPECT_EQ(f.draw(), before);
  EXPECT_EQ(f.cache->epoch(), epoch);
  EXPECT_EQ(f.evict(4), (std::vector{0, 1, 2, 3}));  // and no use: still the oldest
}

TEST(RadixPrefixCache, LocksMoveTokensBetweenEvictableAndLocked) {
  PrefixFixture f;
  f.add({1, 2, 3});
  EXPECT_EQ(f.cache->usage().evictable_tokens, 3);
  PrefixLock lock = f.cache->match(f.ns, Tokens{1, 2, 3});
  EXPECT_EQ(f.cache->usage().locked_tokens, 3);
  EXPECT_EQ(f.cache->usage().evictable_tokens, 0);
  PrefixLock second = f.cache->match(f.ns, Tokens{1, 2, 3});
  lock.reset();
  EXPECT_EQ(f.cache->usage().locked_tokens, 3);
  second.reset();
  EXPECT_EQ(f.cache->usage().locked_tokens, 0);
  EXPECT_EQ(f.cache->usage().evictable_tokens, 3);
}

//   1 2 3 | 4 5      held
//           6 7
TEST(RadixPrefixCache, ProbeSaysHowMuchOfItNobodyHolds) {
  PrefixFixture f;
  f.add({1, 2, 3, 4, 5});
  f.add({1, 2, 3, 6, 7});
  const auto evictable = [&](const Tokens& tokens) {
    std::vector<PageId> pages(tokens.size());
    const PrefixProbe probe = f.cache->probe(f.ns, tokens);
    EXPECT_EQ(f.cache->probe(f.ns, tokens, pages).evictable_tokens, probe.evictable_tokens);
    return probe.evictable_tokens;
  };
  EXPECT_EQ(evictable({1, 2, 3, 6, 9}), 4);
  const PrefixLock lock = f.cache->match(f.ns, Tokens{1, 2, 3, 4, 5});
  EXPECT_EQ(evictable({1, 2, 3, 4, 5}), 0);
  EXPECT_EQ(evictable({1, 2, 3, 6, 7}), 2);
  EXPECT_EQ(evictable({1, 2, 3, 6, 9}), 1) << "of a node as much as matches";
}

TEST(RadixPrefixCache, ALockIsMovedNotCopied) {
  PrefixFixture f;
  f.add({1, 2});
  PrefixLock lock = f.cache->match(f.ns, Tokens{1, 2});
  PrefixLock moved = std::move(lock);
  EXPECT_FALSE(lock.valid());  // NOLINT: the moved-from state is what is tested
  EXPECT_TRUE(moved.valid());
  EXPECT_EQ(f.cache->locks(), 1);
  moved = f.cache->match(f.ns, Tokens{1});
  EXPECT_EQ(f.cache->locks(), 1);
  EXPECT_EQ(f.cache->usage().locked_tokens, 1);
  moved.reset();
  moved.reset();
  EXPECT_EQ(f.cache->locks(), 0);
}

TEST(RadixPrefixCache, ALockOfNothingKnowsItsNamespace) {
  PrefixFixture f;
  const PrefixLock lock = f.cache->match(f.ns, Tokens{1});
  EXPECT_TRUE(lock.valid());
  EXPECT_EQ(lock.tokens(), 0);
  EXPECT_EQ(lock.namespace_id(), f.ns);
  EXPECT_EQ(lock.copy_pages(0, {}), 0);
}

// Two requests with the same prompt prefill at the same time: the second one's pages are
// duplicates. They go back to the pool and its lock names the first one's.
TEST(RadixPrefixCache, DuplicatePagesAreFreedAndTheRowFollowsTheTree) {
  PrefixFixture f;
  PrefixLock first = f.cache->match(f.ns, Tokens{1, 2, 3});
  PrefixLock second = f.cache->match(f.ns, Tokens{1, 2, 3});
  OwnedPages mine = f.allocate(3);
  OwnedPages twin = f.allocate(3);
  EXPECT_EQ(f.ids(twin), (std::vector{3, 4, 5}));
  first = f.cache->insert(Tokens{1, 2, 3}, std::move(first), std::move(mine), {});
  second = f.cache->insert(Tokens{1, 2, 3}, std::move(second), std::move(twin), {});
  EXPECT_EQ(f.ids(second), (std::vector{0, 1, 2}));
  EXPECT_EQ(f.allocator.free_pages(), 64 - 3);
  EXPECT_EQ(f.draw(), R"(
namespace 0
  [1|2|3] @0-2 locks 2
)");
}

// In three steps, each from where the last one ended; only what another request published in
// between is a duplicate.
TEST(RadixPrefixCache, AnInsertContinuesFromItsLock) {
  PrefixFixture f({.page_size = 2});
  PrefixLock lock = f.begin({1, 2});
  f.add({1, 2, 3, 4, 50, 60});
  EXPECT_EQ(f.allocator.free_pages(), 64 - 3);
  lock = f.cache->insert(Tokens{1, 2, 3, 4, 5, 6}, std::move(lock), f.allocate(2), {});
  EXPECT_EQ(f.allocator.free_pages(), 64 - 4);  // [3 4] was there, [5 6] is new
  lock = f.publish(std::move(lock), {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(f.ids(lock),
            (std::vector{0, 1, 4, 3}));  // 3 came back as the duplicate's and went out again
  EXPECT_EQ(f.draw(), R"(
namespace 0
  [1 2] @0 locks 1
    [3 4] @1 locks 1
      [5 6|7 8] @4,3 locks 1
      [50 60] @2
)");
}

TEST(RadixPrefixCache, AnUnsharedLeafGrowsInPlace) {
  PrefixFixture f;
  PrefixLock lock = f.begin({1, 2});
  for (TokenId end = 3; end <= 6; ++end) lock = f.publish(std::move(lock), counted(1, end));
  EXPECT_EQ(f.draw(), R"(
namespace 0
  [1|2|3|4|5|6] @0-5 locks 1
)");
}

TEST(RadixPrefixCache, ALeafThatOthersHoldIsNotGrown) {
  PrefixFixture f;
  PrefixLock lock = f.begin({1, 2});
  const PrefixLock other = f.begin({1, 2});
  lock = f.publish(std::move(lock), {1, 2, 3});
  EXPECT_EQ(f.draw(), R"(
namespace 0
  [1|2] @0-1 locks 2
    [3] @2 locks 1
)");
  EXPECT_EQ(f.ids(other), (std::vector{0, 1}));
}

TEST(RadixPrefixCache, AnInsertOfNothingReturnsTheSameHold) {
  PrefixFixture f;
  PrefixLock lock = f.begin({1, 2});
  const std::uint64_t epoch = f.cache->epoch();
  lock = f.cache->insert(Tokens{1, 2}, std::move(lock), {}, {});
  EXPECT_EQ(lock.tokens(), 2);
  EXPECT_EQ(f.cache->epoch(), epoch);
  EXPECT_EQ(f.cache->locks(), 1);
}

TEST(RadixPrefixCache, NamespacesNeverMeet) {
  PrefixFixture f;
  const NamespaceId one = *f.cache->try_open_namespace(digest_of(1));
  const NamespaceId two = *f.cache->try_open_namespace(digest_of(2));
  const NamespaceId never_used = *f.cache->try_open_namespace(digest_of(3));
  f.add({1, 2});
  f.begin_in(one, {1, 2}).reset();
  f.begin_in(two, {1, 2}).reset();
  EXPECT_EQ(f.ids(f.cache->match(f.ns, Tokens{1, 2})), (std::vector{0, 1}));
  EXPECT_EQ(f.ids(f.cache->match(one, Tokens{1, 2})), (std::vector{2, 3}));
  EXPECT_EQ(f.ids(f.cache->match(two, Tokens{1, 2})), (std::vector{4, 5}));
  EXPECT_EQ(f.cache->match(never_used, Tokens{1, 2}).tokens(), 0);
}

TEST(RadixPrefixCache, ANamespaceIsOpenedOnceAndTheirNumberIsBounded) {
  PrefixFixture f;  // at most 4
  EXPECT_EQ(f.cache->try_open_namespace(digest_of(0)), f.ns);
  for (const int byte : {1, 2, 3}) {
    EXPECT_TRUE(f.cache->try_open_namespace(digest_of(byte)).has_value());
  }
  EXPECT_EQ(f.cache->try_open_namespace(digest_of(4)), std::nullopt);
  EXPECT_EQ(f.cache->try_open_namespace(digest_of(0)), f.ns);
}

TEST(RadixPrefixCache, AClosedNamespaceKeepsItsPagesUntilItsNameIsNeeded) {
  PrefixFixture f;  // at most 4
  const NamespaceId one = *f.cache->try_open_namespace(digest_of(1));
  f.begin_in(one, {1, 2}).reset();
  f.cache->close_namespace(one);
  EXPECT_EQ(f.cache->try_open_namespace(digest_of(1)), one);
  EXPECT_EQ(f.cache->match(one, Tokens{1, 2}).tokens(), 2);
}

TEST(RadixPrefixCache, AClosedAndEmptyNamespaceGivesItsName) {
  PrefixFixture f;
  const NamespaceId one = *f.cache->try_open_namespace(digest_of(1));
  for (const int byte : {2, 3}) EXPECT_TRUE(f.cache->try_open_namespace(digest_of(byte)));
  f.cache->close_namespace(one);
  EXPECT_EQ(f.cache->try_open_namespace(digest_of(4)), one);
  EXPECT_EQ(f.cache->try_open_namespace(digest_of(1)), std::nullopt);  // all are open again
}

TEST(RadixPrefixCache, WhatGoesForANameIsHandedOver) {
  PrefixFixture f;
  for (const int byte : {1, 2, 3}) {
    const NamespaceId closed = *f.cache->try_open_namespace(digest_of(byte));
    f.begin_in(closed, {1, 2}).reset();
    f.cache->close_namespace(closed);
  }
  OwnedPages evicted;
  EXPECT_TRUE(f.cache->try_open_namespace(digest_of(4), &evicted).has_value());
  EXPECT_EQ(evicted.pages() + f.cache->usage().total_tokens(), 6);
  EXPECT_GE(evicted.pages(), 2);
  const std::int64_t gone = evicted.pages();
  f.cache->close_namespace(*f.cache->try_open_namespace(digest_of(4), &evicted));
  EXPECT_EQ(evicted.pages(), gone) << "it has a name";
}

TEST(RadixPrefixCache, WhereNoClosedNamespaceIsEmptyTheColdestPagesGo) {
  PrefixFixture f;
  std::vector<NamespaceId> closed;
  for (const int byte : {1, 2, 3}) {
    closed.push_back(*f.cache->try_open_namespace(digest_of(byte)));
    f.begin_in(closed.back(), {1, 2}).reset();
    f.cache->close_namespace(closed.back());
  }
  const NamespaceId fresh = *f.cache->try_open_namespace(digest_of(4));
  EXPECT_EQ(f.cache->probe(fresh, Tokens{1, 2}).matched_tokens, 0);  // nothing of another's
  f.begin_in(fresh, {1, 2}).reset();
  EXPECT_EQ(f.cache->probe(fresh, Tokens{1, 2}).matched_tokens, 2);
}

TEST(RadixPrefixCache, ANamespaceUnderALockKeepsItsName) {
  PrefixFixture f;
  const NamespaceId one = *f.cache->try_open_namespace(digest_of(1));
  for (const int byte : {2, 3}) EXPECT_TRUE(f.cache->try_open_namespace(digest_of(byte)));
  const PrefixLock lock = f.begin_in(one, {1, 2});
  f.cache->close_namespace(one);
  EXPECT_EQ(f.cache->try_open_namespace(digest_of(4)), std::nullopt);
  EXPECT_EQ(f.cache->match(one, Tokens{1, 2}).tokens(), 2);
}

TEST(RadixPrefixCacheDeathTest, ANamespaceIsClosedAsOftenAsOpened) {
  PrefixFixture f;
  EXPECT_EQ(f.cache->try_open_namespace(digest_of(0)), f.ns);
  f.cache->close_namespace(f.ns);
  f.cache->close_namespace(f.ns);
  EXPECT_DEATH(f.cache->close_namespace(f.ns), "closed as often as opened");
}

TEST(RadixPrefixCache, EqualEpochsMeanThatAProbeStillHolds) {
  PrefixFixture f;
  const std::uint64_t empty = f.cache->epoch();
  f.add({1, 2, 3});
  const std::uint64_t filled = f.cache->epoch();
  EXPECT_GT(filled, empty);
  f.touch({1, 2});   // a split
  f.add({1, 2, 3});  // nothing new
  f.evict(0);
  EXPECT_EQ(f.cache->epoch(), filled);
  f.evict(1);
  EXPECT_GT(f.cache->epoch(), filled);
  const std::uint64_t evicted = f.cache->epoch();
  f.cache->reset();
  EXPECT_GT(f.cache->epoch(), evicted);
}

TEST(RadixPrefixCache, ResetDropsEverythingAndGivesThePagesBack) {
  PrefixFixture f;
  f.add(counted(1, 8));
  f.add({1, 2, 9, 10});
  f.cache->reset();
  EXPECT_EQ(f.cache->usage().total_tokens(), 0);
  EXPECT_EQ(f.allocator.free_pages(), 64);
  EXPECT_EQ(f.probe({1, 2}), 0);
  f.add({1, 2});
  EXPECT_EQ(f.probe({1, 2}), 2);
}

TEST(RadixPrefixCache, ADeepTreeAndManySiblings) {
  PrefixFixture f({.page_size = 1, .pages = 1024});
  Tokens text;
  for (TokenId depth = 0; depth < 128; ++depth) {
    text.push_back(depth);
    f.add(text + Tokens{-1});  // a side leaf at every depth
  }
  EXPECT_EQ(f.probe(text), 128);
  for (TokenId sibling = 1000; sibling < 1128; ++sibling) f.add({7, sibling});
  for (TokenId sibling = 1000; sibling < 1128; ++sibling) EXPECT_EQ(f.probe({7, sibling}), 2);
  EXPECT_EQ(f.cache->audit(), std::nullopt);
}

// A look-up hash of few bits makes almost every look-up collide; tokens decide (I7).
TEST(RadixPrefixCache, CollidingLookUpsAreStillExact) {
  for (const int bits : {1, 8}) {
    PrefixFixture f({.page_size = 2, .pages = 4096, .hash_bits = bits});
    for (TokenId i = 0; i < 500; ++i) f.add({i, 0, i, 1, i % 7, i});
    for (TokenId i = 0; i < 500; ++i) {
      EXPECT_EQ(f.probe({i, 0, i, 1, i % 7, i}), 6) << i;
      EXPECT_EQ(f.probe({i, 0, i, 2}), 2) << i;
      EXPECT_EQ(f.probe({i, 1}), 0) << i;
    }
    f.evict(700);
    EXPECT_EQ(f.cache->audit(), std::nullopt);
  }
}

TEST(RadixPrefixCache, LongNodesAreDrawnShort) {
  PrefixFixture f({.page_size = 16, .pages = 8});
  f.add(counted(0, 48));
  EXPECT_NE(f.draw().find("30 31… (48 tokens)] @0-2"), std::string::npos) << f.draw();
}

using RadixPrefixCacheDeathTest = testing::Test;

TEST(RadixPrefixCacheDeathTest, BrokenPreconditionsStopTheProgram) {
  PrefixFixture f({.page_size = 2});
  EXPECT_DEATH(static_cast<void>(f.cache->match(NamespaceId(3), Tokens{1, 2})), "opened");
  EXPECT_DEATH(static_cast<void>(f.cache->probe(NamespaceId(), Tokens{1, 2})), "opened");
  EXPECT_DEATH(static_cast<void>(f.cache->evict(-1)), "wanted_pages");
  PrefixLock lock = f.begin({1, 2});
  EXPECT_DEATH(f.cache->reset(), "lock");
  EXPECT_DEATH(static_cast<void>(f.cache->insert(Tokens{1, 2}, PrefixLock(), {}, {})),
               "same cache");
  EXPECT_DEATH(
      static_cast<void>(f.cache->insert(Tokens{1, 2, 3}, std::move(lock), f.allocate(1), {})),
      "size");
  EXPECT_DEATH(static_cast<void>(f.cache->insert(Tokens{1, 2}, std::move(lock), f.allocate(1), {})),
               "size");
  EXPECT_DEATH(static_cast<void>(lock.copy_pages(2, {})), "I2");
  PrefixFixture other({.page_size = 2});
  EXPECT_DEATH(static_cast<void>(other.cache->insert(Tokens{1, 2}, std::move(lock), {}, {})),
               "same cache");
}

TEST(RadixPrefixCacheDeathTest, ALockOutlivesNeitherItsCacheNorItself) {
  EXPECT_DEATH(
      {
        auto f = std::make_unique<PrefixFixture>();
        PrefixLock lock = f->begin({1});
        f.reset();
      },
      "lock");
  EXPECT_DEATH(static_cast<void>(PrefixLock().copy_pages(0, {})), "I2");
}

}  // namespace
}  // namespace stemma
