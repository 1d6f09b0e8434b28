// Pages found to be wrong: nobody finds them from then on, whoever holds them keeps them until he
// lets go, and the same tokens can be published again meanwhile.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/clock.h"
#include "base/prng.h"
#include "prefix/page_key.h"
#include "prefix/prefix_fixture.h"

namespace stemma {
namespace {

std::vector<PageKey> quarantine(PrefixFixture& fixture, const Tokens& tokens, std::int64_t kept) {
  std::vector<PageKey> keys;
  fixture.cache->quarantine(fixture.ns, tokens, kept, keys);
  EXPECT_EQ(fixture.cache->audit(), std::nullopt) << fixture.draw();
  return keys;
}

//   0 1 | 2 3
//         2 3 4 5
//         2 3 8 9      in quarantine from 2 on: all three
TEST(Quarantine, OfWhatNobodyHoldsFreesItAtOnce) {
  PrefixFixture fixture({.page_size = 2, .pages = 16});
  fixture.add(counted(0, 6));
  fixture.add(counted(0, 4) + counted(8, 2));
  fixture.add(counted(0, 2) + counted(20, 2));
  EXPECT_EQ(quarantine(fixture, counted(0, 4), 2).size(), 3u);
  EXPECT_EQ(fixture.probe(counted(0, 6)), 2);
  EXPECT_EQ(fixture.probe(counted(0, 2) + counted(20, 2)), 4);
  EXPECT_EQ(fixture.allocator.free_pages(), 14);
}

// What was evicted, was computed again and went with a purge, by a leaf's end or the whole of it.
TEST(Quarantine, IsNotTakenForAnEvictionOfLongAgo) {
  for (const std::int64_t evicted : {1, 3}) {
    FakeClock clock;
    PrefixFixture fixture({.clock = &clock, .evicted_marks = 16});
    const Tokens text = counted(1, 3);
    const auto why = [&] { return fixture.cache->why_ends(fixture.ns, text + Tokens{9}).end; };
    fixture.add(text);
    fixture.evict(evicted);
    EXPECT_EQ(why(), PrefixEnd::kEvicted);
    fixture.add(text);
    EXPECT_EQ(why(), PrefixEnd::kTail);
    if (evicted == 1) {
      quarantine(fixture, text, 2);
    } else {
      fixture.cache->purge({});
    }
    EXPECT_EQ(why(), PrefixEnd::kCold);
  }
}

TEST(Quarantine, OfWhatIsNotThereDoesNothing) {
  PrefixFixture fixture;
  fixture.add(counted(0, 3));
  EXPECT_TRUE(quarantine(fixture, counted(0, 9), 3).empty());
  EXPECT_TRUE(quarantine(fixture, counted(40, 3), 0).empty());
  EXPECT_EQ(fixture.probe(counted(0, 3)), 3);
}

TEST(Quarantine, TellsTheKeysOfItsPages) {
  PrefixFixture fixture({.page_size = 2});
  const PrefixLock lock = fixture.begin(counted(0, 8));
  std::vector<PageKey> all(4);
  lock.copy_page_keys(0, all);
  EXPECT_EQ(quarantine(fixture, counted(0, 4), 2),
            std::vector<PageKey>(all.begin() + 1, all.end()));
}

TEST(Quarantine, LeavesWhatIsHeldToItsHolderAndShowsItToNobodyElse) {
  PrefixFixture fixture({.page_size = 2, .pages = 16});
  PrefixLock held = fixture.begin(counted(0, 6));
  const auto pages = fixture.ids(held);
  quarantine(fixture, counted(0, 4), 2);
  EXPECT_TRUE(fixture.cache->is_quarantined(held));
  EXPECT_EQ(fixture.probe(counted(0, 6)), 2);
  EXPECT_EQ(fixture.ids(held), pages);
  EXPECT_TRUE(fixture.evict(16).empty()) << "it is held";
  EXPECT_EQ(fixture.draw(), R"(
namespace 0
  [0 1] @0 locks 1
    [2 3|4 5] @1-2 locks 1 quarantined
)");
  Tokens tokens(6);
  fixture.cache->copy_tokens(held, tokens);
  EXPECT_EQ(tokens, counted(0, 6));
  held.reset();
  EXPECT_EQ(fixture.allocator.free_pages(), 15);
  EXPECT_EQ(fixture.cache->usage().total_tokens(), 2);
}

TEST(Quarantine, TheSameTokensCanBePublishedBesideIt) {
  PrefixFixture fixture({.page_size = 2, .pages = 16});
  PrefixLock wrong = fixture.begin(counted(0, 6));
  quarantine(fixture, counted(0, 4), 0);
  PrefixLock right = fixture.begin(counted(0, 6));
  EXPECT_FALSE(fixture.cache->is_quarantined(right));
  EXPECT_NE(fixture.ids(right), fixture.ids(wrong));
  EXPECT_EQ(fixture.probe(counted(0, 6)), 6);
  quarantine(fixture, counted(0, 4), 0);
  EXPECT_TRUE(fixture.cache->is_quarantined(right)) << "it may be wrong again";
  wrong.reset();
  EXPECT_EQ(fixture.cache->audit(), std::nullopt);
  right.reset();
  EXPECT_EQ(fixture.allocator.free_pages(), 16);
}

TEST(Quarantine, WhatIsPublishedFromThereIsInItToo) {
  PrefixFixture fixture({.page_size = 2, .pages = 16});
  PrefixLock held = fixture.begin(counted(0, 4));
  const PrefixLock also_held = fixture.cache->share(held);
  quarantine(fixture, counted(0, 4), 2);
  held = fixture.publish(std::move(held), counted(0, 8));
  EXPECT_TRUE(fixture.cache->is_quarantined(held));
  EXPECT_EQ(fixture.probe(counted(0, 8)), 2);
  held = fixture.cache->extend(std::move(held), counted(0, 10));
  EXPECT_EQ(held.tokens(), 8);
  EXPECT_EQ(fixture.cache->audit(), std::nullopt) << fixture.draw();
}

TEST(Quarantine, ASiblingThatIsHeldStaysFound) {
  PrefixFixture fixture({.page_size = 2});
  const PrefixLock right = fixture.begin(counted(0, 4) + counted(20, 4));
  const PrefixLock wrong = fixture.begin(counted(0, 8));
  quarantine(fixture, counted(0, 8), 4);
  EXPECT_FALSE(fixture.cache->is_quarantined(right));
  EXPECT_TRUE(fixture.cache->is_quarantined(wrong));
  EXPECT_EQ(fixture.probe(counted(0, 4) + counted(20, 4)), 8);
  EXPECT_EQ(fixture.probe(counted(0, 8)), 4);
}

TEST(Purge, TakesOneNamespaceAndLeavesWhatIsHeldToItsHolder) {
  PrefixFixture fixture({.page_size = 2, .pages = 16});
  const NamespaceId other = *fixture.cache->try_open_namespace(digest_of(1));
  fixture.add(counted(0, 4) + counted(20, 4));
  PrefixLock held = fixture.begin(counted(0, 6));
  const auto pages = fixture.ids(held);
  fixture.begin_in(other, counted(0, 4)).reset();
  const std::uint64_t epoch = fixture.cache->epoch();
  EXPECT_EQ(fixture.cache->purge(std::vector{family_of(digest_of(0))}), 5);
  EXPECT_GT(fixture.cache->epoch(), epoch);
  EXPECT_EQ(fixture.probe(counted(0, 6)), 0);
  EXPECT_EQ(fixture.cache->probe(other, counted(0, 4)).matched_tokens, 4);
  EXPECT_TRUE(fixture.cache->is_quarantined(held));
  EXPECT_EQ(fixture.ids(held), pages);
  EXPECT_EQ(fixture.allocator.free_pages(), 16 - 3 - 2);
  fixture.add(counted(0, 2));
  EXPECT_EQ(fixture.probe(counted(0, 6)), 2) << "it is used afresh";
  held.reset();
  EXPECT_EQ(fixture.allocator.free_pages(), 16 - 1 - 2);
  EXPECT_EQ(fixture.cache->purge(std::vector{family_of(digest_of(7))}), 0);
  EXPECT_EQ(fixture.cache->purge({}), 3);
  EXPECT_EQ(fixture.allocator.free_pages(), 16);
}

// However many namespaces that are: one look at each node.
TEST(Quarantine, OfManyNamespacesTakesOneLookAtTheNodes) {
  constexpr int kNamespaces = 20;
  PrefixFixture fixture({.namespaces_max = kNamespaces + 1});
  fixture.add({1, 2});
  std::vector<NamespaceId> wrong;
  for (int i = 1; i <= kNamespaces; ++i) {
    wrong.push_back(*fixture.cache->try_open_namespace(digest_of(i)));
    fixture.begin_in(wrong.back(), {1, 2}).reset();
  }
  const PrefixLock held = fixture.cache->match(wrong[0], Tokens{1, 2});
  const std::int64_t before = fixture.cache->listed_nodes();
  const std::int64_t nodes = fixture.cache->nodes();
  std::vector<PageKey> keys;
  EXPECT_EQ(fixture.cache->quarantine_all(wrong, keys).size(), std::size_t{kNamespaces});
  EXPECT_EQ(keys.size(), std::size_t{2 * kNamespaces});
  EXPECT_LE(fixture.cache->listed_nodes() - before, nodes);
  EXPECT_TRUE(fixture.cache->is_quarantined(held));
  for (const NamespaceId ns : wrong) {
    EXPECT_EQ(fixture.cache->probe(ns, Tokens{1, 2}).matched_tokens, 0);
  }
  EXPECT_EQ(fixture.probe({1, 2}), 2);
}

TEST(TryLock, HoldsWithoutUsingOrSplitting) {
  PrefixFixture fixture({.page_size = 2, .pages = 4});
  fixture.add(counted(0, 6));
  fixture.add(counted(40, 2));
  const std::string before = fixture.draw();
  {
    const auto lock = fixture.cache->try_lock(fixture.ns, digest_of(0), counted(0, 4));
    ASSERT_TRUE(lock.has_value());
    EXPECT_EQ(lock->tokens(), 6) << "the whole node";
    EXPECT_EQ(fixture.evict(4).size(), 1u);
  }
  fixture.add(counted(40, 2));
  EXPECT_EQ(fixture.draw(), before);
  fixture.evict(1);
  EXPECT_EQ(fixture.probe(counted(0, 6)), 4) << "it is as cold as it was";
}

TEST(TryLock, NeedsAllOfItAndTheRightNamespace) {
  PrefixFixture fixture({.page_size = 2});
  fixture.add(counted(0, 6));
  EXPECT_FALSE(fixture.cache->try_lock(fixture.ns, digest_of(0), counted(0, 8)).has_value());
  EXPECT_FALSE(fixture.cache->try_lock(fixture.ns, digest_of(1), counted(0, 4)).has_value());
  EXPECT_TRUE(fixture.cache->try_lock(fixture.ns, digest_of(0), counted(0, 6)).has_value());
}

// Random lives beside a plain list of who holds what: nobody loses what he holds, what was put in
// quarantine is found only where somebody has published it since.
class RandomQuarantines : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr std::uint64_t kSeed = 78;

