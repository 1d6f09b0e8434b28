// What moving pages between tiers asks of the radix prefix cache: going on from a lock, hot
// prefixes, the coldest leaf, and dropping pages that were found to be wrong.
#include <gtest/gtest.h>

#include "base/prng.h"
#include "prefix/prefix_fixture.h"

namespace stemma {
namespace {

Tokens tokens_of(const PrefixFixture& fixture, const PrefixLock& lock) {
  Tokens tokens(static_cast<std::size_t>(lock.tokens()));
  fixture.cache->copy_tokens(lock, tokens);
  return tokens;
}

TEST(Extend, GoesOnToWhatOthersPublishedSince) {
  PrefixFixture fixture({.page_size = 2});
  PrefixLock lock = fixture.begin(counted(0, 4));
  fixture.add(counted(0, 10));
  lock = fixture.cache->extend(std::move(lock), counted(0, 9));
  EXPECT_EQ(lock.tokens(), 8);
  EXPECT_EQ(tokens_of(fixture, lock), counted(0, 8));
  EXPECT_EQ(fixture.evict(100).size(), 1u) << "what was added is held too";
}

TEST(Extend, GivesTheLockBackWhereThereIsNothingMore) {
  PrefixFixture fixture({.page_size = 2});
  PrefixLock lock = fixture.begin(counted(0, 4));
  const std::string before = fixture.draw();
  lock = fixture.cache->extend(std::move(lock), counted(0, 8));
  EXPECT_EQ(lock.tokens(), 4);
  EXPECT_EQ(fixture.draw(), before);
}

TEST(Extend, FromALockOfNothing) {
  PrefixFixture fixture;
  PrefixLock lock = fixture.cache->match(fixture.ns, counted(0, 3));
  fixture.add(counted(0, 3));
  lock = fixture.cache->extend(std::move(lock), counted(0, 3));
  EXPECT_EQ(lock.tokens(), 3);
}

TEST(Extend, IsNoHit) {
  PrefixFixture fixture;
  PrefixLock lock = fixture.cache->match(fixture.ns, counted(0, 3));
  fixture.add(counted(0, 3));
  lock = fixture.cache->extend(std::move(lock), counted(0, 3));
  EXPECT_EQ(fixture.cache->hot_tokens(lock, 1), 0);
}

//   0 1 2 [3]                  matched by two
//           4 5                matched by one of them
TEST(HotTokens, AreThoseThatEnoughMatchesCovered) {
  PrefixFixture fixture;
  fixture.add(counted(0, 6));
  fixture.touch(counted(0, 4));
  const PrefixLock lock = fixture.cache->match(fixture.ns, counted(0, 6));
  EXPECT_EQ(fixture.cache->hot_tokens(lock, 0), 6);
  EXPECT_EQ(fixture.cache->hot_tokens(lock, 1), 6);
  EXPECT_EQ(fixture.cache->hot_tokens(lock, 2), 4);
  EXPECT_EQ(fixture.cache->hot_tokens(lock, 3), 0);
}

TEST(CopyTokens, AreThoseOfThePathWhateverItsNodes) {
  PrefixFixture fixture({.page_size = 3});
  fixture.add(counted(0, 12));
  fixture.add(counted(0, 6) + counted(50, 9));
  const PrefixLock lock = fixture.begin(counted(0, 6) + counted(50, 3) + counted(90, 3));
  EXPECT_EQ(tokens_of(fixture, lock), counted(0, 6) + counted(50, 3) + counted(90, 3));
}

TEST(Share, IsASecondLockAndNoUse) {
  PrefixFixture fixture;
  PrefixLock first = fixture.begin(counted(0, 3));
  PrefixLock second = fixture.cache->share(first);
  first.reset();
  EXPECT_TRUE(fixture.evict(3).empty());
  EXPECT_EQ(tokens_of(fixture, second), counted(0, 3));
  EXPECT_EQ(fixture.cache->hot_tokens(second, 1), 0);
  second.reset();
  EXPECT_EQ(fixture.evict(3).size(), 3u);
}

TEST(LockColdest, TakesTheLeavesInTheOrderInWhichTheyWouldGo) {
  for (const std::string eviction : {"lru", "fifo", "hazard", "s3fifo"}) {
    PrefixFixture fixture({.eviction = eviction});
    fixture.add(counted(0, 3));
    fixture.add(counted(10, 3));
    const auto first = fixture.cache->try_lock_coldest();
    const auto second = fixture.cache->try_lock_coldest();
    ASSERT_TRUE(first.has_value() && second.has_value()) << eviction;
    EXPECT_FALSE(fixture.cache->try_lock_coldest().has_value());
    EXPECT_EQ(tokens_of(fixture, first->lock), counted(0, 3)) << eviction;
    EXPECT_EQ(tokens_of(fixture, second->lock), counted(10, 3)) << eviction;
    EXPECT_TRUE(fixture.evict(6).empty()) << eviction;
    EXPECT_EQ(fixture.cache->audit(), std::nullopt);
  }
}

TEST(LockColdest, IsNoUse) {
  PrefixFixture fixture;
  fixture.add(counted(0, 3));
  fixture.add(counted(10, 3));
  fixture.cache->try_lock_coldest()->lock.reset();
  fixture.evict(3);
  EXPECT_EQ(fixture.probe(counted(0, 3)), 0) << "what was coldest still is";
  EXPECT_EQ(fixture.probe(counted(10, 3)), 3);
}

TEST(LockColdest, TakesWhatIsWaitedForLastAndWhatIsNextOfItVeryLast) {
  PrefixFixture fixture;
  for (const TokenId first : {0, 10, 20}) fixture.add(counted(first, 3));
  fixture.cache->want(fixture.ns, counted(0, 3), 0);
  fixture.cache->want(fixture.ns, counted(10, 3), 1);
  std::vector<ColdLeaf> held;
  for (const TokenId first : {20, 10, 0}) {
    auto cold = fixture.cache->try_lock_coldest();
    ASSERT_TRUE(cold.has_value());
    EXPECT_EQ(tokens_of(fixture, cold->lock), counted(first, 3));
    held.push_back(std::move(*cold));
  }
  EXPECT_FALSE(fixture.cache->try_lock_coldest().has_value());
  held.clear();
  fixture.evict(6);
  EXPECT_EQ(fixture.probe(counted(0, 3)), 3) << "it was no use, and is waited for as before";
  EXPECT_EQ(fixture.cache->audit(), std::nullopt);
}

//   0 1 | 2 3
//         2 3 4 5
//         2 3 8 9      discard from 2 on: all three
TEST(Discard, DropsAPageAndAllBelowIt) {
  PrefixFixture fixture({.page_size = 2, .pages = 16});
  fixture.add(counted(0, 6));
  fixture.add(counted(0, 4) + counted(8, 2));
  fixture.add(counted(0, 2) + counted(20, 2));
  EXPECT_TRUE(fixture.cache->try_discard(fixture.ns, counted(0, 4), 2));
  EXPECT_EQ(fixture.probe(counted(0, 6)), 2);
  EXPECT_EQ(fixture.probe(counted(0, 2) + counted(20, 2)), 4);
  EXPECT_EQ(fixture.allocator.free_pages(), 14);
}

TEST(Discard, LeavesWhatIsLocked) {
  PrefixFixture fixture;
  fixture.add(counted(0, 6));
  const PrefixLock lock = fixture.cache->match(fixture.ns, counted(0, 4));
  EXPECT_FALSE(fixture.cache->try_discard(fixture.ns, counted(0, 6), 2));
  EXPECT_EQ(fixture.probe(counted(0, 6)), 6);
  EXPECT_TRUE(fixture.cache->try_discard(fixture.ns, counted(0, 6), 5));
  EXPECT_EQ(fixture.probe(counted(0, 6)), 5);
}

TEST(Discard, OfWhatIsNotThereIsDone) {
  PrefixFixture fixture;
  fixture.add(counted(0, 3));
  EXPECT_TRUE(fixture.cache->try_discard(fixture.ns, counted(0, 9), 3));
  EXPECT_TRUE(fixture.cache->try_discard(fixture.ns, counted(40, 3), 0));
  EXPECT_EQ(fixture.probe(counted(0, 3)), 3);
}

TEST(Discard, OfADeepTree) {
  constexpr std::int64_t kDepth = 4000;
  PrefixFixture fixture({.pages = 2 * kDepth});
  PrefixLock lock = fixture.cache->match(fixture.ns, {});
  Tokens text;
  for (TokenId i = 0; i < kDepth; ++i) {
    lock = fixture.publish(std::move(lock), text + Tokens{-1 - i});
    lock.reset();
    text.push_back(i);
    lock = fixture.begin(text);
  }
  lock.reset();
  EXPECT_TRUE(fixture.cache->try_discard(fixture.ns, text, 0));
  EXPECT_EQ(fixture.probe(text), 0);
}

Tokens beginning(const Tokens& tokens, std::int64_t count) {
  return {tokens.begin(), tokens.begin() + count};
}

class RandomMoves : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr std::uint64_t kSeed = 77;

