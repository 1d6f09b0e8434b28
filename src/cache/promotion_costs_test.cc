// Covers texts of which loading was slower than computing once: what the tier costs is found out
// again.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cache/held_copies_fixture.h"
#include "prefix/namespace_examples.h"
#include "prefix/page_key.h"

namespace stemma {
namespace {

constexpr std::int64_t kFastUs = 5'000;
constexpr std::int64_t kPieceUs = 1'000;  // fast, for a piece of ten pages
constexpr std::int64_t kSlowUs = 300'000;
constexpr std::int64_t kWhileUs = 10'000'000;  // for which a tier is left alone

// Texts of 50 pages that take 50 ms to compute.
class PromotionCosts : public HeldCopies {
 protected:
  static constexpr std::int64_t kPages = 50;

  void open_and_measure() {
    open<MapStore>(64);
    measure();
  }
  void measure() { kv->note_computed(0, kPages, kPages * 1000); }

  // One more text that only the first store has is asked for; how many pages of it were loaded,
  // which took so long.
  std::int64_t ask_for_one(std::int64_t load_us) {
    const auto id = kv->try_promote(ns, store_one());
    const std::int64_t pages = end_loads(load_us);
    if (id.has_value()) kv->release_promotion(*id, PromotionUse::kWaiting);
    kv->evict(kPages);
    return pages;
  }
  std::int64_t prefetch_one(std::int64_t load_us) {
    EXPECT_TRUE(kv->try_prefetch(ns, store_one()));
    return end_loads(load_us);
  }

  // What was looked up is found, or not, and all that is asked for then comes.
  std::int64_t end_loads(std::int64_t load_us) {
    std::int64_t pages = 0;
    while (!tiers->lanes().posted.empty()) {
      for (Transfer* const job : tiers->lanes().posted) {
        const bool of_text = job->group == LayerGroup::kFull;
        const bool comes = job->kind == TransferKind::kLoad || job->kind == TransferKind::kFetch;
        if (of_text && comes) pages += job->pages();
        job->started_us = clock.now_us();
        job->ended_us = clock.now_us() + load_us;
      }
      end_jobs([](const Transfer&) { return true; });
    }
    return pages;
  }

  std::vector<TokenId> store_one(const NamespaceDigest& digest = {}, std::int64_t pages = kPages) {
    std::vector<TokenId> text;
    PageKeyHasher hasher;
    PageKey key = PageKeyHasher::root(digest);
    auto& store = *static_cast<MapStore*>(tiers->stores()[0]);
    for (TokenId i = 0; i < pages; ++i) {
      text.push_back(1000 * texts_ + i);
      const auto page = std::span<const TokenId>(text).last(1);
      store.frames[hasher.next(hasher.windowed_parent(key), page)] = {};
      key = hasher.next(key, page);
      store.frames[key] = {};
    }
    text.insert(text.end(), {7, 8, 9});  // two that no store has, and one never looked for
    ++texts_;
    return text;
  }

