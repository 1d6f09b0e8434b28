// What "hazard" learns of requests, on small trees: classes, ghosts, what goes first, hints.
#include "prefix/hazard_policy.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/prng.h"
#include "prefix/prefix_fixture.h"

namespace stemma {
namespace {

constexpr std::int64_t kSecond = 1'000'000;

// A cache under "hazard", on a clock that stands still.
class Hazard : public testing::Test {
 protected:
  explicit Hazard(std::int64_t pages = 64)
      : cache({.pages = pages, .eviction = "hazard", .clock = &clock}) {}

  // A whole request: a text and how it ends.
  void serve(const Tokens& text, const RequestEnd& end = {}) {
    const PrefixLock lock = cache.begin(text);
    cache.cache->complete(lock, end);
  }
  void wait(std::int64_t seconds) { clock.advance_us(seconds * kSecond); }

  FakeClock clock;
  PrefixFixture cache;
};

TEST_F(Hazard, BeforeAnythingIsLearnedWhatWasUsedLongestAgoGoes) {
  serve({1, 2});
  wait(10);
  serve({5, 6});
  wait(10);
  EXPECT_EQ(cache.evict(2), (std::vector{1, 0}));
  EXPECT_EQ(cache.evict(2), (std::vector{3, 2}));
}

TEST_F(Hazard, PagesOfARequestThatNeverEndedGoTooAndAreNotMissed) {
  { const PrefixLock lock = cache.begin({1, 2, 3}); }
  serve({7, 8});
  EXPECT_EQ(cache.evict(10).size(), 5u);
}

TEST_F(Hazard, LockedPagesStay) {
  const PrefixLock lock = cache.begin({1, 2, 3});
  serve({1, 2, 9});
  EXPECT_EQ(cache.evict(10), (std::vector{3}));
}

// Conversations come back after 20 s, single questions never do: learned from what each request
// is, not from what its text says.
class HazardOfTwoKinds : public Hazard {
 protected:
  static constexpr std::int64_t kShort = 4;
  static constexpr std::int64_t kLong = 200;  // tokens of output, which tells the two apart

  HazardOfTwoKinds() : Hazard(400) { learn(); }

  Tokens fresh(std::int64_t pages) {
    next_ += static_cast<TokenId>(pages);
    return counted(next_, pages);
  }
  void learn() {
    for (int i = 0; i < 300; ++i) {
      const Tokens chat = fresh(4);
      serve(chat, {.output_tokens = kLong});
      wait(10);
      serve(fresh(4), {.output_tokens = kShort});
      wait(10);
      serve(chat + fresh(3), {.output_tokens = kLong});
    }
  }

