// What is owed of a tree's pages: it is taken oldest first, with what is owed before it, and holds
// nothing; what goes is written off.
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

#include "base/prng.h"
#include "prefix/prefix_fixture.h"

namespace stemma {
namespace {

Tokens text_of(PrefixFixture& fixture, const PrefixLock& lock) {
  Tokens tokens(static_cast<std::size_t>(lock.tokens()));
  fixture.cache->copy_tokens(lock, tokens);
  return tokens;
}

// Owes the pages of a text from there on.
void owe(PrefixFixture& fixture, const Tokens& tokens, std::int64_t first_page,
         std::int64_t creditor = 0) {
  const PrefixLock held = fixture.cache->match(fixture.ns, tokens);
  fixture.cache->owe(held, {first_page, held.tokens() / fixture.page_size}, creditor);
}

TEST(RadixDebts, TheOldestComesFirstWithItsText) {
  PrefixFixture f({.page_size = 2, .creditors = 1});
  f.add(counted(0, 6));
  f.add(counted(50, 4));
  owe(f, counted(50, 4), 0);
  owe(f, counted(0, 6), 1);
  const auto first = f.cache->try_take_owed(0);
  EXPECT_EQ(text_of(f, first->lock), counted(50, 4));
  EXPECT_EQ(first->pages, (PageStretch{0, 2}));
  const auto second = f.cache->try_take_owed(0);
  EXPECT_EQ(text_of(f, second->lock), counted(0, 6));
  EXPECT_EQ(second->pages, (PageStretch{1, 3}));
  EXPECT_FALSE(f.cache->try_take_owed(0).has_value());
}

//   0 1 | 2 3 4 5 | 6 7        three nodes, owed from 1 on
//         9                    after 0 1
//                   9          after 0 1 2 3 4 5
TEST(RadixDebts, WhatIsOwedBeforeComesAlong) {
  PrefixFixture f({.creditors = 2});
  f.add(counted(0, 8));
  owe(f, counted(0, 8), 1, 1);
  f.add(counted(0, 2) + Tokens{9});
  f.add(counted(0, 6) + Tokens{9});
  EXPECT_EQ(f.cache->debts().owed_pages(1), 7);
  const auto all = f.cache->try_take_owed(1);
  EXPECT_EQ(text_of(f, all->lock), counted(0, 8));
  EXPECT_EQ(all->pages, (PageStretch{1, 8}));
  EXPECT_FALSE(f.cache->debts().any());
}

//   0 1 | 2 3 4 5 | 6 7        owed are 1 to 4 and 6
TEST(RadixDebts, AStretchEndsWhereAPageIsNotOwed) {
  PrefixFixture f({.creditors = 2});
  f.add(counted(0, 8));
  f.add(counted(0, 2) + Tokens{9});
  f.add(counted(0, 6) + Tokens{9});
  const PrefixLock held = f.cache->match(f.ns, counted(0, 8));
  f.cache->owe(held, {1, 5}, 1);
  f.cache->owe(held, {6, 7}, 1);
  EXPECT_EQ(f.cache->owed_end(held, 0, 1), 0);
  EXPECT_EQ(f.cache->owed_end(held, 1, 1), 5);
  EXPECT_EQ(f.cache->owed_end(held, 4, 1), 5);
  EXPECT_EQ(f.cache->owed_end(held, 5, 1), 5);
  EXPECT_EQ(f.cache->owed_end(held, 6, 1), 7);
  EXPECT_EQ(f.cache->owed_end(held, 8, 1), 8) << "behind its last page";
  EXPECT_EQ(f.cache->owed_end(held, 1, 0), 1) << "another one";
  f.cache->owe(held, {5, 6}, 1);
  f.cache->owe(held, {7, 8}, 1);
  EXPECT_EQ(f.cache->owed_end(held, 1, 1), 8);
}

TEST(RadixDebts, WhatGrowsAtItsEndIsOneStretch) {
  PrefixFixture f({.creditors = 1});
  PrefixLock held = f.begin(counted(0, 2));
  f.cache->owe(held, {0, 2}, 0);
  held = f.publish(std::move(held), counted(0, 5));
  f.cache->owe(held, {2, 5}, 0);
  EXPECT_EQ(f.cache->try_take_owed(0)->pages, (PageStretch{0, 5}));
}

TEST(RadixDebts, HoldNothingAndAreNoUse) {
  PrefixFixture f({.creditors = 1});
  f.add(counted(0, 3));
  f.add(counted(10, 3));
  PrefixLock held = *f.cache->try_lock(f.ns, digest_of(0), counted(0, 3));
  f.cache->owe(held, {0, 3}, 0);
  held.reset();
  EXPECT_EQ(f.evict(2).size(), 2u);
  EXPECT_EQ(f.probe(counted(0, 3)), 1) << "what was coldest went first";
  EXPECT_EQ(f.cache->debts().written_off_pages(), 2);
  EXPECT_EQ(f.cache->try_take_owed(0)->pages, (PageStretch{0, 1}));
}

TEST(RadixDebts, WhatGoesIsWrittenOff) {
  PrefixFixture f({.creditors = 1});
  f.add(counted(0, 4));
  owe(f, counted(0, 4), 2);
  ASSERT_TRUE(f.cache->try_discard(f.ns, counted(0, 4), 3));
  EXPECT_EQ(f.cache->debts().written_off_pages(), 1);
  EXPECT_EQ(f.cache->debts().owed_pages(), 1);
  f.cache->reset();
  EXPECT_EQ(f.cache->debts().written_off_pages(), 2);
  EXPECT_FALSE(f.cache->debts().any());
}

TEST(RadixDebts, NothingInQuarantineIsOwed) {
  PrefixFixture f({.creditors = 1});
  const PrefixLock held = f.begin(counted(0, 4));
  f.cache->owe(held, {0, 4}, 0);
  std::vector<PageKey> keys;
  f.cache->quarantine(f.ns, counted(0, 4), 1, keys);
  EXPECT_EQ(f.cache->debts().owed_pages(), 1);
  f.cache->owe(held, {1, 4}, 0);
  EXPECT_EQ(f.cache->debts().owed_pages(), 1) << "nor will be";
  EXPECT_EQ(f.cache->debts().written_off_pages(), 6);
}

// A page by its text, so that what is owed can be followed without the tree.
using Owed = std::set<Tokens>;

class RandomDebts {
 public:
  explicit RandomDebts(std::uint64_t seed)
      : f({.page_size = 2, .pages = 24, .creditors = 2}), prng_(seed) {}

