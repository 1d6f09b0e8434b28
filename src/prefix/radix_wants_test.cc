// What waiting requests will look up goes after all others, and never holds anything.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/prng.h"
#include "prefix/prefix_fixture.h"

namespace stemma {
namespace {

class RadixWants : public testing::TestWithParam<std::string> {
 protected:
  PrefixFixture f{{.eviction = "lru"}};
  void want(const Tokens& tokens, std::int64_t turn = 0) { f.cache->want(f.ns, tokens, turn); }
};

TEST_F(RadixWants, WhatIsWantedGoesAfterWhatIsNot) {
  f.add({1, 2});
  f.add({3, 4});
  want({1, 2});
  EXPECT_EQ(f.evict(2), (std::vector{2, 3}));
  EXPECT_EQ(f.draw(), R"(
namespace 0
  [1|2] @0-1
)");
}

TEST_F(RadixWants, AWantHoldsNothing) {
  f.add({1, 2});
  want({1, 2});
  EXPECT_EQ(f.cache->usage().evictable_tokens, 2);
  EXPECT_EQ(f.evict(5), (std::vector{0, 1}));
}

TEST_F(RadixWants, OfSeveralTheLastTurnGoesFirst) {
  f.add({1});
  f.add({2});
  f.add({3});
  want({2}, 0);
  want({1}, 2);
  want({3}, 1);
  EXPECT_EQ(f.evict(1), (std::vector{0}));
  EXPECT_EQ(f.evict(1), (std::vector{2}));
  EXPECT_EQ(f.evict(1), (std::vector{1}));
}

TEST_F(RadixWants, EveryNumberIsATurn) {
  f.add({1});
  f.add({2});
  f.add({3});
  want({1}, std::numeric_limits<std::int64_t>::min());
  want({2}, std::numeric_limits<std::int64_t>::max());
  want({3}, 0);
  EXPECT_EQ(f.evict(1), (std::vector{1}));
  EXPECT_EQ(f.evict(1), (std::vector{2}));
  EXPECT_EQ(f.evict(1), (std::vector{0}));
}

TEST_F(RadixWants, WhatTwoWantHasTheTurnOfTheFirst) {
  f.add({1});
  f.add({2});
  want({1}, 5);
  want({2}, 4);
  want({1}, 3);
  EXPECT_EQ(f.evict(1), (std::vector{1}));
}

TEST_F(RadixWants, OfALeafThatIsWantedInPartTheRestGoesFirst) {
  f.add({1, 2, 3, 4});
  f.add({8});
  want({1, 2, 9});
  EXPECT_EQ(f.evict(2), (std::vector{2, 3}));
  EXPECT_EQ(f.evict(1), (std::vector{4}));
  EXPECT_EQ(f.evict(2), (std::vector{0, 1}));
}

TEST_F(RadixWants, WhatLiesBelowAWantedPrefixIsNotWanted) {
  f.add({1, 2, 3});
  f.add({1, 2, 4});
  want({1, 2});
  f.add({8});
  EXPECT_EQ(f.evict(3), (std::vector{2, 3, 4}));
  EXPECT_EQ(f.draw(), R"(
namespace 0
  [1|2] @0-1
)");
}

// Before: [1|2|3|4], wanted to its end. A request that shares two tokens cuts it.
TEST_F(RadixWants, ASplitKeepsThem) {
  f.add({1, 2, 3, 4});
  want({1, 2, 3, 4});
  f.add({1, 2, 9});
  EXPECT_EQ(f.evict(1), (std::vector{4}));
  f.add({7});
  EXPECT_EQ(f.evict(1), (std::vector{4}));
  EXPECT_EQ(f.draw(), R"(
namespace 0
  [1|2] @0-1
    [3|4] @2-3
)");
}

TEST_F(RadixWants, AfterAWantedLeafItsUnwantedParentIsNext) {
  f.add({1, 2});
  f.add({1, 3});
  f.add({4});
  want({4}, 0);
  want({1, 3}, 1);
  EXPECT_EQ(f.evict(1), (std::vector{1}));
  EXPECT_EQ(f.evict(1), (std::vector{2}));
  EXPECT_EQ(f.evict(1), (std::vector{0}));
  EXPECT_EQ(f.evict(1), (std::vector{3}));
}

TEST_F(RadixWants, ForgottenWantsLeaveTheOrderAsItWas) {
  f.add({1});
  f.add({2});
  want({1});
  f.cache->forget_wants();
  EXPECT_EQ(f.evict(2), (std::vector{0, 1}));
}

TEST_F(RadixWants, ANodeInAForgottenPlaceIsNotWanted) {
  f.add({1});
  want({1});
  EXPECT_EQ(f.evict(1), (std::vector{0}));
  f.add({2});
  f.add({3});
  EXPECT_EQ(f.evict(1), (std::vector{0}));
}

TEST_F(RadixWants, UsingWhatIsWantedChangesNothingAboutIt) {
  f.add({1, 2});
  want({1, 2});
  {
    PrefixLock lock = f.begin({1, 2});
    EXPECT_TRUE(f.evict(1).empty());
  }
  f.add({3});
  EXPECT_EQ(f.evict(1), (std::vector{2}));
}

// Before: [1|2|3|4], of which two pages are wanted, and [8], whichever was used first.
TEST_P(RadixWants, HoweverManyGoAtOnceWhatIsNotWantedGoesFirst) {
  for (const bool wanted_is_older : {false, true}) {
    const MonotonicClock clock;
    PrefixFixture cache({.eviction = GetParam(), .clock = &clock});
    const auto serve = [&](const Tokens& text) { cache.cache->complete(cache.begin(text), {}); };
    if (wanted_is_older) serve({1, 2, 3, 4});
    serve({8});
    if (!wanted_is_older) serve({1, 2, 3, 4});
    cache.cache->want(cache.ns, Tokens{1, 2, 9}, 0);
    EXPECT_EQ(cache.evict(3).size(), 3u);
    EXPECT_EQ(cache.probe({1, 2, 3, 4}), 2) << wanted_is_older;
    EXPECT_EQ(cache.probe({8}), 0) << wanted_is_older;
  }
}

// What was cached of a text when it was wanted.
struct Want {
  Tokens text;
  std::int64_t tokens = 0;
};

// Random texts over three tokens, wants and locks: while there is something that nobody waits for,
// nothing goes that was wanted.
TEST_P(RadixWants, HoldUnderRandomUse) {
  constexpr std::uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  const MonotonicClock clock;
  PrefixFixture cache({.page_size = 2, .pages = 48, .eviction = GetParam(), .clock = &clock});
  Prng prng(kSeed);
  const auto random_text = [&] {
    Tokens tokens(static_cast<std::size_t>(2 + 2 * prng.below(9)));
    for (TokenId& token : tokens) token = static_cast<TokenId>(prng.below(3));
    return tokens;
  };
  std::vector<PrefixLock> locks;
  std::vector<Want> wants;
  const auto note_what_is_left = [&] {
    for (Want& want : wants) want.tokens = std::min(want.tokens, cache.probe(want.text));
  };
  const auto wanted_tokens = [&] {
    std::int64_t tokens = 0;
    for (const Want& want : wants) tokens += want.tokens;
    return tokens;
  };
  int evictions = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto choice = prng.below(8);
    if (choice < 3 && cache.cache->usage().locked_tokens < 40) {
      locks.push_back(cache.begin(random_text()));
      note_what_is_left();
    } else if (choice < 5) {
      locks.clear();
    } else if (choice == 5) {
      const Tokens text = random_text();
      cache.cache->want(cache.ns, text, i);
      wants.push_back({text, cache.probe(text)});
    } else if (choice == 6 && prng.below(8) == 0) {
      cache.cache->forget_wants();
      wants.clear();
    } else if (cache.cache->usage().evictable_tokens >= wanted_tokens() + 2) {
      ++evictions;
      const std::int64_t wanted = wanted_tokens();
      EXPECT_EQ(cache.evict(1).size(), 1u);
      note_what_is_left();
      EXPECT_EQ(wanted_tokens(), wanted);
    }
    ASSERT_EQ(cache.cache->audit(), std::nullopt);
  }
  EXPECT_GT(evictions, 100);
}

INSTANTIATE_TEST_SUITE_P(Every, RadixWants,
                         testing::Values("lru", "lfu", "tlru", "s3fifo", "hazard"),
                         [](const auto& param_info) { return param_info.param; });

}  // namespace
}  // namespace stemma