 private:
  TokenId next_ = 1'000;
};

TEST_F(HazardOfTwoKinds, WhatComesBackIsKeptThoughItIsOlder) {
  const Tokens chat = fresh(5);
  serve(chat, {.output_tokens = kLong});
  wait(1);
  const Tokens question = fresh(5);
  serve(question, {.output_tokens = kShort});
  wait(9);
  while (cache.probe(question) > 0) cache.cache->evict(1).reset();
  EXPECT_GE(cache.probe(chat), 4);
}

TEST_F(HazardOfTwoKinds, WhatWasExpectedAndDidNotComeGoesFirst) {
  const Tokens late = fresh(5);
  serve(late, {.output_tokens = kLong});
  wait(100);
  const Tokens chat = fresh(5);
  serve(chat, {.output_tokens = kLong});
  wait(5);
  while (cache.probe(late) > 0) cache.cache->evict(1).reset();
  EXPECT_GE(cache.probe(chat), 4);
}

TEST_F(HazardOfTwoKinds, TheLastPageOfARequestGoesBeforeTheOthers) {
  const Tokens chat = fresh(5);
  const Tokens other = fresh(5);
  serve(chat, {.output_tokens = kLong});
  serve(other, {.output_tokens = kLong});
  wait(5);
  while (cache.probe(chat) > 4 || cache.probe(other) > 4) cache.cache->evict(1).reset();
  EXPECT_EQ(cache.probe(chat), 4);
  EXPECT_EQ(cache.probe(other), 4);
}

// Used alike but for their hints, and the one that is to go first even later.
TEST_F(HazardOfTwoKinds, HintsBias) {
  const std::vector<std::pair<RequestEnd, RequestEnd>> pairs = {
      {{.retention = Retention::kShort}, {}},
      {{}, {.retention = Retention::kLong}},
      {{.session_closed = true}, {}},
      {{}, {.priority = 1}},
      {{.priority = -1}, {}},
  };
  for (auto [less, more] : pairs) {
    less.output_tokens = kLong;
    more.output_tokens = kLong;
    const Tokens kept = fresh(5);
    const Tokens dropped = fresh(5);
    serve(kept, more);
    wait(1);
    serve(dropped, less);
    while (cache.probe(dropped) > 1) cache.cache->evict(1).reset();
    EXPECT_GE(cache.probe(kept), 4);
    cache.cache->reset();
  }
}

TEST_F(HazardOfTwoKinds, HintsNeverLock) {
  const Tokens pinned = fresh(5);
  serve(pinned, {.output_tokens = kLong, .priority = 1'000, .retention = Retention::kLong});
  cache.evict(cache.cache->usage().evictable_tokens);
  EXPECT_EQ(cache.probe(pinned), 0);
}

TEST_F(HazardOfTwoKinds, AHintIsOutweighedByWhatWasLearned) {
  const Tokens late = fresh(5);
  serve(late, {.output_tokens = kLong, .priority = 1});
  wait(3'000);
  const Tokens chat = fresh(5);
  serve(chat, {.output_tokens = kLong});
  wait(10);
  while (cache.probe(late) > 1) cache.cache->evict(1).reset();
  EXPECT_GE(cache.probe(chat), 4);
}

// Two pages of a text of 40, as a ghost's sample has them.
struct HazardOfASample : testing::Test {
  void complete(std::vector<PageId> path, std::int64_t text_pages,
                const std::vector<std::int64_t>& places) {
    policy.completed(path, {.text_pages = text_pages, .sampled = places}, {});
  }
  void publish(const std::vector<PageId>& pages, PageId above) {
    Tokens tokens;
    for (const PageId page : pages) tokens.push_back(page.value());
    policy.published({.above = above, .tokens = tokens, .pages = pages});
  }
  HazardOfASample() {
    publish({PageId(0), PageId(1)}, PageId());
    complete({PageId(0), PageId(1)}, 40, {3, 21});
    publish({PageId(2)}, PageId(1));
  }

  FakeClock clock;
  HazardPolicy policy{{.pages = 8, .nodes_max = 9, .clock = &clock}};
};

TEST_F(HazardOfASample, TheLastPageOfItIsNotThatOfTheRequest) {
  EXPECT_NE(policy.record(PageId(1)).page_class, PageClass::kLast);
  EXPECT_EQ(policy.record(PageId(1)).before_end, 18);
  complete({PageId(0), PageId(1), PageId(2)}, 60, {3, 21, 59});
  EXPECT_EQ(policy.record(PageId(2)).page_class, PageClass::kLast);
}

TEST_F(HazardOfASample, ARequestContinuesTheOneThatItMayHaveReachedTheEndOf) {
  complete({PageId(0), PageId(1), PageId(2)}, 60, {3, 21, 45});
  EXPECT_EQ(policy.record(PageId(0)).turn, 1);
  EXPECT_EQ(policy.record(PageId(0)).other_texts, 0);
}

TEST_F(HazardOfASample, ANewPageBeforeThatEndTellsAnotherText) {
  complete({PageId(0), PageId(1), PageId(2)}, 60, {3, 21, 30});
  EXPECT_EQ(policy.record(PageId(0)).turn, 0);
  EXPECT_EQ(policy.record(PageId(0)).other_texts, 1);
}

TEST_F(HazardOfASample, ARequestWithoutAPageOfItCountsAsOne) {
  const std::uint32_t before = policy.record(PageId(1)).request;
  complete({}, 5, {});
  complete({PageId(0), PageId(1)}, 40, {3, 21});
  EXPECT_EQ(policy.record(PageId(1)).request, before + 2);
}

// Requests of random texts that begin, go on, end or are given up in any order.
TEST(HazardRandom, TheTreeAndThePolicyAgreeOnWhatMayGo) {
  FakeClock clock;
  PrefixFixture f({.page_size = 2, .pages = 80, .eviction = "hazard", .clock = &clock});
  Prng random(5);
  struct Open {
    PrefixLock lock;
    Tokens text;
  };
  std::vector<Open> open;
  for (int i = 0; i < 20'000; ++i) {
    clock.advance_us(random.below(2 * kSecond));
    if (open.size() < 4 && random.below(2) == 0) {
      Tokens text;
      for (std::int64_t n = 2 * (1 + random.below(8)); n > 0; --n) {
        text.push_back(static_cast<TokenId>(random.below(2)));
      }
      open.push_back({f.cache->match(f.ns, text), text});
    } else if (!open.empty()) {
      Open& one = open[static_cast<std::size_t>(random.below(std::ssize(open)))];
      one.lock = f.publish(std::move(one.lock), one.text);
      if (random.below(3) > 0) {
        f.cache->complete(one.lock, {.prompt_tokens = std::ssize(one.text) - 1,
                                     .output_tokens = random.below(100)});
      }
      std::swap(one, open.back());
      open.pop_back();
    }
    if (random.below(5) == 0) f.cache->evict(random.below(12)).reset();
    ASSERT_EQ(f.cache->audit(), std::nullopt) << "operation " << i;
  }
}

}  // namespace
}  // namespace stemma