  struct Held {
    Tokens tokens;
    PrefixLock lock;
    std::vector<int> pages;
  };

  void begin() {
    const Tokens text = drawn_text(prng);
    PrefixLock lock = fixture.begin(text);
    EXPECT_FALSE(fixture.cache->is_quarantined(lock));
    std::vector<int> pages = fixture.ids(lock);
    held.push_back({text, std::move(lock), std::move(pages)});
  }

  void publish_more() {
    Held& last = held.back();
    if (last.lock.tokens() > 8) return;
    const bool was_wrong = fixture.cache->is_quarantined(last.lock);
    last.tokens = last.tokens + drawn_text(prng);
    last.lock = fixture.publish(std::move(last.lock), last.tokens);
    last.pages = fixture.ids(last.lock);
    EXPECT_EQ(fixture.cache->is_quarantined(last.lock), was_wrong);
  }

  void quarantine_one() {
    const Tokens text = drawn_text(prng);
    const std::int64_t kept = prng.below(std::ssize(text) / 2) * 2;
    const bool is_there = fixture.probe(text) > kept;
    EXPECT_EQ(quarantine(fixture, text, kept).empty(), !is_there);
    EXPECT_LE(fixture.probe(text), kept);
    for (const Held& hold : held) {
      const bool goes_on = std::ssize(hold.tokens) > kept &&
                           std::equal(text.begin(), text.begin() + kept + 2, hold.tokens.begin());
      EXPECT_TRUE(!goes_on || fixture.cache->is_quarantined(hold.lock));
    }
  }

