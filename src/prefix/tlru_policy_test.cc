// What "tlru" drops, on small trees: first what the next turn can compute again in time.
#include "prefix/tlru_policy.h"

#include <gtest/gtest.h>

#include <vector>

#include "prefix/prefix_fixture.h"

namespace stemma {
namespace {

// Pages of 1,024 tokens: with the next turn's one, seven more may be computed.
constexpr std::int64_t kPageTokens = 1'024;
constexpr std::int64_t kSparePages =
    (TlruPolicy::kComputedTokensMax - TlruPolicy::kNextTurnTokens) / kPageTokens;
static_assert(kSparePages == 7);

struct Tlru : PrefixFixture {
  Tlru() : PrefixFixture({.page_size = kPageTokens, .pages = 64, .eviction = "tlru"}) {}

  // A whole request for a text that begins with `first`.
  void serve(TokenId first, std::int64_t pages, const RequestEnd& end = {}) {
    cache->complete(begin(counted(first, pages * kPageTokens)), end);
  }
  std::int64_t cached_pages(TokenId first) const {
    return probe(counted(first, 64 * kPageTokens)) / kPageTokens;
  }
};

constexpr TokenId kOld = 0;
constexpr TokenId kYoung = 1'000'000;

TEST(TlruPolicy, WhatTheNextTurnCanComputeInTimeGoesFirst) {
  Tlru f;
  f.serve(kOld, 12);
  f.serve(kYoung, 10);
  f.evict(2 * kSparePages);
  EXPECT_EQ(f.cached_pages(kOld), 12 - kSparePages);
  EXPECT_EQ(f.cached_pages(kYoung), 10 - kSparePages);
}

TEST(TlruPolicy, SparePagesGoByTheirLastUse) {
  Tlru f;
  f.serve(kOld, 12);
  f.serve(kYoung, 10);
  f.evict(kSparePages);
  EXPECT_EQ(f.cached_pages(kOld), 12 - kSparePages);
  EXPECT_EQ(f.cached_pages(kYoung), 10);
}

TEST(TlruPolicy, ThenTheOthersGoByTheirLastUse) {
  Tlru f;
  f.serve(kOld, 12);
  f.serve(kYoung, 10);
  f.evict(2 * kSparePages + 5);
  EXPECT_EQ(f.cached_pages(kOld), 0);
  EXPECT_EQ(f.cached_pages(kYoung), 10 - kSparePages);
}

TEST(TlruPolicy, AShortConversationIsSpareAsAWhole) {
  Tlru f;
  f.serve(kOld, 12);
  f.serve(kYoung, kSparePages);
  f.evict(2 * kSparePages);
  EXPECT_EQ(f.cached_pages(kYoung), 0);
}

TEST(TlruPolicy, AnAnswerThatTheNextTurnComputesCounts) {
  Tlru f;
  f.serve(kOld, 12, {.prompt_tokens = 12 * kPageTokens, .output_tokens = 12 * kPageTokens});
  f.serve(kYoung, 10);
  f.evict(3 + kSparePages);
  EXPECT_EQ(f.cached_pages(kOld), 12 - 3);
  EXPECT_EQ(f.cached_pages(kYoung), 10 - kSparePages);
}

// As a beginning that others share, the same pages would all have to be computed.
TEST(TlruPolicy, ALongerConversationMakesItsBeginningWorthKeeping) {
  Tlru f;
  f.serve(kOld, kSparePages);
  f.serve(kOld, 3 * kSparePages);
  f.serve(kYoung, kSparePages);
  f.evict(2 * kSparePages);
  EXPECT_EQ(f.cached_pages(kOld), 2 * kSparePages);
  EXPECT_EQ(f.cached_pages(kYoung), 0);
}

// Three pages in the cache stand for a text of 12, of which the last 7 can be computed in time.
TEST(TlruPolicy, OfASampleOfThePagesTheirPlacesCount) {
  Tlru f;
  const std::vector<std::int64_t> places = {0, 4, 5};
  f.cache->complete(f.begin(counted(kOld, 3 * kPageTokens)),
                    PathPlaces{.text_pages = 12, .sampled = places}, {});
  f.serve(kYoung, 3);
  f.evict(4);
  EXPECT_EQ(f.cached_pages(kOld), 2);
  EXPECT_EQ(f.cached_pages(kYoung), 0);
}

TEST(TlruPolicy, PagesOfARequestThatNeverEndedAreNotSpare) {
  Tlru f;
  f.begin(counted(kOld, 2 * kPageTokens)).reset();
  f.serve(kYoung, 2);
  f.evict(2);
  EXPECT_EQ(f.cached_pages(kOld), 2);
  f.evict(2);
  EXPECT_EQ(f.cached_pages(kOld), 0);
}

}  // namespace
}  // namespace stemma