 private:
  TokenId texts_ = 1;
};

TEST_F(PromotionCosts, ATierThatWasSlowAtFirstIsTriedAgain) {
  open_and_measure();
  EXPECT_EQ(ask_for_one(kSlowUs), kPages);
  EXPECT_EQ(ask_for_one(kFastUs), 0) << "computing is faster";
  clock.advance_us(kWhileUs);
  EXPECT_GT(ask_for_one(kFastUs), 0);
  clock.advance_us(kWhileUs);
  ask_for_one(kFastUs);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(ask_for_one(kFastUs), kPages) << "all of it, at once";
}

TEST_F(PromotionCosts, OneSlowLoadAmongManyTurnsATierOffForAWhile) {
  open_and_measure();
  for (int i = 0; i < 200; ++i) EXPECT_EQ(ask_for_one(kFastUs), kPages);
  EXPECT_EQ(ask_for_one(5 * kSlowUs), kPages);
  EXPECT_EQ(ask_for_one(kFastUs), 0);
  clock.advance_us(kWhileUs);
  ask_for_one(kFastUs);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(ask_for_one(kFastUs), kPages);
}

TEST_F(PromotionCosts, ATierThatStaysSlowIsTriedOnceInAWhile) {
  open_and_measure();
  ask_for_one(kSlowUs);
  for (int i = 0; i < 5; ++i) {
    clock.advance_us(kWhileUs);
    EXPECT_GT(ask_for_one(kSlowUs), 0);
    for (int j = 0; j < 10; ++j) EXPECT_EQ(ask_for_one(kSlowUs), 0);
  }
}

// Nobody computes what is missing of these: a last piece alone is of no use to them.
TEST_F(PromotionCosts, WhatIsBroughtAheadLeavesTheTrialToWhoeverWaits) {
  load_pages_max = 10;
  open_and_measure();
  EXPECT_EQ(ask_for_one(kSlowUs), kPages);
  for (int i = 0; i < 5; ++i) {
    clock.advance_us(kWhileUs);
    prefetch_one(kPieceUs);
    EXPECT_GT(ask_for_one(kPieceUs), 0);
  }
  for (int i = 0; i < 10; ++i) ask_for_one(kPieceUs);
  EXPECT_EQ(prefetch_one(kPieceUs), kPages);
}

//   shared (in host memory) | own (in the store)      asked for behind what all share
TEST_F(PromotionCosts, SoDoesWhatGoesOnFromATextThatIsOnItsWay) {
  load_pages_max = 10;
  open_and_measure();
  const SharedPrefix prefix = {digest_of(50), 2};
  const NamespaceId shared = *kv->try_open_namespace(prefix.digest);
  const NamespaceId own = *kv->try_open_namespace(digest_of(51), &prefix);
  EXPECT_EQ(ask_for_one(kSlowUs), kPages);
  const NamespaceId asked_in = std::exchange(ns, shared);
  publish(900, 2);
  ns = asked_in;
  end_jobs([](const Transfer&) { return true; });
  kv->evict(2);
  clock.advance_us(kWhileUs);
  std::vector<TokenId> text = store_one(digest_of(51), 40);
  text.insert(text.begin(), {900'000, 900'001});
  const auto id = kv->try_promote(own, text);
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(end_loads(kPieceUs), 0);
  EXPECT_EQ(kv->probe(own, text), 2) << "what all share has come";
  kv->release_promotion(*id, PromotionUse::kWaiting);
  EXPECT_GT(ask_for_one(kPieceUs), 0);
}

// What is worth bringing is decided on again when the far one has answered.
TEST_F(PromotionCosts, ATierIsTriedBeforeAFarOneHasAnswered) {
  for (const std::int64_t windowed_pages : {0, 64}) {
    SCOPED_TRACE(windowed_pages);
    load_pages_max = 10;
    std::vector<std::unique_ptr<MapStore>> maps;
    maps.push_back(std::make_unique<MapStore>());
    maps.push_back(std::make_unique<FarStore>());
    open_over(200, std::move(maps), {.windowed_pages = windowed_pages});
    measure();
    EXPECT_EQ(ask_for_one(kSlowUs), kPages);
    for (int i = 0; i < 5; ++i) {
      clock.advance_us(kWhileUs);
      EXPECT_GT(ask_for_one(kPieceUs), 0);
    }
    for (int i = 0; i < 10; ++i) ask_for_one(kPieceUs);
    EXPECT_EQ(ask_for_one(kPieceUs), kPages);
  }
}

// Nothing can be asked for before the step has retired.
TEST_F(PromotionCosts, ATierIsTriedOnceForAllWhoAskBesideAStep) {
  load_pages_max = 10;
  open_and_measure();
  EXPECT_EQ(ask_for_one(kSlowUs), kPages);
  clock.advance_us(kWhileUs);
  const std::int64_t step = kv->begin_step();
  const auto one = kv->try_promote(ns, store_one());
  const auto other = kv->try_promote(ns, store_one());
  ASSERT_TRUE(one.has_value());
  kv->retire_step(step);
  poll();
  EXPECT_EQ(tiers->lanes().posted.size(), 1);
  EXPECT_GT(end_loads(kSlowUs), 0);
  kv->release_promotion(*one, PromotionUse::kWaiting);
  if (other.has_value()) kv->release_promotion(*other, PromotionUse::kWaiting);
}

}  // namespace
}  // namespace stemma
