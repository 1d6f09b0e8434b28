// Covers who has a place where many texts are asked for, of a store that has not answered yet.
#include <gtest/gtest.h>

#include <vector>

#include "cache/audit_hold.h"
#include "cache/held_copies_fixture.h"
#include "prefix/namespace_examples.h"

namespace stemma {
namespace {

class PromotionPlaces : public HeldCopies {
 protected:
  static constexpr std::int64_t kPlaces = 16;  // by default

  // As HeldCopies computes it, and a token that is never looked for.
  static std::vector<TokenId> text(TokenId first) {
    std::vector<TokenId> tokens;
    for (TokenId i = 0; i < 4; ++i) tokens.push_back(1000 * first + i);
    tokens.push_back(0);
    return tokens;
  }

  std::int64_t prefetch(TokenId first, TokenId end) {
    std::int64_t begun = 0;
    for (; first < end; ++first) begun += kv->try_prefetch(ns, text(first)) ? 1 : 0;
    return begun;
  }
  std::int64_t promote(TokenId first, TokenId end) {
    std::int64_t begun = 0;
    for (; first < end; ++first) begun += kv->try_promote(ns, text(first)).has_value() ? 1 : 0;
    return begun;
  }
};

TEST_F(PromotionPlaces, HalfAreLeftToTextsWhoseTurnHasCome) {
  open(64);
  EXPECT_EQ(prefetch(100, 100 + kPlaces), kPlaces / 2);
  EXPECT_EQ(promote(200, 201), 1);
}

TEST_F(PromotionPlaces, AQuarterAreLeftToTextsOfHostMemory) {
  open(64);
  publish(1, 4);
  kv->evict(4);
  ASSERT_EQ(kv->probe(ns, text(1)), 0);
  EXPECT_EQ(promote(100, 100 + kPlaces), kPlaces * 3 / 4);
  EXPECT_FALSE(kv->can_promote(ns, text(200))) << "nothing is known of it";
  EXPECT_TRUE(kv->can_promote(ns, text(1)));
  EXPECT_TRUE(kv->try_promote(ns, text(1)).has_value());
}

// A row has no room for more, and nobody could hold it.
TEST_F(PromotionPlaces, OfATextThatNoRequestMayHaveWhatOneCanHoldIsBrought) {
  for (const std::int64_t windowed_pages : {0, 8}) {
    open(64, 1, {.windowed_pages = windowed_pages});
    std::vector<TokenId> tokens(200, 7);
    ASSERT_TRUE(kv->try_promote(ns, tokens).has_value());
    ASSERT_TRUE(kv->try_prefetch(ns, tokens));
    ASSERT_FALSE(tiers->lanes().posted.empty());
    for (const Transfer* job : tiers->lanes().posted) {
      EXPECT_LT(std::ssize(job->tokens), kv->options().context_tokens_max);
      EXPECT_LT(std::ssize(job->keys), kv->options().context_tokens_max);
    }
  }
}

//   what all share   own         the beginning is on the device, the rest in host memory
TEST_F(PromotionPlaces, ABeginningThatIsOnTheDeviceNeedsNone) {
  open(64);
  const SharedPrefix prefix = {digest_of(50), 2};
  const NamespaceId shared = *kv->try_open_namespace(prefix.digest);
  const NamespaceId own = *kv->try_open_namespace(digest_of(51), &prefix);
  ns = own;
  publish(1, 4);
  kv->evict(4);
  ns = shared;
  publish(1, 2);
  ASSERT_EQ(kv->probe(own, text(1)), 2);
  ns = *kv->try_open_namespace({});
  EXPECT_EQ(promote(100, 100 + kPlaces), kPlaces * 3 / 4);
  EXPECT_TRUE(kv->can_promote(own, text(1)));
  EXPECT_TRUE(kv->try_promote(own, text(1)).has_value());
}

//   what all share   own         all windows of the beginning went to others; the rest is nowhere
TEST_F(PromotionPlaces, OfABeginningThatIsOnTheDeviceItsWindowsAreBrought) {
  open(256, 0, {.windowed_pages = 128});
  const SharedPrefix prefix = {digest_of(50), 2};
  const NamespaceId shared = *kv->try_open_namespace(prefix.digest);
  const NamespaceId own = *kv->try_open_namespace(digest_of(51), &prefix);
  ns = shared;
  publish(1, 2);
  ns = *kv->try_open_namespace({});
  for (TokenId other = 100; other < 165; ++other) publish(other, 1);
  ASSERT_EQ(kv->probe(own, text(1)), 0);
  const auto promotion = kv->try_promote(own, text(1));
  ASSERT_TRUE(promotion.has_value());
  end_jobs([](const Transfer&) { return true; });
  EXPECT_EQ(kv->probe(own, text(1)), 2);
  kv->release_promotion(*promotion, PromotionUse::kWaiting);
}

// The store keeps what it has of a namespace that it was to forget.
TEST_F(PromotionPlaces, AStoreThatIsBarredFromANamespaceIsNotAskedForIt) {
  open(64);
  const NamespaceDigest digest = digest_of(50);
  const NamespaceId barred = *kv->try_open_namespace(digest);
  EXPECT_TRUE(kv->asks_stores(barred));
  const NamespaceFamily family = family_of(digest);
  ASSERT_TRUE(kv->purge({&family, 1}).ok());
  EXPECT_FALSE(kv->asks_stores(barred));
  EXPECT_TRUE(kv->asks_stores(ns));
}

TEST_F(PromotionPlaces, WhoWantsATextThatIsUnderWayNeedsNone) {
  open(64);
  EXPECT_EQ(promote(100, 100 + kPlaces), kPlaces * 3 / 4);
  EXPECT_FALSE(kv->can_promote(ns, text(100)));
  EXPECT_TRUE(kv->try_promote(ns, text(100)).has_value());
}

// Nobody waits for it: it is on its way all the same.
TEST_F(PromotionPlaces, WhatIsBroughtAheadIsBroughtOnceForAllWhoBeginWithIt) {
  open(64);
  std::vector<TokenId> longer = text(100);
  longer.insert(longer.end(), {7, 8});
  EXPECT_TRUE(kv->try_prefetch(ns, text(100)));
  EXPECT_TRUE(kv->try_prefetch(ns, text(100)));
  EXPECT_TRUE(kv->try_prefetch(ns, longer));
  EXPECT_EQ(tiers->lanes().posted.size(), 1);
  EXPECT_EQ(prefetch(200, 200 + kPlaces), kPlaces / 2 - 1);
}

// The name that the namespace had on the device may be another's by then.
TEST_F(PromotionPlaces, WhatIsBroughtAheadIsKnownByWhoseItIs) {
  namespaces_max = 3;
  open(64);
  kv->close_namespace(*kv->try_open_namespace(digest_of(52)));  // gives its name in host memory
  const NamespaceId first = *kv->try_open_namespace(digest_of(50));
  EXPECT_TRUE(kv->try_prefetch(first, text(100)));
  kv->close_namespace(first);
  const NamespaceId other = *kv->try_open_namespace(digest_of(51));
  ASSERT_EQ(other, first);
  EXPECT_TRUE(kv->try_prefetch(other, text(100)));
  EXPECT_EQ(tiers->lanes().posted.size(), 2) << "of another";
}

//   what all share   own         both in host memory: the second is begun and left
TEST_F(PromotionPlaces, WhatWasLeftIsWaitedForByWhoComesBackToIt) {
  open(64, 0);
  const SharedPrefix prefix = {digest_of(50), 2};
  const NamespaceId own = *kv->try_open_namespace(digest_of(51), &prefix);
  ns = own;
  publish(1, 4);
  kv->evict(4);
  const auto shared = kv->try_promote(own, text(1));
  ASSERT_TRUE(shared.has_value());
  ASSERT_EQ(tiers->lanes().posted.size(), 2);
  Transfer* const of_own = tiers->lanes().posted.back();
  end_jobs([&](const Transfer& job) { return &job != of_own; });
  ASSERT_EQ(kv->probe(own, text(1)), 2);
  kv->release_promotion(*shared, PromotionUse::kWaiting);
  const auto again = kv->try_promote(own, text(1));
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(tiers->lanes().posted.size(), 1) << "it is under way";
  EXPECT_TRUE(kv->worth_waiting(*again));
  end_jobs([](const Transfer&) { return true; });
  EXPECT_EQ(kv->probe(own, text(1)), 4);
  kv->release_promotion(*again, PromotionUse::kWaiting);
}

// Which brings nothing up: what ended behind it need not wait for the step either.
TEST_F(PromotionPlaces, ARemovalThatEndsBesideAStepIsNoArrival) {
  open(64);
  publish(1, 4);
  publish(2, 4);
  end_stores();
  kv->evict(8);
  kv->quarantine({.ns = ns, .digest = {}, .tokens = {1000, 1001}, .shared = {}}, 2);
  const auto promotion = kv->try_promote(ns, text(2));
  ASSERT_TRUE(promotion.has_value());
  poll();
  compute(3, 4);
  const std::int64_t before = backed_up();
  const std::int64_t step = kv->begin_step();
  std::vector<TransferKind> ended;
  end_jobs([&](const Transfer& job) {
    const bool ends = job.kind == TransferKind::kRemove || job.kind == TransferKind::kBackup;
    if (ends) ended.push_back(job.kind);
    return ends;
  });
  ASSERT_EQ(ended, (std::vector{TransferKind::kRemove, TransferKind::kBackup}));
  EXPECT_FALSE(kv->arrivals_wait());
  EXPECT_EQ(backed_up(), before + 4);
  kv->retire_step(step);
  kv->release_promotion(*promotion, PromotionUse::kWaiting);
}

// Its job ends all the same: then there is nothing more to ask.
TEST_F(PromotionPlaces, ForATextThatNobodyWantsAnyMoreTheNextStoreIsNotAsked) {
  open(64, 2);
  const auto promotion = kv->try_promote(ns, text(100));
  ASSERT_TRUE(promotion.has_value());
  ASSERT_EQ(tiers->lanes().posted.size(), 1) << "the first store";
  kv->release_promotion(*promotion, PromotionUse::kWaiting);
  end_jobs([](const Transfer&) { return true; });
  EXPECT_TRUE(tiers->lanes().posted.empty());
}

TEST_F(PromotionPlaces, WhatCameBeforeAPageThatDidNotIsThere) {
  open(64, 0);
  publish(1, 4);
  kv->evict(4);
  const auto promotion = kv->try_promote(ns, text(1));
  ASSERT_TRUE(promotion.has_value());
  Transfer& job = *tiers->lanes().posted.front();
  job.verdicts.assign(4, PageVerdict::kDone);
  job.verdicts[2] = PageVerdict::kFailed;
  tiers->lanes().end_next();
  poll();
  EXPECT_EQ(kv->probe(ns, text(1)), 2);
  EXPECT_TRUE(kv->promotion_outcome(*promotion).lost_pages);
  kv->release_promotion(*promotion, PromotionUse::kWaiting);
}

//   one     began to compute behind it, and has ended
//   other   waits
TEST_F(PromotionPlaces, WhatSomebodyComputesBehindIsNotGivenUpForOthersAsLongAsHeDoes) {
  open(64, 0);
  publish(1, 4);
  kv->evict(4);
  const auto one = kv->try_promote(ns, text(1));
  const auto other = kv->try_promote(ns, text(1));
  ASSERT_TRUE(one.has_value() && other == one);
  kv->promotion_started(*one);
  kv->give_up_promotions(PromotionUse::kWaiting);
  EXPECT_TRUE(kv->worth_waiting(*other));
  kv->release_promotion(*one, PromotionUse::kComputing);
  EXPECT_TRUE(kv->worth_waiting(*other));
  kv->give_up_promotions(PromotionUse::kWaiting);
  EXPECT_FALSE(kv->worth_waiting(*other));
  kv->release_promotion(*other, PromotionUse::kWaiting);
  end_jobs([](const Transfer&) { return true; });
}

// What makes room for it would be free only when the step has retired.
TEST_F(PromotionPlaces, NothingIsEvictedForATextBesideAStep) {
  open(1024, 0);
  publish(1, 4);
  kv->evict(4);
  for (TokenId other = 2; other < 10; ++other) publish(other, 32);
  ASSERT_EQ(kv->free_pages(), 0);
  const std::int64_t step = kv->begin_step();
  const auto promotion = kv->try_promote(ns, text(1));
  ASSERT_TRUE(promotion.has_value());
  EXPECT_TRUE(tiers->lanes().posted.empty());
  EXPECT_EQ(kv->evicted_pages(), 4);
  kv->retire_step(step);
  poll();
  EXPECT_EQ(tiers->lanes().posted.size(), 1);
  end_jobs([](const Transfer&) { return true; });
  EXPECT_EQ(kv->probe(ns, text(1)), 4);
  kv->release_promotion(*promotion, PromotionUse::kWaiting);
}

}  // namespace
}  // namespace stemma
