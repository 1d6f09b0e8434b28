// What requests find below the device when they share its bringing, or lose it to others.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "prefix/event_mirror.h"
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

//   shared 24 | own 100, in host memory alone
//
// Nobody finds the second part before the first is there: of one place it is the first that gets
// it. Who does not wait would lose nearly all pages to the second, each time it asks.
TEST(LooksBelow, WhatAllShareComesBeforeWhatGoesOnFromIt) {
  EngineOptions options = small_engine(132);
  options.kv.tiers.promotions_max = 1;
  options.kv.tiers.load_wait_us = 0;
  SimulatedTierOptions tiers = tiers_of(256);
  tiers.lanes.job_us_max = 200;
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  RequestSpec spec;
  spec.prompt = some_tokens(1, 124);
  spec.max_tokens = 4;
  spec.shared_prefix = {.digest = {{255}}, .tokens = 24};
  harness.submit(spec);
  harness.run();
  settle(harness);
  answer(harness, 2, 124);
  settle(harness);
  const RequestId again = harness.submit(spec);
  harness.run();
  harness.expect_closed_form();
  EXPECT_EQ(harness.outcome(again).finish, FinishReason::kLength);
}

//   shared 24 | own 100, both in host memory
//
// The shared part is lent, and the first chunk computes the beginning of what goes on from it. That
// comes some steps later: sooner than half of it could be computed.
TEST(LooksBelow, WhatGoesOnFromWhatWasLentIsTakenInWhenItHasCome) {
  for (std::uint64_t seed = 1; seed < 9; ++seed) {
    EngineOptions options = small_engine(280);
    options.scheduler.chunk_tokens_max = 8;
    SimulatedTierOptions tiers = tiers_of(256);
    tiers.lanes.job_us_max = 4;
    tiers.lanes.seed = seed;
    StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
    RequestSpec spec;
    spec.prompt = some_tokens(1, 124);
    spec.max_tokens = 4;
    spec.shared_prefix = {.digest = {{255}}, .tokens = 24};
    harness.submit(spec);
    harness.run();
    settle(harness);
    for (std::uint64_t other = 2; other < 5; ++other) {
      answer(harness, other, 150);
      settle(harness);
    }
    const RequestId again = harness.submit(spec);
    harness.run();
    harness.expect_closed_form();
    EXPECT_GT(harness.metric("stemma_lent_pages_total"), 0);
    EXPECT_LE(harness.outcome(again).stats.computed_tokens, 50) << seed;
    EXPECT_EQ(harness.metric("stemma_promotions_total"), 2);
  }
}

//   1: prompt 60, output 130
//   2: prompt 60, output 80     is preempted, and loses the end of its prompt to host memory
//
// It computes that and its output again while the end of its prompt comes up.
TEST(LooksBelow, AnOutputThatIsComputedAgainStaysUnpublished) {
  EngineOptions options = small_engine(240);
  options.scheduler.publish_outputs = false;
  options.kv.tiers.load_by_layer = false;
  options.kv.tiers.load_wait_us = 0;
  SimulatedTierOptions tiers = tiers_of(256);
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  const RequestId first = harness.submit(some_tokens(1, 60), 130);
  while (harness.outcome(first).tokens.size() < 10 && harness.step()) {
  }
  const RequestId second = harness.submit(some_tokens(2, 60), 80);
  while (harness.outcome(first).finish == FinishReason::kNone && harness.step()) {
  }
  SimulatedLanes::Options slow = tiers.lanes;
  slow.job_us_max = 5'000;
  harness.tiers().set_lanes(slow);
  harness.run();
  harness.expect_closed_form();
  EXPECT_GT(harness.outcome(second).stats.preemptions, 0);
  EXPECT_EQ(harness.metric("stemma_promotions_total"), 1);
  EXPECT_EQ(harness.engine().kv().usage().total_tokens(), 120) << "both prompts";
}

// After a restart tenants come back one by one to their texts behind what they share. What comes up
// for each of them is told of by itself.
TEST(LooksBelow, EventsOfOneTenantDoNotTellEverythingAnew) {
  EngineOptions options = small_engine(1200);
  options.kv.events_pages_max = 1024;
  const SimulatedTierOptions tiers = tiers_of(256, {Tier::kDisk});
  StampHarness harness(options, KvLayout::kLayerFirst, &tiers);
  EventMirror mirror;
  const auto answer_tenant = [&](std::uint8_t tenant) {
    RequestSpec spec;
    spec.prompt = conversation(tenant);
    spec.max_tokens = 4;
    spec.namespace_digest.bytes[0] = tenant;
    spec.shared_prefix = {.digest = {{255}}, .tokens = 40};
    const RequestId id = harness.submit(std::move(spec));
    harness.run();
    harness.engine().drain_kv_events(mirror);
    return harness.outcome(id).stats.computed_tokens;
  };
  for (std::uint8_t tenant = 1; tenant < 5; ++tenant) answer_tenant(tenant);
  settle(harness);
  harness.restart();
  mirror = EventMirror();
  answer_tenant(1);
  const int told_anew = mirror.cleared_events;
  for (std::uint8_t tenant = 2; tenant < 5; ++tenant) EXPECT_EQ(answer_tenant(tenant), 2);
  EXPECT_EQ(mirror.cleared_events, told_anew);
  EXPECT_EQ(std::ssize(mirror.pages), harness.engine().kv().usage().total_tokens() / 4);
}