  void lock_coldest() {
    auto coldest = fixture.cache->try_lock_coldest();
    if (!coldest.has_value()) return;
    Tokens tokens = tokens_of(fixture, coldest->lock);
    EXPECT_EQ(fixture.probe(tokens), coldest->lock.tokens());
    held.emplace_back(std::move(tokens), std::move(coldest->lock));
  }

  void extend_last() {
    auto& [tokens, lock] = held.back();
    tokens = beginning(tokens, lock.tokens()) + drawn_text(prng);
    lock = fixture.cache->extend(std::move(lock), tokens);
  }

  void move() {
    const std::int64_t command = prng.below(6);
    if (command < 2 && held.size() < 3) {
      const Tokens text = drawn_text(prng);
      command == 0 ? held.emplace_back(text, fixture.begin(text)), void() : lock_coldest();
    } else if (command == 2 && !held.empty()) {
      held.erase(held.begin());
    } else if (command == 3 && !held.empty()) {
      extend_last();
    } else if (command == 4) {
      fixture.cache->try_discard(fixture.ns, drawn_text(prng), 0);
    } else {
      fixture.evict(prng.below(4));
    }
  }

  Prng prng{kSeed};
  PrefixFixture fixture{{.page_size = 2, .pages = 40, .eviction = GetParam()}};
  std::vector<std::pair<Tokens, PrefixLock>> held;
};

TEST_P(RandomMoves, KeepTheTreeWhole) {
  SCOPED_TRACE(kSeed);
  for (int i = 0; i < 4000; ++i) {
    move();
    ASSERT_EQ(fixture.cache->audit(), std::nullopt) << "operation " << i;
    for (const auto& [tokens, lock] : held) {
      ASSERT_EQ(tokens_of(fixture, lock), beginning(tokens, lock.tokens())) << "operation " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, RandomMoves, ::testing::Values("lru", "fifo", "hazard", "s3fifo"));

}  // namespace
}  // namespace stemma
