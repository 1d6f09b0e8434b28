// Write-back over the stamp model: what is cold is copied ahead of eviction, and nothing over and
// over.
#include <gtest/gtest.h>

#include "sim/tiered_harness.h"

namespace stemma {
namespace {

EngineOptions write_back_options(std::int64_t page_size, std::int64_t pool_tokens) {
  EngineOptions options = tiered_options(page_size, pool_tokens);
  options.kv.tiers.write_policy = WritePolicy::kWriteBack;
  return options;
}

TEST(WriteBack, CopiesAheadOfEviction) {
  EngineOptions options = write_back_options(4, 320);
  options.kv.tiers.demote_ahead_pages = 60;
  const SimulatedTierOptions tiers = tiers_of(400);
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  for (std::uint64_t seed = 1; seed < 6; ++seed) {
    answer(harness, seed, 130);
    settle(harness);
  }
  EXPECT_GT(harness.engine().totals().evicted_pages, 0);
  const RequestStats stats = answer(harness, 1, 130);
  EXPECT_EQ(stats.cached_tokens, 128) << "nothing was lost";
  EXPECT_GT(stats.brought.host, 0);
}

// What is waited for goes last, but it goes.
TEST(WriteBack, CopiesWhatIsWaitedForWhereThereIsNothingElse) {
  EngineOptions options = write_back_options(4, 320);
  options.kv.requests_max = 1;
  SimulatedTierOptions tiers = tiers_of(400);
  tiers.lanes.job_us_max = 1;
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  answer(harness, 1, 128);
  answer(harness, 2, 128);
  EXPECT_EQ(harness.metric("stemma_backed_up_pages_total"), 0) << "there is room";
  harness.submit(some_tokens(4, 8), 4);  // the others wait while it runs
  harness.submit(some_tokens(3, 150), 8);
  harness.submit(some_tokens(1, 130), 4);
  harness.submit(some_tokens(2, 130), 4);
  while (harness.engine().totals().evicted_pages < 10 && harness.step()) {
  }
  EXPECT_EQ(harness.metric("stemma_backed_up_pages_total"), 2 + 32) << "text 4, then text 2";
  harness.run();
  harness.expect_closed_form();
}

TEST(WriteBack, SharesWhatIsUsedTwiceThroughPageStores) {
  for (const bool stores : {false, true}) {
    EngineOptions options = write_back_options(4, 320);
    const SimulatedTierOptions tiers = stores ? tiers_of(64, {Tier::kRemote}) : tiers_of(64);
    StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
    answer(harness, 1, 130);
    settle(harness);
    EXPECT_EQ(harness.metric("stemma_backed_up_pages_total"), 0);
    answer(harness, 1, 130);
    settle(harness);
    EXPECT_EQ(harness.metric("stemma_backed_up_pages_total"), stores ? 32 : 0);
  }
}

// A tenant whose requests have all ended keeps its pages as others do: they are copied ahead too.
TEST(WriteBack, CopiesWhatNoOpenRequestIsOf) {
  EngineOptions options = write_back_options(4, 320);
  options.kv.tiers.demote_ahead_pages = 80;
  const SimulatedTierOptions tiers = tiers_of(64);
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  for (std::uint64_t seed = 1; seed < 3; ++seed) {
    RequestSpec spec;
    spec.prompt = some_tokens(seed, 40);
    spec.max_tokens = 1;
    spec.namespace_digest.bytes[0] = static_cast<std::uint8_t>(seed);
    harness.submit(std::move(spec));
    harness.run();
  }
  settle(harness);
  EXPECT_EQ(harness.metric("stemma_backed_up_pages_total"), 20);
}

// A step evicts many of them at once.
TEST(WriteBack, CopiesManySmallTextsAhead) {
  EngineOptions options = write_back_options(4, 320);
  options.kv.tiers.demote_ahead_pages = 80;
  const SimulatedTierOptions tiers = tiers_of(128);
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) answer(harness, seed, 9);  // 3 pages
  settle(harness);
  EXPECT_EQ(harness.metric("stemma_backed_up_pages_total"), 60);
}

// Where host memory is too small for what is to be copied ahead, copies would chase each other for
// ever, and lock what they copy.
TEST(WriteBack, NothingIsCopiedAheadOverAndOver) {
  EngineOptions options = write_back_options(4, 320);
  options.kv.tiers.demote_ahead_pages = 1000;
  const SimulatedTierOptions tiers = tiers_of(15);
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  for (std::uint64_t seed = 1; seed < 6; ++seed) answer(harness, seed, 42);
  settle(harness);
  const std::int64_t copied = harness.metric("stemma_backed_up_pages_total");
  EXPECT_GT(copied, 0);
  settle(harness);
  EXPECT_EQ(harness.metric("stemma_backed_up_pages_total"), copied);
  EXPECT_EQ(harness.engine().kv().usage().locked_tokens, 0);
}

// One page in eight is one where there are fewer.
TEST(WriteBack, CopiesAheadInThePoolOfOneRequest) {
  const EngineOptions options = write_back_options(16, 96);
  const SimulatedTierOptions tiers = tiers_of(64);
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  for (std::uint64_t seed = 1; seed < 4; ++seed) {
    answer(harness, seed, 60);
    settle(harness);
  }
  EXPECT_GT(harness.engine().totals().evicted_pages, 0);
  EXPECT_GT(answer(harness, 1, 60).brought.host, 0);
}

}  // namespace
}  // namespace stemma
