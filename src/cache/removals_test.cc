// Removals: what is wrong is not asked of stores until each of them is rid of it; a store that
// fails is asked again; copies under way come first.
#include "cache/removals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tier/held_lanes.h"
#include "tier/memory_page_store.h"

namespace stemma {
namespace {

PageKey key_of(int number) {
  PageKey key;
  key.bytes[0] = static_cast<std::uint8_t>(number);
  return key;
}

std::vector<PageKey> keys_of(std::initializer_list<int> numbers) {
  std::vector<PageKey> keys;
  for (const int number : numbers) keys.push_back(key_of(number));
  return keys;
}

class RemovalsTest : public ::testing::Test {
 protected:
  void land_all() {
    while (auto ticket = transfers.try_take_landed()) {
      if (ticket->job().kind == TransferKind::kRemove) removals.landed(*ticket);
    }
    removals.advance();
  }

  FakeClock clock;
  TierOptions options{.load_pages_max = 2, .store_deadline_us = 100};
  MemoryPageStore disk{Tier::kDisk, 1000};
  MemoryPageStore remote{Tier::kRemote, 1000};
  std::vector<PageStore*> stores = {&disk, &remote};
  HeldLanes lanes;
  TransferEngine transfers{{}, lanes};
  Removals removals{{.transfers = transfers, .stores = stores, .clock = clock, .options = options}};
};

TEST_F(RemovalsTest, WhereNothingIsWrongAllMayBeAsked) {
  EXPECT_EQ(removals.usable_pages(keys_of({1, 2, 3})), 3);
  removals.advance();
  EXPECT_TRUE(lanes.posted.empty());
}

TEST_F(RemovalsTest, UntilEveryStoreIsRidOfItNobodyAsks) {
  removals.add(keys_of({3}));
  EXPECT_EQ(removals.usable_pages(keys_of({1, 2, 3, 4})), 2);
  EXPECT_EQ(removals.usable_pages(keys_of({1, 2, 4})), 3);
  removals.advance();
  ASSERT_EQ(lanes.posted.size(), 2u) << "one a store";
  lanes.end_next(PageVerdict::kDone);
  land_all();
  EXPECT_EQ(removals.usable_pages(keys_of({3})), 0);
  lanes.end_next(PageVerdict::kDone);
  land_all();
  EXPECT_EQ(removals.usable_pages(keys_of({3})), 1);
  EXPECT_EQ(removals.pages(), 0);
  EXPECT_TRUE(lanes.posted.empty());
}

TEST_F(RemovalsTest, AStoreThatFailsIsAskedAgainAfterAWhile) {
  removals.add(keys_of({3}));
  removals.advance();
  lanes.end_next(PageVerdict::kDone);
  lanes.end_next(PageVerdict::kFailed);
  land_all();
  EXPECT_TRUE(lanes.posted.empty());
  clock.advance_us(100);
  removals.advance();
  ASSERT_EQ(lanes.posted.size(), 1u);
  EXPECT_EQ(lanes.posted.front()->store, 1);
  lanes.end_next(PageVerdict::kFailed);
  land_all();
  clock.advance_us(199);
  removals.advance();
  EXPECT_TRUE(lanes.posted.empty()) << "a longer while";
  clock.advance_us(1);
  removals.advance();
  ASSERT_EQ(lanes.posted.size(), 1u);
  lanes.end_next(PageVerdict::kDone);
  land_all();
  EXPECT_EQ(removals.pages(), 0);
}

TEST_F(RemovalsTest, AStoreThatWorkedSinceItFailedWaitsAFirstWhileAgain) {
  for (const int wrong : {1, 2}) {
    removals.add(keys_of({wrong}));
    removals.advance();
    lanes.end_next(PageVerdict::kDone);
    lanes.end_next(PageVerdict::kFailed);
    land_all();
    EXPECT_TRUE(lanes.posted.empty());
    clock.advance_us(100);
    removals.advance();
    ASSERT_EQ(lanes.posted.size(), 1u) << wrong;
    lanes.end_next(PageVerdict::kDone);
    land_all();
    EXPECT_EQ(removals.pages(), 0);
  }
}

TEST_F(RemovalsTest, ManyPagesGoInJobsOfALimitedSize) {
  removals.add(keys_of({5, 1, 4, 2, 3}));
  removals.advance();
  int jobs = 0;
  while (!lanes.posted.empty()) {
    EXPECT_LE(lanes.posted.front()->pages(), 2);
    lanes.end_next(PageVerdict::kDone);
    land_all();
    ++jobs;
  }
  EXPECT_EQ(jobs, 6);
  EXPECT_EQ(removals.pages(), 0);
}

// One of the nodes of a cluster may be down.
TEST_F(RemovalsTest, PagesThatCannotBeRemovedKeepNoOthersWaiting) {
  removals.add(keys_of({1, 2, 3, 4, 5, 6, 7}));
  removals.add(keys_of({11, 12, 13}), LayerGroup::kWindowed);
  const auto is_stuck = [](const PageKey& key) { return key.bytes[0] <= 2 || key.bytes[0] == 11; };
  for (int round = 0; round < 10; ++round) {
    removals.advance();
    while (!lanes.posted.empty()) {
      Transfer* const job = lanes.posted.front();
      lanes.end_next(PageVerdict::kDone);
      for (std::size_t i = 0; i < job->keys.size(); ++i) {
        if (is_stuck(job->keys[i])) job->verdicts[i] = PageVerdict::kFailed;
      }
      land_all();
    }
    clock.advance_us(1'000'000);
  }
  EXPECT_EQ(removals.pages(), 3);
  EXPECT_EQ(removals.usable_pages(keys_of({3, 4, 5, 6, 7})), 5);
}

TEST_F(RemovalsTest, AStoreThatIsRidOfSomeOfAJobIsAskedForTheNextAtOnce) {
  removals.add(keys_of({1, 2, 3}));
  removals.advance();
  lanes.posted.front()->verdicts = {PageVerdict::kFailed, PageVerdict::kDone};
  lanes.end_next();
  land_all();
  ASSERT_EQ(lanes.posted.size(), 2u);
  EXPECT_EQ(lanes.posted.back()->keys, keys_of({3}));
}

TEST_F(RemovalsTest, WaitForACopyThatMayBringThePageToTheStore) {
  auto copy = transfers.try_open(TransferKind::kStore, 1);
  copy->job().keys = keys_of({2, 3});
  transfers.submit(std::move(*copy));
  removals.add(keys_of({3}));
  removals.advance();
  ASSERT_EQ(lanes.posted.size(), 2u);
  EXPECT_EQ(lanes.posted.back()->store, 0) << "the other store is asked at once";
  lanes.end_next(PageVerdict::kDone);
  land_all();
  ASSERT_EQ(lanes.posted.size(), 2u);
  EXPECT_EQ(lanes.posted.back()->store, 1);
}

TEST_F(RemovalsTest, WhatIsWrongAgainIsInQuestionEverywhereAgain) {
  removals.add(keys_of({3}));
  removals.advance();
  lanes.end_next(PageVerdict::kDone);
  land_all();
  removals.add(keys_of({3}));
  EXPECT_EQ(removals.pages(), 1);
  removals.advance();
  ASSERT_EQ(lanes.posted.size(), 2u);
  EXPECT_EQ(lanes.posted.back()->store, 0);
}

TEST_F(RemovalsTest, BeyondALimitStoresAreNotUsedAnyMore) {
  std::vector<PageKey> many(70'000);
  for (std::size_t i = 0; i < many.size(); ++i) {
    many[i].bytes[1] = static_cast<std::uint8_t>(i >> 16);
    many[i].bytes[2] = static_cast<std::uint8_t>(i >> 8);
    many[i].bytes[3] = static_cast<std::uint8_t>(i);
  }
  removals.add(many);
  EXPECT_EQ(removals.usable_pages(keys_of({1})), 0);
  removals.advance();
  EXPECT_TRUE(lanes.posted.empty());
}

// What stores have behind it is purged. What comes there afterwards is right.
TEST_F(RemovalsTest, WhatIsGoneEverywhereIsForgotten) {
  removals.add(keys_of({2}));
  removals.add(keys_of({102}), LayerGroup::kWindowed);
  EXPECT_EQ(removals.usable_pages(keys_of({1, 2, 3, 4})), 1);
  EXPECT_TRUE(removals.windows_usable(keys_of({101})));
  EXPECT_FALSE(removals.windows_usable(keys_of({101, 102})));
  for (removals.advance(); !lanes.posted.empty(); land_all()) lanes.end_next(PageVerdict::kDone);
  EXPECT_TRUE(removals.none());
  const std::int64_t additions = removals.additions();
  EXPECT_EQ(removals.usable_pages(keys_of({1, 2, 3, 4})), 4);
  EXPECT_TRUE(removals.windows_usable(keys_of({101, 102})));
  removals.advance();
  EXPECT_TRUE(lanes.posted.empty());
  EXPECT_EQ(removals.additions(), additions) << "nothing to be written down";
}

TEST(Removals, WithoutStoresThereIsNothingToRemove) {
  FakeClock clock;
  const TierOptions options;
  HeldLanes lanes;
  TransferEngine transfers({}, lanes);
  Removals removals({.transfers = transfers, .stores = {}, .clock = clock, .options = options});
  removals.add(keys_of({1}));
  EXPECT_EQ(removals.pages(), 0);
}

}  // namespace
}  // namespace stemma
