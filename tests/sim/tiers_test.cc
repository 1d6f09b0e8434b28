// Tiers below the device, over the stamp model: what was demoted comes back bit for bit, through
// host memory, a disk and a remote store, in every layout and page size, under every write policy;
// what is damaged, lost or late costs time alone. Counters prove that pages came from where the
// test says.
#include <gtest/gtest.h>

#include <optional>
#include <tuple>

#include "sim/tiered_harness.h"

namespace stemma {
namespace {

using Case = std::tuple<std::int64_t, KvLayout, KvLayout>;
class EveryLayout : public ::testing::TestWithParam<Case> {};

TEST_P(EveryLayout, WhatWasEvictedComesBackFromHostMemory) {
  const auto& [page_size, device_layout, host_layout] = GetParam();
  const EngineOptions options = tiered_options(page_size, 192);
  SimulatedTierOptions tiers = tiers_of(1024 / page_size);
  tiers.host_layout = host_layout;
  StampHarness harness(options, device_layout, &tiers);
  answer(harness, 1, 130);
  settle(harness);
  for (std::uint64_t other = 2; other < 5; ++other) answer(harness, other, 150);
  EXPECT_GT(harness.engine().totals().evicted_pages, 0);
  const RequestStats stats = answer(harness, 1, 130);
  EXPECT_GE(stats.brought.host, 129 / page_size * page_size - 192 + 150);
  EXPECT_GT(stats.brought.host, 0);
  EXPECT_EQ(stats.cached_tokens, 129 / page_size * page_size);
  EXPECT_EQ(stats.computed_tokens, 130 - stats.cached_tokens);
}

INSTANTIATE_TEST_SUITE_P(
    PageSizesAndLayouts, EveryLayout,
    ::testing::Combine(::testing::Values(1, 3, 16),
                       ::testing::Values(KvLayout::kLayerFirst, KvLayout::kPageFirst),
                       ::testing::Values(KvLayout::kLayerFirst, KvLayout::kPageFirst)));

class EveryStore : public ::testing::TestWithParam<Tier> {};

TEST_P(EveryStore, WhatWasStoredIsFoundAfterARestart) {
  const Tier tier = GetParam();
  SimulatedTierOptions tiers = tiers_of(64, {tier});
  tiers.faults.lookup_is_local = tier == Tier::kDisk;
  StampHarness harness(tiered_options(4, 320), KvLayout::kLayerFirst, &tiers);
  answer(harness, 1, 130);
  settle(harness);
  harness.restart();
  const RequestStats stats = answer(harness, 1, 130);
  EXPECT_EQ(stats.cached_tokens, 128);
  EXPECT_EQ(tier == Tier::kDisk ? stats.brought.disk : stats.brought.remote, 128);
}

INSTANTIATE_TEST_SUITE_P(Stores, EveryStore, ::testing::Values(Tier::kDisk, Tier::kRemote));

// Far more comes at once than a store is given at once; then nobody comes any more.
TEST(Tiers, ASlowStoreHasEverythingInTheEnd) {
  SimulatedTierOptions tiers = tiers_of(2048, {Tier::kDisk, Tier::kRemote});
  tiers.lanes.store_job_us_max = 20'000;
  StampHarness harness(tiered_options(4, 320), KvLayout::kLayerFirst, &tiers);
  for (std::uint64_t seed = 1; seed < 25; ++seed) {
    answer(harness, seed, 130);
    settle_host(harness);
  }
  EXPECT_GT(harness.metric("stemma_owed_pages"), 0);
  harness.engine().settle(std::chrono::hours(1));
  EXPECT_EQ(harness.metric("stemma_owed_pages"), 0);
  EXPECT_EQ(harness.metric("stemma_unstored_pages_total"), 0);
  harness.tiers().set_lanes({});
  harness.restart();
  for (std::uint64_t seed = 1; seed < 25; ++seed) {
    const RequestStats stats = answer(harness, seed, 130);
    EXPECT_EQ(stats.cached_tokens, 128) << seed;
    EXPECT_EQ(stats.brought.disk, 128) << seed;
  }
}

// More requests end at once than host memory is given copies at once; then nobody comes any more.
TEST(Tiers, WhatABatchComputedIsInHostMemoryInTheEnd) {
  EngineOptions options = tiered_options(4, 4800);
  options.kv.requests_max = 32;
  SimulatedTierOptions tiers = tiers_of(2048);
  tiers.lanes.job_us_max = 20'000;
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  for (std::uint64_t seed = 1; seed <= 32; ++seed) harness.submit(some_tokens(seed, 130), 4);
  harness.run();
  EXPECT_GT(harness.metric("stemma_owed_backup_pages"), 0);
  settle(harness);
  EXPECT_EQ(harness.metric("stemma_owed_backup_pages"), 0);
  EXPECT_EQ(harness.metric("stemma_unbacked_pages_total"), 0);
  EXPECT_EQ(harness.metric("stemma_backed_up_pages_total"), 32 * 33);
}

TEST(Tiers, WriteThroughSelectiveCopiesWhatWasUsedTwice) {
  EngineOptions options = tiered_options(4, 320);
  options.kv.tiers.write_policy = WritePolicy::kWriteThroughSelective;
  const SimulatedTierOptions tiers = tiers_of(64);
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  answer(harness, 1, 130);
  settle(harness);
  EXPECT_EQ(harness.metric("stemma_backed_up_pages_total"), 0) << "its own chunks are no use";
  answer(harness, 1, 130);
  settle(harness);
  EXPECT_EQ(harness.metric("stemma_backed_up_pages_total"), 32);
  answer(harness, 1, 130);
  settle(harness);
  EXPECT_EQ(harness.metric("stemma_backed_up_pages_total"), 32) << "once is enough";
}

// Text 2 is still being copied down, and held for it, when text 1 comes back: what is left of it is
// all that could go to make room for the rest.
TEST(Tiers, LowerTiersAreAskedWhenThereIsRoomForWhatTheyHave) {
  SimulatedTierOptions tiers = tiers_of(256);
  tiers.lanes.job_us_max = 20'000;
  StampHarness harness(tiered_options(4, 240), KvLayout::kLayerFirst, &tiers);
  answer(harness, 1, 130);
  settle(harness);
  answer(harness, 2, 130);
  const RequestStats stats = answer(harness, 1, 130);
  EXPECT_GT(stats.brought.host, 0);
  EXPECT_EQ(stats.computed_tokens, 2);
}

TEST(Tiers, AShortHostPoolEvictsItsColdestAndCountsWhatItCannotTake) {
  const SimulatedTierOptions tiers = tiers_of(40);
  StampHarness harness(tiered_options(4, 160), KvLayout::kLayerFirst, &tiers);
  for (std::uint64_t seed = 1; seed < 5; ++seed) {
    answer(harness, seed, 130);
    settle(harness);
  }
  EXPECT_EQ(answer(harness, 4, 130).cached_tokens, 128);
  EXPECT_EQ(answer(harness, 1, 130).brought.host, 0) << "the coldest went";
}

TEST(Tiers, RequestsOfOneTextShareAPromotion) {
  const SimulatedTierOptions tiers = tiers_of(64, {Tier::kDisk});
  StampHarness harness(tiered_options(4, 640), KvLayout::kLayerFirst, &tiers);
  answer(harness, 1, 130);
  settle(harness);
  harness.restart();
  for (int i = 0; i < 3; ++i) harness.submit(some_tokens(1, 130), 4);
  harness.run();
  harness.expect_closed_form();
  EXPECT_EQ(harness.metric("stemma_disk_loaded_pages_total"), 32);
  EXPECT_EQ(harness.metric("stemma_promotions_total"), 1);
}

// One runs at a time; what the others will need comes from the disk to host memory meanwhile.
TEST(Tiers, TextsOfWaitingRequestsAreBroughtAheadOfTheirTurn) {
  EngineOptions options = tiered_options(4, 160);
  options.kv.requests_max = 1;
  SimulatedTierOptions tiers = tiers_of(400, {Tier::kDisk});
  tiers.lanes.job_us_max = 1;
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  for (std::uint64_t text = 1; text < 5; ++text) {
    answer(harness, text, 130);
    settle(harness);
  }
  harness.restart();
  std::vector<RequestId> ids;
  for (std::uint64_t text = 1; text < 5; ++text) {
    ids.push_back(harness.submit(some_tokens(text, 130), 20));
  }
  harness.run();
  harness.expect_closed_form();
  EXPECT_EQ(harness.outcome(ids[0]).stats.brought.disk, 128) << "its turn came at once";
  EXPECT_EQ(harness.outcome(ids[2]).stats.brought.host, 128);
  EXPECT_EQ(harness.outcome(ids[3]).stats.brought.host, 128);
}

// Both wait; the one whose text host memory has goes first, though it came later.
TEST(Tiers, SchedulePoliciesCountWhatHostMemoryHas) {
  EngineOptions options = tiered_options(4, 160);
  options.kv.requests_max = 1;
  options.scheduler.policy = SchedulePolicy::kLpm;
  options.kv.tiers.load_wait_us = 0;  // else the other goes on meanwhile
  const SimulatedTierOptions tiers = tiers_of(400);
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  answer(harness, 1, 130);
  settle(harness);
  answer(harness, 2, 150);
  settle(harness);
  const RequestId busy = harness.submit(some_tokens(3, 20), 30);
  harness.step();
  const RequestId cold = harness.submit(some_tokens(4, 130), 4);
  const RequestId warm = harness.submit(some_tokens(1, 130), 4);
  while (harness.outcome(warm).finish == FinishReason::kNone && harness.step()) {
  }
  EXPECT_EQ(harness.outcome(busy).finish, FinishReason::kLength);
  EXPECT_EQ(harness.outcome(cold).finish, FinishReason::kNone);
  harness.run();
}

// The same, and host memory lost its text: the disk knows it.
TEST(Tiers, SchedulePoliciesCountWhatTheDiskHas) {
  EngineOptions options = tiered_options(4, 160);
  options.kv.requests_max = 1;
  options.scheduler.policy = SchedulePolicy::kLpm;
  SimulatedTierOptions tiers = tiers_of(400, {Tier::kDisk});
  tiers.faults.lookup_is_local = true;
  tiers.lanes.job_us_max = 0;
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  answer(harness, 1, 130);
  settle(harness);
  harness.restart();
  const RequestId busy = harness.submit(some_tokens(3, 20), 30);
  harness.step();
  const RequestId cold = harness.submit(some_tokens(4, 130), 4);
  for (std::uint64_t seed = 5; seed < 14; ++seed) {  // more than are prefetched
    harness.submit(some_tokens(seed, 130), 4);
  }
  const RequestId warm = harness.submit(some_tokens(1, 130), 4);
  while (harness.outcome(warm).finish == FinishReason::kNone && harness.step()) {
  }
  EXPECT_EQ(harness.outcome(busy).finish, FinishReason::kLength);
  EXPECT_EQ(harness.outcome(cold).finish, FinishReason::kNone);
  EXPECT_EQ(harness.outcome(warm).stats.brought.total(), 128);
  harness.run();
}

// More texts than there are tickets, and more pages than host memory has.
TEST(Tiers, WhatIsCachedSettlesBeforeTheEnd) {
  EngineOptions options = tiered_options(4, 1600);
  options.kv.tiers.write_policy = WritePolicy::kWriteThroughSelective;
  const SimulatedTierOptions tiers = tiers_of(100, {Tier::kDisk});
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  for (std::uint64_t text = 1; text <= 10; ++text) answer(harness, text, 130);
  EXPECT_EQ(harness.metric("stemma_stored_pages_total"), 0);
  harness.engine().settle(std::chrono::seconds(10));
  const std::int64_t lost = harness.metric("stemma_unbacked_pages_total");
  EXPECT_EQ(harness.metric("stemma_stored_pages_total") + lost, 10 * 33);
  EXPECT_GE(harness.metric("stemma_stored_pages_total"), 100);
  EXPECT_EQ(harness.engine().kv().usage().locked_tokens, 0);
  harness.restart();
  EXPECT_EQ(answer(harness, 1, 130).brought.disk, 128);
}

// The second shares a promotion with the first, whose text it shares but the beginning of. The
// store hangs, the first gives up waiting and is computed; what then holds its text must not hold
// up the second, which needs nearly every page.
TEST(Tiers, APromotionOfAnothersTextHoldsNoPagesThatAreLacked) {
  EngineOptions options = tiered_options(1, 15);
  options.kv.requests_max = 1;
  options.kv.context_tokens_max = 20;
  options.kv.tiers.load_wait_us = 5'000;
  options.kv.tiers.store_deadline_us = 86'400'000'000;
  SimulatedTierOptions tiers = tiers_of(60, {Tier::kRemote});
  tiers.faults.lookup_is_local = false;
  tiers.lanes.hang_percent = 100;
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  harness.submit({53, 29, 9, 1}, 1);
  const RequestId second = harness.submit(joined({53}, some_tokens(5, 14)), 1);
  for (int left = 10'000; left > 0 && harness.step(); --left) {
  }
  EXPECT_EQ(harness.outcome(second).finish, FinishReason::kLength);
  harness.expect_closed_form();
}

TEST(Tiers, ABitThatFlipsInHostMemoryIsNeverServed) {
  const SimulatedTierOptions tiers = tiers_of(64);
  StampHarness harness(tiered_options(4, 160), KvLayout::kLayerFirst, &tiers);
  answer(harness, 1, 130);
  settle(harness);
  for (std::int32_t page = 0; page < 64; ++page) {
    harness.tiers().host().layer_image(PageId(page), 1)[5] ^= std::byte{16};
  }
  answer(harness, 2, 150);
  answer(harness, 1, 130);
  EXPECT_GT(harness.metric("stemma_host_load_corrupt_pages_total"), 0);
  EXPECT_EQ(harness.metric("stemma_host_loaded_pages_total"), 0);
  EXPECT_GT(harness.metric("stemma_quarantined_subtrees_total"), 0);
}

class EveryFault : public ::testing::TestWithParam<FaultyStore::Faults> {};

TEST_P(EveryFault, CostsTimeNeverCorrectness) {
  for (std::uint64_t seed = 1; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    SimulatedTierOptions tiers = tiers_of(48, {Tier::kDisk, Tier::kRemote});
    tiers.faults = GetParam();
    tiers.lanes.seed = seed;
    StampHarness harness(tiered_options(4, 320), KvLayout::kLayerFirst, &tiers);
    for (int round = 0; round < 4; ++round) {
      for (std::uint64_t text = 1; text < 5; ++text) harness.submit(some_tokens(text, 130), 4);
      harness.run();
      harness.expect_closed_form();
      settle(harness);
      harness.restart();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Faults, EveryFault,
    ::testing::Values(FaultyStore::Faults{.read_fails = 30}, FaultyStore::Faults{.read_misses = 30},
                      FaultyStore::Faults{.read_flips = 30},
                      FaultyStore::Faults{.read_others = 30, .lookup_is_local = false},
                      FaultyStore::Faults{.write_fails = 30, .write_refuses = 20},
                      FaultyStore::Faults{.lookup_fails = 50, .lookup_is_local = false}));

TEST(Tiers, DamagedPagesAreRemovedAndStoredAgain) {
  SimulatedTierOptions tiers = tiers_of(64, {Tier::kDisk});
  StampHarness harness(tiered_options(4, 320), KvLayout::kLayerFirst, &tiers);
  answer(harness, 1, 130);
  settle(harness);
  harness.restart();
  harness.tiers().store(0).set_faults({.read_flips = 100});
  // A flip in the zeros between a frame's parts is of no consequence; all others are found.
  answer(harness, 1, 130);
  const std::int64_t corrupt = harness.metric("stemma_disk_load_corrupt_pages_total");
  EXPECT_GT(corrupt, 0);
  harness.tiers().store(0).set_faults({});
  settle(harness);
  harness.restart();
  EXPECT_EQ(answer(harness, 1, 130).brought.disk, 128) << "what was removed was stored again";
  EXPECT_EQ(harness.metric("stemma_disk_load_corrupt_pages_total"), 0);
}

TEST(Tiers, AHungStoreCostsTheWaitAtMost) {
  SimulatedTierOptions tiers = tiers_of(64, {Tier::kDisk});
  EngineOptions options = tiered_options(4, 320);
  options.kv.tiers.store_deadline_us = 3'600'000'000;
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  answer(harness, 1, 130);
  settle(harness);
  SimulatedTierOptions hanging = tiers;
  hanging.lanes.hang_percent = 100;
  harness.tiers().set_lanes(hanging.lanes);
  harness.restart();
  const RequestStats stats = answer(harness, 1, 130);
  EXPECT_LE(stats.ttft_us, options.kv.tiers.load_wait_us + 1000);
  EXPECT_EQ(stats.brought.disk, 0);
}

// Loads that hang hold no page of the device (I6): what they would have filled is had by whoever
// computes, even where that needs all there is.
TEST(Tiers, AHungStoreHoldsNoPage) {
  SimulatedTierOptions tiers = tiers_of(64, {Tier::kDisk});
  EngineOptions options = tiered_options(4, 136);
  options.kv.tiers.store_deadline_us = 3'600'000'000;
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  answer(harness, 1, 130);
  settle(harness);
  SimulatedTierOptions hanging = tiers;
  hanging.lanes.hang_percent = 100;
  harness.tiers().set_lanes(hanging.lanes);
  harness.restart();
  const RequestStats stats = answer(harness, 1, 130);
  EXPECT_LE(stats.total_us, options.kv.tiers.load_wait_us + 1000);
  EXPECT_EQ(stats.brought.disk, 0);
}

// What is brought to host memory ahead of its turn, and lacks a page before it, is of no use to
// anybody: nobody computes that page there.
TEST(Tiers, APrefetchBehindAMissingPageEnds) {
  std::int64_t failed_pages = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    SimulatedTierOptions tiers = tiers_of(64, {Tier::kDisk});
    tiers.lanes.seed = seed;
    EngineOptions options = tiered_options(4, 640);
    options.kv.requests_max = 1;
    StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
    answer(harness, 1, 130);
    settle(harness);
    harness.restart();
    harness.submit(some_tokens(2, 130), 30);
    const RequestId later = harness.submit(some_tokens(1, 130), 4);
    harness.tiers().store(0).set_faults({.read_fails = 100});
    while (harness.metric("stemma_disk_load_failed_pages_total") == 0 && harness.step()) {
    }
    harness.tiers().store(0).set_faults({});
    EXPECT_TRUE(harness.engine().cancel(later).ok());
    harness.run();
    settle(harness);
    failed_pages += harness.metric("stemma_disk_load_failed_pages_total");
    EXPECT_EQ(harness.metric("stemma_host_arriving_pages"), 0);
  }
  EXPECT_GT(failed_pages, 0);
}

// Layer by layer: a step names pages that are still being copied up from host memory.
class Loan : public ::testing::Test {
 protected:
  static constexpr std::int64_t kCopyUs = 20'000;

  // Text 1 is in host memory and not on the device; copies take their time.
  void open(bool by_layer, std::int64_t requests_max = 4) {
    EngineOptions options = tiered_options(4, 192);
    options.kv.requests_max = requests_max;
    options.kv.tiers.load_by_layer = by_layer;
    SimulatedTierOptions tiers = tiers_of(256);
    tiers.lanes.job_us_max = kCopyUs;
    harness_.emplace(options, KvLayout::kLayerFirst, &tiers);
    answer(*harness_, 1, 130);
    settle(*harness_);
    for (std::uint64_t other = 2; other < 5; ++other) answer(*harness_, other, 150);
    settle(*harness_);
  }

  std::optional<StampHarness> harness_;
};

TEST_F(Loan, AStepBeginsBeforeThePagesAreWhole) {
  open(true);
  const std::int64_t steps = harness_->steps();
  const RequestStats stats = answer(*harness_, 1, 130);
  EXPECT_EQ(harness_->steps() - steps, 4) << "the rest of the prompt at once, then an output each";
  EXPECT_EQ(harness_->metric("stemma_lent_pages_total"), 32);
  EXPECT_EQ(harness_->metric("stemma_void_loans_total"), 0);
  EXPECT_EQ(stats.cached_tokens, 128);
  EXPECT_EQ(stats.brought.host, 128);
  EXPECT_EQ(stats.computed_tokens, 2);
}

TEST_F(Loan, ARunnerThatCannotWaitByLayerGetsWholePages) {
  open(false);
  const std::int64_t steps = harness_->steps();
  const RequestStats stats = answer(*harness_, 1, 130);
  EXPECT_GT(harness_->steps() - steps, 4) << "first the pages come";
  EXPECT_EQ(harness_->metric("stemma_lent_pages_total"), 0);
  EXPECT_EQ(stats.brought.host, 128);
}

TEST_F(Loan, AStepThatReadAWrongPageIsVoid) {
  open(true);
  for (std::int32_t page = 0; page < 256; page += 3) {
    harness_->tiers().host().layer_image(PageId(page), 1)[5] ^= std::byte{16};
  }
  const RequestId beside = harness_->submit(some_tokens(9, 10), 20);
  harness_->step();
  const RequestStats stats = answer(*harness_, 1, 130);
  EXPECT_EQ(harness_->metric("stemma_void_loans_total"), 1);
  EXPECT_GT(harness_->metric("stemma_host_load_corrupt_pages_total"), 0);
  EXPECT_EQ(stats.cached_tokens + stats.computed_tokens, 130) << "what was not whole is computed";
  EXPECT_EQ(harness_->outcome(beside).finish, FinishReason::kLength) << "nobody fails for it";
}

TEST_F(Loan, TextsThatPartLaterBorrowTheSamePages) {
  open(true);
  const RequestId whole = harness_->submit(some_tokens(1, 130), 4);
  const RequestId parts = harness_->submit(joined(some_tokens(1, 66), some_tokens(77, 20)), 4);
  harness_->run();
  harness_->expect_closed_form();
  EXPECT_EQ(harness_->outcome(whole).stats.cached_tokens, 128);
  EXPECT_EQ(harness_->outcome(parts).stats.cached_tokens, 64);
  EXPECT_EQ(harness_->metric("stemma_promotions_total"), 1);
  EXPECT_GE(harness_->metric("stemma_lent_pages_total"), 32);
}

TEST_F(Loan, AFailedStepGivesBackWhatItBorrowed) {
  open(true);
  const RequestId id = harness_->submit(some_tokens(1, 130), 4);
  harness_->model().fail_next_step();
  harness_->run();
  EXPECT_EQ(harness_->outcome(id).finish, FinishReason::kFailed);
  EXPECT_EQ(harness_->engine().kv().usage().locked_tokens, 0);
  EXPECT_EQ(answer(*harness_, 1, 130).cached_tokens, 128) << "and what came is there";
}

// Cancelled at every step of its life, loads included: pages come back, each once.
TEST(Tiers, CancelAtEveryStepOfALoad) {
  for (std::int64_t cancel_step = 0; cancel_step < 60; ++cancel_step) {
    SCOPED_TRACE(cancel_step);
    const SimulatedTierOptions tiers = tiers_of(64, {Tier::kDisk});
    StampHarness harness(tiered_options(4, 320), KvLayout::kLayerFirst, &tiers);
    answer(harness, 1, 130);
    settle(harness);
    harness.restart();
    const RequestId id = harness.submit(some_tokens(1, 130), 4);
    for (std::int64_t step = 0; step < cancel_step && harness.step(); ++step) {
    }
    EXPECT_TRUE(harness.engine().cancel(id).ok());
    harness.run();
    settle(harness);
    EXPECT_EQ(harness.engine().audit(), std::nullopt);
    EXPECT_EQ(harness.engine().kv().usage().locked_tokens, 0);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace stemma
