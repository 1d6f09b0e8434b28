// Pages that host memory or a page store cannot be given at once: they go when it can, the oldest
// first, without anybody touching them again, and hold nothing until then. Lanes end jobs when a
// test says.
#include <gtest/gtest.h>

#include <vector>

#include "cache/held_copies_fixture.h"
#include "tier/transfer_ticket.h"

namespace stemma {
namespace {

constexpr std::int64_t kTicketsMax = TransferLimits().writes_max;
constexpr std::int64_t kDownMax = TransferLimits().down_max;

class OwedPages : public HeldCopies {};

TEST_F(OwedPages, AreStoredWhenTheStoreHasCaughtUp) {
  open(256);
  for (TokenId text = 0; text < 2 * kTicketsMax + 4; ++text) publish(text, 3);
  EXPECT_EQ(owed(), 3 * (kTicketsMax + 4));
  EXPECT_EQ(end_stores(), kTicketsMax);
  EXPECT_EQ(owed(), 3 * 4);
  EXPECT_EQ(end_stores(), kTicketsMax);
  EXPECT_EQ(end_stores(), 4);
  EXPECT_EQ(stored(), 3 * (2 * kTicketsMax + 4));
  EXPECT_EQ(owed(), 0);
  EXPECT_EQ(unstored(), 0);
  EXPECT_FALSE(kv->transfers_underway());
}

TEST_F(OwedPages, TheOldestGoFirst) {
  open(256);
  for (TokenId text = 0; text < kTicketsMax + 2; ++text) publish(text, 1);
  end_stores();
  ASSERT_EQ(tiers->lanes().posted.size(), 2u);
  EXPECT_EQ(tiers->lanes().posted[0]->tokens, std::vector<TokenId>{1000 * kTicketsMax});
  EXPECT_EQ(tiers->lanes().posted[1]->tokens, std::vector<TokenId>{1000 * (kTicketsMax + 1)});
}

TEST_F(OwedPages, NewOnesDoNotOvertake) {
  open(256);
  for (TokenId text = 0; text <= 2 * kTicketsMax; ++text) publish(text, 1);
  auto& posted = tiers->lanes().posted;
  posted.front()->verdicts = {PageVerdict::kDone};
  tiers->lanes().end_next();
  publish(99, 1);
  EXPECT_EQ(posted.back()->tokens, std::vector<TokenId>{1000 * kTicketsMax});
}

TEST_F(OwedPages, ATextThatGrowsGoesAsOne) {
  open(256);
  for (TokenId text = 1; text <= kTicketsMax; ++text) publish(text, 1);
  for (std::int64_t pages = 1; pages <= 9; ++pages) publish(50, pages);
  EXPECT_EQ(owed(), 9);
  end_stores();
  ASSERT_EQ(tiers->lanes().posted.size(), 1u);
  EXPECT_EQ(tiers->lanes().posted[0]->pages(), 9);
}

TEST_F(OwedPages, HoldNoHostMemoryAndAreCountedWhereTheyAreEvicted) {
  open(2 * kTicketsMax);
  for (TokenId text = 0; text < 2 * kTicketsMax; ++text) publish(text, 1);
  EXPECT_EQ(metric("stemma_host_locked_pages"), kTicketsMax) << "those under way";
  for (TokenId text = 100; text < 100 + kTicketsMax; ++text) publish(text, 1);
  EXPECT_EQ(unbacked(), 0);
  EXPECT_EQ(unstored(), kTicketsMax);
  EXPECT_EQ(owed(), kTicketsMax);
  end_stores();
  EXPECT_EQ(end_stores(), kTicketsMax);
  EXPECT_EQ(stored(), 2 * kTicketsMax);
  EXPECT_EQ(owed(), 0);
}

TEST_F(OwedPages, AStoreThatHangsLeavesOthersTheirPart) {
  open(256, 2);
  for (TokenId text = 0; text < 30; ++text) publish(text, 1);
  EXPECT_EQ(owed(), 2 * (30 - kTicketsMax / 2));
  std::int64_t jobs = 0;
  while (const std::int64_t ended = end_stores(1)) jobs += ended;
  EXPECT_EQ(jobs, 30);
  EXPECT_EQ(stored(), 30);
  EXPECT_EQ(owed(), 30 - kTicketsMax / 2) << "to the other one";
  while (end_stores(0) > 0) {
  }
  EXPECT_EQ(stored(), 60);
}

TEST_F(OwedPages, WhatIsPurgedIsOwedNoMore) {
  open(256);
  for (TokenId text = 0; text < kTicketsMax + 5; ++text) publish(text, 2);
  EXPECT_EQ(owed(), 10);
  ASSERT_TRUE(kv->purge({}).ok());
  EXPECT_EQ(owed(), 0);
  EXPECT_EQ(unstored(), 10);
  end_stores();
  EXPECT_EQ(end_stores(), 0);
}

TEST_F(OwedPages, AResetOfTheDeviceWaitsForNoStore) {
  open(256);
  for (TokenId text = 0; text < kTicketsMax + 5; ++text) publish(text, 1);
  kv->reset();
  EXPECT_EQ(owed(), 5);
  end_stores();
  EXPECT_EQ(end_stores(), 5);
}

// As many requests as a batch has may end in one step.
TEST_F(OwedPages, OfTheDeviceGoDownInTheirTurn) {
  open(256, 0);
  for (TokenId text = 0; text < 2 * kDownMax + 3; ++text) compute(text, 2);
  EXPECT_EQ(owed_backups(), 2 * (kDownMax + 3));
  EXPECT_EQ(kv->usage().locked_tokens, 2 * kDownMax) << "what is owed can be evicted";
  EXPECT_EQ(end_backups(), kDownMax);
  EXPECT_EQ(tiers->lanes().posted.front()->tokens.front(), 1000 * kDownMax) << "the oldest";
  EXPECT_EQ(end_backups(), kDownMax);
  EXPECT_EQ(end_backups(), 3);
  EXPECT_EQ(backed_up(), 2 * (2 * kDownMax + 3));
  EXPECT_EQ(owed_backups(), 0);
  EXPECT_EQ(unbacked(), 0);
  EXPECT_FALSE(kv->transfers_underway());
}

TEST_F(OwedPages, OfTheDeviceGoWithATextThatGoesOnFromThem) {
  open(256, 0);
  for (TokenId text = 0; text < kDownMax; ++text) compute(text, 1);
  for (std::int64_t pages = 1; pages <= 5; ++pages) compute(50, pages);
  EXPECT_EQ(owed_backups(), 5);
  EXPECT_EQ(end_backups(), kDownMax);
  ASSERT_EQ(tiers->lanes().posted.size(), 1u);
  EXPECT_EQ(tiers->lanes().posted[0]->pages(), 5);
  EXPECT_EQ(end_backups(), 1);
  EXPECT_EQ(backed_up(), kDownMax + 5);
}

TEST_F(OwedPages, OfTheDeviceAreCountedWhereTheyAreEvicted) {
  open(256, 0);
  for (TokenId text = 0; text < kDownMax + 4; ++text) compute(text, 3);
  EXPECT_EQ(kv->evict(256), 3 * 4);
  EXPECT_EQ(owed_backups(), 0);
  EXPECT_EQ(unbacked(), 3 * 4);
  EXPECT_EQ(end_backups(), kDownMax);
  EXPECT_EQ(end_backups(), 0);
}

TEST_F(OwedPages, OfTheDeviceAreGivenUpWithItsPages) {
  open(256, 0);
  for (TokenId text = 0; text < kDownMax + 4; ++text) compute(text, 1);
  tiers->lanes().ends_when_waited_for = true;
  kv->reset();
  EXPECT_EQ(backed_up(), kDownMax);
  EXPECT_EQ(unbacked(), 4);
  EXPECT_EQ(owed_backups(), 0);
}

// Each text is a page and its window: both go to host memory, and from there to the store.
class OwedWindows : public HeldCopies {
 protected:
  static constexpr std::int64_t kTexts = kTicketsMax / 2;  // keep the store busy
};

TEST_F(OwedWindows, ThatHostMemoryLostBeforeTheirTurnAreCounted) {
  open(256, 1, {.windowed_pages = kTexts + 1});
  for (TokenId text = 0; text < kTexts; ++text) publish(text, 1);
  ASSERT_EQ(tiers->lanes().posted.size(), std::size_t{kTicketsMax});
  publish(100, 1);
  publish(101, 1);  // its window takes the place of the other's
  while (end_stores() > 0) continue;
  EXPECT_EQ(owed(), 0);
  EXPECT_EQ(stored(), kTicketsMax + 3);
  EXPECT_EQ(unstored(), 1);
  EXPECT_EQ(unbacked(), 0);
}

TEST_F(OwedWindows, ThatHostMemoryHasNoRoomForAreCounted) {
  open(256, 1, {.windowed_pages = 1});
  compute(100, 1);  // the copy of its window holds the only page
  compute(101, 1);
  EXPECT_EQ(unbacked(), 2) << "each try: where its prompt ends, and where it ends itself";
}

TEST_F(OwedWindows, WhoseCopyFailedAreCounted) {
  open(256, 1, {.windowed_pages = 8});
  compute(100, 1);
  auto& posted = tiers->lanes().posted;
  ASSERT_EQ(posted.size(), 2u);
  posted[0]->verdicts = {PageVerdict::kDone};
  posted[1]->verdicts = {PageVerdict::kFailed};
  tiers->lanes().end_next();
  tiers->lanes().end_next();
  poll();
  EXPECT_EQ(unbacked(), 1);
  EXPECT_EQ(unstored(), 0);
}

}  // namespace
}  // namespace stemma
