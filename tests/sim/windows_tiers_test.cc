// Windowed pages below the device, over the stamp model: a text that was pushed out can be gone on
// from where its window is in host memory or a store, and is brought no further than that. What is
// damaged, lost, late or pushed out below costs time alone.
#include <gtest/gtest.h>

#include <tuple>

#include "sim/tiered_harness.h"
#include "sim/windowed_options.h"

namespace stemma {
namespace {

// A device that is full with one text, and windows for one request.
EngineOptions small_device(std::int64_t page_size, std::int64_t window_tokens) {
  EngineOptions options = windowed_options(page_size, window_tokens);
  options.kv.pages = 192 / page_size;
  options.kv.windowed_pages = windowed_pages_max(window_tokens, page_size, 20) + 2;
  options.kv.tiers.write_policy = WritePolicy::kWriteThrough;
  options.kv.tiers.load_pages_max = 4;
  return options;
}

void push_out(StampHarness& harness) {
  for (std::uint64_t other = 2; other < 5; ++other) answer(harness, other, 150);
  settle(harness);
}

using Case = std::tuple<std::int64_t, std::int64_t>;
class EveryWindowBelow : public ::testing::TestWithParam<Case> {};

TEST_P(EveryWindowBelow, WhatWasPushedOutComesBackWithItsWindow) {
  const auto& [page_size, window_tokens] = GetParam();
  const SimulatedTierOptions tiers = tiers_of(1024 / page_size);
  StampHarness harness(small_device(page_size, window_tokens), KvLayout::kLayerFirst, &tiers);
  answer(harness, 1, 130);
  settle(harness);
  push_out(harness);
  const RequestStats stats = answer(harness, 1, 130);
  EXPECT_EQ(stats.cached_tokens, 129 / page_size * page_size);
  EXPECT_GT(stats.brought.host, 0);
  EXPECT_GT(harness.metric("stemma_windowed_backed_up_pages_total"), 0);
  EXPECT_GT(harness.metric("stemma_windowed_loaded_pages_total"), 0);
}

INSTANTIATE_TEST_SUITE_P(PagesAndWindows, EveryWindowBelow,
                         ::testing::Combine(::testing::Values(1, 3, 16),
                                            ::testing::Values(2, 7, 32, 1000)));

class EveryStoreBelow : public ::testing::TestWithParam<Tier> {};

// The disk says from memory what it has.
SimulatedTierOptions store_below(std::int64_t host_pages, Tier store) {
  SimulatedTierOptions tiers = tiers_of(host_pages, {store});
  tiers.faults.lookup_is_local = store == Tier::kDisk;
  return tiers;
}

EngineOptions stored_at_once() {
  EngineOptions options = windowed_options(4, 16);
  options.kv.tiers.write_policy = WritePolicy::kWriteThrough;
  return options;
}

TEST_P(EveryStoreBelow, WhatWasStoredIsGoneOnFromAfterARestart) {
  const SimulatedTierOptions tiers = store_below(128, GetParam());
  StampHarness harness(stored_at_once(), KvLayout::kLayerFirst, &tiers);
  answer(harness, 1, 130);
  settle(harness);
  harness.restart();
  const RequestStats stats = answer(harness, 1, 130);
  EXPECT_EQ(stats.cached_tokens, 128);
  EXPECT_EQ(GetParam() == Tier::kDisk ? stats.brought.disk : stats.brought.remote, 128);
}

// The device has windowed pages for one request, and those of the one before are still copied down.
TEST_P(EveryStoreBelow, AWindowComesThoughCopiesDownHoldTheRoom) {
  const SimulatedTierOptions tiers = store_below(2048, GetParam());
  StampHarness harness(stored_at_once(), KvLayout::kLayerFirst, &tiers);
  for (std::uint64_t seed = 1; seed < 25; ++seed) {
    answer(harness, seed, 130);
    settle(harness);
  }
  harness.engine().settle(std::chrono::hours(1));
  harness.restart();
  for (std::uint64_t seed = 1; seed < 25; ++seed) {
    EXPECT_EQ(answer(harness, seed, 130).cached_tokens, 128) << "text " << seed;
  }
}

// Far more comes at once than a store is given at once; then nobody comes any more.
TEST_P(EveryStoreBelow, ASlowOneHasEveryWindowInTheEnd) {
  SimulatedTierOptions tiers = store_below(4096, GetParam());
  tiers.lanes.store_job_us_max = 20'000;
  StampHarness harness(stored_at_once(), KvLayout::kLayerFirst, &tiers);
  for (std::uint64_t seed = 1; seed < 25; ++seed) {
    answer(harness, seed, 130);
    settle_host(harness);
  }
  EXPECT_GT(harness.metric("stemma_owed_pages"), 0);
  harness.engine().settle(std::chrono::hours(1));
  EXPECT_EQ(harness.metric("stemma_owed_pages"), 0);
  EXPECT_EQ(harness.metric("stemma_unstored_pages_total"), 0);
  const std::int64_t windowed = harness.metric("stemma_windowed_backed_up_pages_total");
  EXPECT_GE(windowed, 24);
  EXPECT_GE(harness.metric("stemma_stored_pages_total"),
            harness.metric("stemma_backed_up_pages_total") + windowed);
  harness.tiers().set_lanes({});
  harness.restart();
  for (std::uint64_t seed = 1; seed < 25; ++seed) answer(harness, seed, 130);
  EXPECT_GT(harness.metric("stemma_windowed_loaded_pages_total"), 0);
}

INSTANTIATE_TEST_SUITE_P(Stores, EveryStoreBelow, ::testing::Values(Tier::kDisk, Tier::kRemote));

// Far more ends at once than host memory is given at once; then nobody comes any more. Each text
// has a window where its prompt ends, of 4 pages and one before, and one where it ends itself,
// 3 pages on.
TEST(WindowsBelow, ASlowCopyDownHasEveryWindowInTheEnd) {
  EngineOptions options = stored_at_once();
  options.kv.pages = 2048;
  options.kv.windowed_pages = 1024;
  SimulatedTierOptions tiers = tiers_of(2048);
  tiers.lanes.job_us_max = 20'000;
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  for (std::uint64_t seed = 1; seed < 25; ++seed) harness.submit(some_tokens(seed, 129), 12);
  harness.run();
  EXPECT_GT(harness.metric("stemma_owed_backup_pages"), 24 * 5);
  settle(harness);
  EXPECT_EQ(harness.metric("stemma_owed_backup_pages"), 0);
  EXPECT_EQ(harness.metric("stemma_unbacked_pages_total"), 0);
  EXPECT_EQ(harness.metric("stemma_windowed_backed_up_pages_total"), 24 * (5 + 3));
}

//   device   full     ├──────────────┤
//            windowed                      gone
//   host     windowed           ├────┤
TEST(WindowsBelow, AWindowAloneComesBackForATextThatIsStillThere) {
  EngineOptions options = small_device(4, 16);
  options.kv.pages = 400;
  const SimulatedTierOptions tiers = tiers_of(1600);
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  answer(harness, 1, 130);
  settle(harness);
  push_out(harness);
  EXPECT_EQ(harness.engine().totals().evicted_pages, 0);
  const RequestStats stats = answer(harness, 1, 130);
  EXPECT_EQ(stats.cached_tokens, 128);
  EXPECT_EQ(stats.brought.host, 0) << "none of its text had to come";
  EXPECT_EQ(harness.metric("stemma_windowed_loaded_pages_total"), 4);
}

// The window of the end is there, that of the place where the texts part is not.
TEST(WindowsBelow, ATextIsBroughtNoFurtherThanItCanBeGoneOnFrom) {
  EngineOptions options = small_device(4, 16);
  options.scheduler.chunk_tokens_max = 160;
  options.scheduler.step_tokens_max = 160;
  options.kv.windowed_pages = windowed_pages_max(16, 4, 160);
  const SimulatedTierOptions tiers = tiers_of(400);
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  answer(harness, 1, 130);
  settle(harness);
  push_out(harness);
  auto parts = some_tokens(1, 80);
  const RequestId id = harness.submit(joined(parts, some_tokens(9, 40)), 4);
  harness.run();
  harness.expect_closed_form();
  EXPECT_EQ(harness.outcome(id).stats.cached_tokens, 0);
  EXPECT_EQ(harness.metric("stemma_host_loaded_pages_total"), 0);
  EXPECT_GE(harness.metric("stemma_declined_pages_total"), 20);
}

TEST(WindowsBelow, AWrongWindowIsFoundAndComputedAgain) {
  const SimulatedTierOptions tiers = tiers_of(400);
  StampHarness harness(small_device(4, 16), KvLayout::kLayerFirst, &tiers);
  answer(harness, 1, 130);
  settle(harness);
  push_out(harness);
  HostPool& host = harness.tiers().windowed_host();
  for (std::int64_t page = 0; page < host.pages(); ++page) {
    host.layer_image(PageId(static_cast<std::int32_t>(page)), 0)[0] ^= std::byte{1};
  }
  const RequestStats stats = answer(harness, 1, 130);
  EXPECT_LT(stats.cached_tokens, 128);
  EXPECT_EQ(stats.stop, PrefixStop::kLoadError);
  EXPECT_GT(harness.metric("stemma_host_load_corrupt_pages_total"), 0);
}

// Whatever fails, and however short memory is above and below.
class WindowsUnderFaults : public ::testing::TestWithParam<int> {};

TEST_P(WindowsUnderFaults, AnswersAreTheClosedForm) {
  const auto seed = static_cast<std::uint64_t>(GetParam());
  Prng prng(seed);
  const std::int64_t page_size = 1 + prng.below(5);
  const std::int64_t window = 1 + prng.below(48);
  EngineOptions options = windowed_options(page_size, window);
  options.kv.pages = (180 + prng.below(200)) / page_size;
  options.kv.windowed_pages += prng.below(60 / page_size);
  options.kv.tiers.write_policy = static_cast<WritePolicy>(prng.below(3));
  options.kv.tiers.load_pages_max = 1 + prng.below(8);
  SimulatedTierOptions tiers = tiers_of((60 + prng.below(600)) / page_size);
  if (prng.below(3) > 0) tiers.stores.push_back(Tier::kDisk);
  if (prng.below(3) > 0) tiers.stores.push_back(Tier::kRemote);
  tiers.faults = {.read_fails = prng.below(10),
                  .read_misses = prng.below(10),
                  .read_flips = prng.below(10),
                  .read_others = prng.below(10),
                  .write_fails = prng.below(10),
                  .lookup_fails = prng.below(10),
                  .lookup_is_local = prng.below(2) == 0};
  tiers.lanes = {.job_us_max = 1 + prng.below(2000), .hang_percent = prng.below(4), .seed = seed};
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  for (int round = 0; round < 6; ++round) {
    submit_family(harness);
    for (std::int64_t i = prng.below(4); i >= 0; --i) {
      harness.submit(some_tokens(static_cast<std::uint64_t>(prng.below(6)), 1 + prng.below(140)),
                     1 + prng.below(12));
    }
    harness.run();
    harness.expect_closed_form();
    harness.clock().advance_us(prng.below(100'000));
    if (prng.below(3) == 0) harness.restart();
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, WindowsUnderFaults, ::testing::Range(0, 60));

}  // namespace
}  // namespace stemma
