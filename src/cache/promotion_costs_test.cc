// Covers texts of which loading was slower than computing once: what the tier costs is found out
// again.
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "cache/held_copies_fixture.h"
#include "prefix/page_key.h"

namespace stemma {
namespace {

constexpr std::int64_t kFastUs = 5'000;
constexpr std::int64_t kSlowUs = 300'000;
constexpr std::int64_t kWhileUs = 10'000'000;  // for which a tier is left alone

// Texts of 50 pages that take 50 ms to compute.
class PromotionCosts : public HeldCopies {
 protected:
  static constexpr std::int64_t kPages = 50;

  void open_and_measure() {
    open<MapStore>(64);
    kv->note_computed(0, kPages, kPages * 1000);
  }

  // One more text that only the store has is asked for; how many pages of it were loaded, which
  // took so long.
  std::int64_t ask_for_one(std::int64_t load_us) {
    const std::vector<TokenId> text = store_one();
    const auto id = kv->try_promote(ns, text);
    std::int64_t pages = 0;
    for (Transfer* const job : tiers->lanes().posted) {
      if (job->kind != TransferKind::kLoad) continue;
      pages += job->pages();
      job->started_us = clock.now_us();
      job->ended_us = clock.now_us() + load_us;
    }
    end_jobs([](const Transfer&) { return true; });
    if (id.has_value()) kv->release_promotion(*id, PromotionUse::kWaiting);
    kv->evict(kPages);
    return pages;
  }

 private:
  std::vector<TokenId> store_one() {
    std::vector<TokenId> text;
    PageKeyChain chain(NamespaceDigest{});
    auto& store = *static_cast<MapStore*>(tiers->stores()[0]);
    for (TokenId i = 0; i < kPages; ++i) {
      text.push_back(1000 * texts_ + i);
      store.frames[chain.append(std::span(text).last(1))] = {};
    }
    text.push_back(0);  // never looked for
    ++texts_;
    return text;
  }

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

}  // namespace
}  // namespace stemma
