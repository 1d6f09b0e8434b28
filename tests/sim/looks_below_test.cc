// What requests find below the device when they share its bringing, or lose it to others.
#include <gtest/gtest.h>

#include <vector>

#include "sim/tiered_harness.h"

namespace stemma {
namespace {

EngineOptions small_engine(std::int64_t pool_tokens) {
  EngineOptions options;
  options.kv.page_size = 4;
  options.kv.pages = pool_tokens / options.kv.page_size;
  options.kv.requests_max = 8;
  options.kv.context_tokens_max = 192;
  options.kv.tiers.write_policy = WritePolicy::kWriteThrough;
  options.kv.tiers.load_wait_us = 1'000'000'000;
  options.scheduler.step_tokens_max = 48;
  options.scheduler.chunk_tokens_max = 20;
  options.inbox_max = 64;
  return options;
}

// 40 tokens that all share, and 90 of its own.
std::vector<TokenId> conversation(std::uint64_t seed) {
  std::vector<TokenId> tokens = some_tokens(100, 40);
  const std::vector<TokenId> own = some_tokens(seed, 90);
  tokens.insert(tokens.end(), own.begin(), own.end());
  return tokens;
}

//   shared 40 | 1: 90
//             | 2: 90      they come at once; who is first brings the shared ones
//             | 3: 90
TEST(LooksBelow, TextsThatBeginAlikeComeBackEachToItsEnd) {
  for (const Tier tier : {Tier::kDisk, Tier::kRemote}) {
    SimulatedTierOptions tiers = tiers_of(256, {tier});
    tiers.faults.lookup_is_local = tier == Tier::kDisk;
    StampHarness harness(small_engine(800), KvLayout::kLayerFirst, &tiers);
    for (std::uint64_t seed = 1; seed < 4; ++seed) {
      harness.submit(conversation(seed), 4);
      harness.run();
    }
    settle(harness);
    harness.restart();
    std::vector<RequestId> ids;
    for (std::uint64_t seed = 1; seed < 4; ++seed) {
      ids.push_back(harness.submit(conversation(seed), 4));
    }
    harness.run();
    harness.expect_closed_form();
    for (const RequestId id : ids) EXPECT_EQ(harness.outcome(id).stats.computed_tokens, 2);
  }
}

// One that runs takes the pages that were to be filled for one that waits.
TEST(LooksBelow, WhatWasGivenUpForOthersIsAskedForAgain) {
  EngineOptions options = small_engine(240);
  options.kv.tiers.load_by_layer = false;
  SimulatedTierOptions tiers = tiers_of(256);
  tiers.lanes.job_us_max = 5'000;
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  answer(harness, 1, 130);
  settle(harness);
  for (std::uint64_t other = 2; other < 5; ++other) {
    answer(harness, other, 150);
    settle(harness);
  }
  const RequestId running = harness.submit(some_tokens(5, 100), 60);
  while (harness.outcome(running).tokens.empty() && harness.step()) {
  }
  const RequestId waiting = harness.submit(some_tokens(1, 130), 4);
  harness.run();
  harness.expect_closed_form();
  EXPECT_EQ(harness.outcome(waiting).stats.computed_tokens, 2);
  EXPECT_EQ(harness.metric("stemma_promotions_total"), 2);
}

}  // namespace
}  // namespace stemma