  void step() {
    const std::int64_t drawn = prng_.below(100);
    if (drawn < 40) {
      f.add(drawn_text(prng_));
    } else if (drawn < 65) {
      owe_some(prng_.below(2));
    } else if (drawn < 80) {
      f.cache->evict(prng_.below(6)).reset();
    } else if (drawn < 85) {
      static_cast<void>(f.cache->try_discard(f.ns, drawn_text(prng_), 0));
    } else if (drawn < 90) {
      std::vector<PageKey> keys;
      f.cache->quarantine(f.ns, drawn_text(prng_), 0, keys);
    } else {
      take(prng_.below(2));
    }
    for (Owed& owed : owed_) {
      std::erase_if(owed, [this](const Tokens& page) { return f.probe(page) < std::ssize(page); });
    }
    for (std::int64_t creditor = 0; creditor < 2; ++creditor) {
      EXPECT_GE(f.cache->debts().owed_pages(creditor), std::ssize(of(creditor)));
    }
    EXPECT_EQ(f.cache->audit(), std::nullopt);
  }

  // Everything that was ever owed, and is still there, comes.
  void take_all() {
    for (std::int64_t creditor = 0; creditor < 2; ++creditor) {
      while (f.cache->debts().owed_pages(creditor) > 0) take(creditor);
      EXPECT_TRUE(of(creditor).empty());
    }
  }

  PrefixFixture f;

 private:
  Owed& of(std::int64_t creditor) { return owed_[static_cast<std::size_t>(creditor)]; }

  void owe_some(std::int64_t creditor) {
    const PrefixLock held = f.cache->match(f.ns, drawn_text(prng_));
    const std::int64_t pages = held.tokens() / f.page_size;
    if (pages == 0) return;
    const std::int64_t first = prng_.below(pages);
    const PageStretch owed = {first, first + 1 + prng_.below(pages - first)};
    f.cache->owe(held, owed, creditor);
    const Tokens tokens = text_of(f, held);
    for (std::int64_t page = owed.first; page < owed.end; ++page) {
      of(creditor).insert(Tokens(tokens.begin(), tokens.begin() + 2 * (page + 1)));
    }
  }

  void take(std::int64_t creditor) {
    const std::int64_t before = f.cache->debts().owed_pages(creditor);
    const auto taken = f.cache->try_take_owed(creditor);
    ASSERT_EQ(taken.has_value(), before > 0);
    if (!taken.has_value()) return;
    EXPECT_EQ(f.cache->debts().owed_pages(creditor), before - taken->pages.pages());
    const Tokens tokens = text_of(f, taken->lock);
    ASSERT_LE(2 * taken->pages.end, std::ssize(tokens));
    for (std::int64_t page = taken->pages.first; page < taken->pages.end; ++page) {
      of(creditor).erase(Tokens(tokens.begin(), tokens.begin() + 2 * (page + 1)));
    }
  }

  Prng prng_;
  std::array<Owed, 2> owed_;
};

TEST(RandomDebts, WhatIsOwedAndStillThereComes) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    RandomDebts debts(seed);
    for (int i = 0; i < 200 && !::testing::Test::HasFailure(); ++i) debts.step();
    debts.take_all();
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
}

}  // namespace
}  // namespace stemma