  void purge() {
    const std::vector<NamespaceFamily> ours = {family_of(digest_of(0))};
    fixture.cache->purge(prng.below(2) == 0 ? ours : std::vector<NamespaceFamily>());
    EXPECT_EQ(fixture.probe(drawn_text(prng)), 0);
    EXPECT_EQ(fixture.cache->usage().evictable_tokens, 0);
    for (const Held& hold : held) EXPECT_TRUE(fixture.cache->is_quarantined(hold.lock));
  }

  void move() {
    if (prng.below(40) == 0) return purge();
    const std::int64_t command = prng.below(8);
    if (command < 2 && held.size() < 3) {
      begin();
    } else if (command == 2 && !held.empty()) {
      held.erase(held.begin() + prng.below(std::ssize(held)));
    } else if (command == 3 && !held.empty()) {
      publish_more();
    } else if (command == 4) {
      quarantine_one();
    } else if (command == 5) {
      fixture.cache->try_discard(fixture.ns, drawn_text(prng), 0);
    } else if (command == 6) {
      fixture.cache->want(fixture.ns, drawn_text(prng), prng.below(4));
    } else {
      if (prng.below(4) == 0) fixture.cache->forget_wants();
      fixture.evict(prng.below(4));
    }
  }

  Prng prng{kSeed};
  PrefixFixture fixture{{.page_size = 2, .pages = 60, .eviction = GetParam()}};
  std::vector<Held> held;
};

TEST_P(RandomQuarantines, KeepTheTreeWhole) {
  SCOPED_TRACE(kSeed);
  for (int i = 0; i < 6000; ++i) {
    move();
    ASSERT_EQ(fixture.cache->audit(), std::nullopt) << "operation " << i;
    for (const Held& hold : held) {
      Tokens tokens(hold.tokens.size());
      fixture.cache->copy_tokens(hold.lock, tokens);
      ASSERT_EQ(tokens, hold.tokens) << "operation " << i;
      ASSERT_EQ(fixture.ids(hold.lock), hold.pages) << "operation " << i;
    }
  }
  held.clear();
  fixture.cache->reset();
  EXPECT_EQ(fixture.allocator.free_pages(), 60);
}

INSTANTIATE_TEST_SUITE_P(Orders, RandomQuarantines,
                         ::testing::Values("lru", "slru", "hazard", "s3fifo", "tlru"));

}  // namespace
}  // namespace stemma