// Four texts that nobody shares, on a disk that has them alone.
class FewPlaces : public ::testing::Test {
 protected:
  FewPlaces() {
    options_.kv.tiers.promotions_max = 1;
    options_.kv.tiers.load_wait_us = 5'000;
    options_.kv.tiers.store_deadline_us = 3'600'000'000;
  }

  void open() {
    harness_ = std::make_unique<StampHarness>(options_, KvLayout::kLayerFirst, &tiers_);
    for (std::uint64_t text = 1; text < 5; ++text) answer(*harness_, text, 130);
    settle(*harness_);
    harness_->restart();
  }

  void hang() {
    SimulatedLanes::Options lanes = tiers_.lanes;
    lanes.hang_percent = 100;
    harness_->tiers().set_lanes(lanes);
  }

  std::vector<RequestId> submit_all() {
    std::vector<RequestId> ids;
    for (std::uint64_t text = 1; text < 5; ++text) {
      ids.push_back(harness_->submit(some_tokens(text, 130), 4));
    }
    return ids;
  }

  void run() {
    harness_->run();
    harness_->expect_closed_form();
  }
  RequestStats stats(RequestId id) const { return harness_->outcome(id).stats; }

  EngineOptions options_ = small_engine(1200);
  SimulatedTierOptions tiers_ = tiers_of(256, {Tier::kDisk});
  std::unique_ptr<StampHarness> harness_;
};

TEST_F(FewPlaces, WhoComesWhenAllAreTakenWaitsForOne) {
  for (const bool local : {true, false}) {
    tiers_.stores = {local ? Tier::kDisk : Tier::kRemote};
    tiers_.faults.lookup_is_local = local;
    open();
    const std::vector<RequestId> ids = submit_all();
    run();
    for (const RequestId id : ids) EXPECT_EQ(stats(id).computed_tokens, 2);
  }
}

TEST_F(FewPlaces, WhoWaitsForOneInVainHasWaitedForLongEnough) {
  open();
  hang();
  const std::vector<RequestId> ids = submit_all();
  run();
  for (const RequestId id : ids) {
    EXPECT_LE(stats(id).ttft_us, options_.kv.tiers.load_wait_us + 1000);
    EXPECT_EQ(stats(id).computed_tokens, 130);
  }
}

TEST_F(FewPlaces, NobodyWaitsForOneWhoHasNothingBelow) {
  open();
  hang();
  submit_all();
  const RequestId other = harness_->submit(some_tokens(9, 130), 4);
  run();
  EXPECT_LE(stats(other).ttft_us, 1000);
}

// A store that has to be asked may have anything, but of what could be found.
TEST_F(FewPlaces, NobodyWaitsForOneWhoseWholePagesAreOnTheDevice) {
  tiers_.stores = {Tier::kRemote};
  tiers_.faults.lookup_is_local = false;
  open();
  answer(*harness_, 9, 130);
  settle(*harness_);
  hang();
  submit_all();
  const RequestId there = harness_->submit(some_tokens(9, 130), 4);
  const RequestId less_than_a_page = harness_->submit(some_tokens(10, 3), 4);
  run();
  EXPECT_EQ(stats(there).computed_tokens, 2);
  EXPECT_LE(stats(there).ttft_us, 1000);
  EXPECT_LE(stats(less_than_a_page).ttft_us, 1000);
}

TEST_F(FewPlaces, WhoComputesForWantOfOneAsksBeforeEachChunk) {
  options_.kv.tiers.load_wait_us = 0;
  tiers_.lanes.job_us_max = 0;
  open();
  const std::vector<RequestId> ids = submit_all();
  run();
  EXPECT_GT(stats(ids[0]).brought.disk, 0);
  EXPECT_GT(stats(ids[1]).brought.disk, 0);
}

// Those that wait for the disk take what places there are for them.
TEST_F(FewPlaces, SomeAreLeftToTextsOfHostMemory) {
  options_.kv.tiers.promotions_max = 4;
  options_.kv.tiers.load_by_layer = false;
  options_.kv.pages = 400 / options_.kv.page_size;
  open();
  answer(*harness_, 5, 130);
  settle(*harness_);
  for (std::uint64_t other = 6; other < 9; ++other) answer(*harness_, other, 150);
  settle(*harness_);
  hang();
  submit_all();
  for (int i = 0; i < 4; ++i) harness_->step();
  const RequestId there = harness_->submit(some_tokens(5, 130), 4);
  run();
  EXPECT_EQ(stats(there).brought.host, 128);
  EXPECT_EQ(stats(there).computed_tokens, 2);
}

}  // namespace
}  // namespace stemma
