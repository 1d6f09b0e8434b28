// Covers steps that are planned while the one before them is computed: the same tokens as without,
// whoever comes, ends, is cancelled or fails meanwhile; and when nothing is planned ahead.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "base/thread_pool.h"
#include "engine/hash_model.h"
#include "engine/hash_prompts.h"
#include "engine/held_tiers.h"
#include "engine/late_runner.h"
#include "prefix/tree_listing.h"
#include "stemma/engine.h"
#include "tier/tier_stack.h"

namespace stemma {
namespace {

struct Answer {
  std::vector<TokenId> tokens;
  FinishReason finish = FinishReason::kNone;
  std::string error;

  bool operator==(const Answer&) const = default;
};

class EngineAhead : public ::testing::Test {
 protected:
  void open(bool queues, std::uint64_t seed = 1) {
    engine_.reset();
    model_ = HashModel();
    late_ = std::make_unique<LateRunner>(model_, HashModel::kVocab, seed);
    pool_ = HashModel::make_pool(options_.kv);
    Runner& runner = queues ? static_cast<Runner&>(*late_) : model_;
    if (host_pages_ > 0) open_tiers();
    auto engine = Engine::open(options_, {.runner = runner,
                                          .pools = {*pool_},
                                          .vocab_tokens = HashModel::kVocab,
                                          .clock = clock_,
                                          .lower_tiers = tiers_.get()});
    ASSERT_TRUE(engine.ok()) << to_string(engine.error());
    engine_ = std::move(engine).value();
    answers_.clear();
  }

  void open_tiers() {
    tiers_.reset();
    auto stack =
        TierStack::open({.host_bytes = host_pages_ * pool_->shape().layers * pool_->layer_bytes()},
                        *pool_, {}, threads_, clock_);
    ASSERT_TRUE(stack.ok()) << to_string(stack.error());
    stack_ = std::move(stack).value();
    tiers_ = std::make_unique<HeldTiers>(*stack_);
    options_.kv.tiers.write_policy = WritePolicy::kWriteThrough;
  }

  static RequestSpec spec(std::int64_t prompt_tokens, std::int64_t max_tokens) {
    RequestSpec out;
    out.prompt = hash_text(prompt_tokens);
    out.max_tokens = max_tokens;
    return out;
  }

  // One of several texts that begin alike, of any length, some of which want more than the
  // likeliest token.
  static RequestSpec drawn_spec(Prng& prng) {
    RequestSpec out = spec(1 + prng.below(60), 1 + prng.below(30));
    const auto differs_at = static_cast<std::size_t>(prng.below(80));
    if (differs_at < out.prompt.size()) out.prompt[differs_at] = 61;
    if (prng.below(3) == 0) out.stop_tokens = {5, 17, 33};
    if (prng.below(16) == 0) out.logprobs = 2;
    if (prng.below(2) == 0) out.sampling = drawn_sampling(prng);
    if (prng.below(16) == 0) out.copies = 2;
    return out;
  }

  static SamplingParams drawn_sampling(Prng& prng) {
    SamplingParams out;
    out.temperature = 0.5f + static_cast<float>(prng.below(40)) / 10;
    out.seed = prng();
    if (prng.below(3) == 0) out.top_k = 1 + prng.below(70);
    if (prng.below(3) == 0) out.top_p = 0.5f;
    if (prng.below(3) == 0) out.min_p = 0.1f;
    if (prng.below(8) == 0) out.frequency_penalty = 1;
    return out;
  }

  RequestId submit(RequestSpec spec) {
    const auto id = engine_->submit(std::move(spec));
    EXPECT_TRUE(id.ok()) << to_string(id.error());
    return id.ok() ? *id : RequestId();
  }

  void step() {
    clock_.advance_us(10);
    for (const EngineEvent& event : engine_->step().events) {
      Answer& answer = answers_[event.request];
      EXPECT_EQ(answer.finish, FinishReason::kNone) << "nothing comes after the end";
      if (event.token >= 0) answer.tokens.push_back(event.token);
      answer.finish = event.finish;
      answer.error = event.error.detail;
    }
    EXPECT_EQ(engine_->audit().value_or(""), "");
  }

  void run() {
    for (int left = 5'000; left > 0 && !engine_->idle(); --left) step();
    EXPECT_TRUE(engine_->idle());
    if (engine_->kv().transfers_underway()) return;
    EXPECT_EQ(engine_->kv().usage().locked_tokens, 0);
  }

  // One text of 60 tokens is in host memory alone afterwards; what was said to it.
  std::vector<TokenId> bring_down() {
    const RequestId text = submit(spec(60, 1));
    const std::vector<TokenId> said = answer_below(text);
    for (const TokenId first : {61, 62}) {
      RequestSpec filling = spec(98, 1);
      filling.prompt[0] = first;
      answer_below(submit(filling));
    }
    return said;
  }

  // Until all that can be is in host memory.
  std::vector<TokenId> answer_below(RequestId id) {
    run();
    while (engine_->kv().transfers_underway()) {
      tiers_->wait_copied();
      step();
    }
    return answers_[id].tokens;
  }

  // The answers to `requests` drawn requests, of which some come while others run.
  std::map<RequestId, Answer> answers_to(std::int64_t requests, std::uint64_t seed) {
    Prng prng(seed);
    for (std::int64_t i = 0; i < requests; ++i) {
      submit(drawn_spec(prng));
      for (std::int64_t steps = prng.below(12); steps > 0; --steps) step();
    }
    run();
    return answers_;
  }

  EngineOptions options_ = small_engine_options();
  SharedFakeClock clock_;
  ThreadPool threads_{1};
  HashModel model_;
  std::unique_ptr<LateRunner> late_;
  std::unique_ptr<KvPool> pool_;
  std::int64_t host_pages_ = 0;  // of tiers below
  std::unique_ptr<TierStack> stack_;
  std::unique_ptr<HeldTiers> tiers_;  // nullptr: none
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, Answer> answers_;
};

TEST_F(EngineAhead, StepsOfOneRequestFollowEachOtherWithoutAPause) {
  open(true);
  submit(spec(10, 20));
  run();
  EXPECT_EQ(engine_->totals().steps, 20);
  EXPECT_EQ(late_->queued_behind, 19);
}

TEST_F(EngineAhead, ChunksOfAPromptFollowEachOtherWithoutAPause) {
  open(true);
  submit(spec(60, 2));
  run();
  EXPECT_EQ(engine_->totals().steps, 5);  // 16, 16, 16, 12, an output
  EXPECT_EQ(late_->queued_behind, 4);
}

TEST_F(EngineAhead, TokensAreThoseOfStepsOneByOne) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    open(false);
    const auto wanted = answers_to(40, seed);
    open(true, seed);
    EXPECT_EQ(answers_to(40, seed), wanted) << "seed " << seed;
    EXPECT_GT(late_->queued_behind, engine_->totals().steps / 8);
  }
}

TEST_F(EngineAhead, TokensAreTheSameWherePagesAreShort) {
  options_.kv.pages = 26;
  for (const char* cache : {"radix", "none"}) {
    options_.kv.cache = cache;
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
      open(false);
      const auto wanted = answers_to(40, seed);
      open(true, seed);
      EXPECT_EQ(answers_to(40, seed), wanted) << cache << ", seed " << seed;
      EXPECT_GT(late_->queued_behind, 0);
    }
  }
}

// The pool is full of what is cached: pages are evicted a step before they are needed.
TEST_F(EngineAhead, AFullCacheMakesNoPause) {
  options_.kv.pages = 32;
  open(true);
  for (TokenId first = 0; first < 8; ++first) {
    RequestSpec filling = spec(30, 1);
    filling.prompt[0] = first;
    submit(filling);
    run();
  }
  const std::int64_t before = engine_->totals().steps;
  const std::int64_t behind = late_->queued_behind;
  RequestSpec fresh = spec(9, 60);
  fresh.prompt[0] = 50;
  submit(fresh);
  run();
  EXPECT_GT(engine_->totals().evicted_pages, 0);
  EXPECT_EQ(engine_->totals().steps - before, 60);
  EXPECT_EQ(late_->queued_behind - behind, 59);
}

TEST_F(EngineAhead, PagesThatAreCopiedDownMakeNoPause) {
  host_pages_ = 64;
  open(true);
  tiers_->holds = true;
  submit(spec(60, 20));
  run();
  EXPECT_TRUE(engine_->kv().transfers_underway());
  EXPECT_EQ(late_->queued_behind, engine_->totals().steps - 1);
  tiers_->holds = false;
}

TEST_F(EngineAhead, WhatHasBeenCopiedDownIsTakenWhileAStepIsComputed) {
  host_pages_ = 64;
  open(true);
  tiers_->holds = true;
  submit(spec(60, 40));
  for (int i = 0; i < 6; ++i) step();
  tiers_->holds = false;
  EXPECT_TRUE(engine_->kv().list_nodes(Tier::kHost, 10).nodes.empty());
  tiers_->wait_copied();
  step();
  EXPECT_FALSE(engine_->kv().list_nodes(Tier::kHost, 10).nodes.empty());
  run();
  EXPECT_EQ(late_->queued_behind, engine_->totals().steps - 1);
}

// A copy holds what it reads: who waits for these pages gets them when it has landed.
TEST_F(EngineAhead, PagesThatACopyLetsGoAreForWhoWaits) {
  host_pages_ = 64;
  options_.kv.pages = 32;
  open(true);
  tiers_->holds = true;
  submit(spec(60, 1));
  run();
  RequestSpec running = spec(8, 60);
  running.prompt[0] = 61;
  const RequestId other = submit(running);
  for (int i = 0; i < 4; ++i) step();
  RequestSpec waits = spec(60, 2);
  waits.prompt[0] = 62;
  const RequestId waiting = submit(waits);
  for (int i = 0; i < 8; ++i) step();
  EXPECT_TRUE(answers_[waiting].tokens.empty()) << "there is no page for it";
  tiers_->holds = false;
  tiers_->wait_copied();
  for (int i = 0; i < 6; ++i) step();
  EXPECT_FALSE(answers_[waiting].tokens.empty());
  EXPECT_EQ(answers_[other].finish, FinishReason::kNone);
  run();
}

class EngineAheadBesidePromotions : public EngineAhead {
 protected:
  EngineAheadBesidePromotions() {
    host_pages_ = 128;
    options_.kv.pages = 40;
    options_.kv.tiers.load_by_layer = false;  // else it is lent at once
    options_.kv.tiers.load_wait_us = 1'000'000'000;
  }

  // Somebody's answer goes on while another waits for what is in host memory.
  void open_with_one_who_waits() {
    open(true);
    said_ = bring_down();
    RequestSpec running = spec(8, 60);
    running.prompt[0] = 60;
    runs_ = submit(running);
    for (int i = 0; i < 4; ++i) step();
    tiers_->holds = true;
    waits_ = submit(spec(60, 2));
    for (int i = 0; i < 3; ++i) step();
  }

  void TearDown() override {
    tiers_->holds = false;
    run();
    EXPECT_EQ(answers_[runs_].tokens.size(), 60u);
    ASSERT_EQ(answers_[waits_].tokens.size(), 2u);
    EXPECT_EQ(answers_[waits_].tokens.front(), said_.front());
  }

  // Steps in which another was queued behind.
  std::int64_t followed(int steps) {
    const std::int64_t before = late_->queued_behind;
    for (int i = 0; i < steps; ++i) step();
    return late_->queued_behind - before;
  }
  bool still_waits() { return answers_[waits_].tokens.empty(); }

  RequestId runs_;
  RequestId waits_;
  std::vector<TokenId> said_;  // to the text of who waits
};

TEST_F(EngineAheadBesidePromotions, WhoWaitsForPagesMakesNobodyElsePause) {
  open_with_one_who_waits();
  EXPECT_EQ(followed(10), 10);
  EXPECT_TRUE(still_waits());
}

TEST_F(EngineAheadBesidePromotions, WhoWaitedRunsWhenHisPagesHaveCome) {
  open_with_one_who_waits();
  followed(10);
  const std::int64_t computed_before = model_.computed_rows;
  tiers_->holds = false;
  tiers_->wait_copied();
  for (int i = 0; i < 4; ++i) step();
  EXPECT_FALSE(still_waits());
  EXPECT_LT(model_.computed_rows - computed_before, 20) << "his prompt came from host memory";
  EXPECT_EQ(answers_[runs_].finish, FinishReason::kNone);
}

// What it publishes may be what is waited for.
TEST_F(EngineAheadBesidePromotions, APromptIsComputedWithPausesWhileSomebodyWaits) {
  options_.scheduler.chunk_tokens_max = 4;
  open_with_one_who_waits();
  RequestSpec prompt = spec(16, 1);
  prompt.prompt[0] = 59;
  const RequestId computes = submit(prompt);
  step();  // it comes
  EXPECT_EQ(followed(4), 0);
  EXPECT_EQ(answers_[computes].finish, FinishReason::kLength);
  EXPECT_TRUE(still_waits());
}

TEST_F(EngineAheadBesidePromotions, WhoHasWaitedForLongEnoughComputes) {
  options_.kv.tiers.load_wait_us = 200;
  open_with_one_who_waits();
  EXPECT_GT(followed(10), 0);
  EXPECT_TRUE(still_waits());
  for (int i = 0; i < 20; ++i) step();
  EXPECT_FALSE(still_waits());
  EXPECT_EQ(answers_[runs_].finish, FinishReason::kNone);
}

TEST_F(EngineAheadBesidePromotions, WhoWaitsForWhatIsPurgedComputes) {
  open_with_one_who_waits();
  followed(4);
  ASSERT_TRUE(engine_->purge({}).ok());
  for (int i = 0; i < 10; ++i) step();
  EXPECT_FALSE(still_waits());
  EXPECT_EQ(answers_[runs_].finish, FinishReason::kNone);
}

// Behind him another waits for pages, which nobody lets go.
TEST_F(EngineAhead, WhoWaitsForAPromptThatOthersComputeRunsWhenItIsThere) {
  options_.kv.pages = 40;
  open(true);
  const RequestId leads = submit(spec(60, 40));
  step();
  const RequestId follows = submit(spec(62, 2));
  RequestSpec large = spec(99, 1);
  large.prompt[0] = 61;
  const RequestId lacks_pages = submit(large);
  while (answers_[leads].tokens.empty()) step();
  for (int i = 0; i < 4; ++i) step();
  EXPECT_FALSE(answers_[follows].tokens.empty());
  EXPECT_TRUE(answers_[lacks_pages].tokens.empty());
  run();
}

// What the step behind it computes of a request that has ended is nobody's, and its pages are given
// to others only after it.
TEST_F(EngineAhead, AStopTokenEndsARequestThatIsComputedFurther) {
  open(false);
  const RequestId whole = submit(spec(10, 12));
  run();
  const std::vector<TokenId> tokens = answers_[whole].tokens;
  open(true);
  RequestSpec stopped = spec(10, 12);
  stopped.stop_tokens = {tokens[4]};
  const RequestId id = submit(stopped);
  const RequestId other = submit(spec(20, 12));
  run();
  const auto first = std::find(tokens.begin(), tokens.end(), tokens[4]);
  EXPECT_THAT(answers_[id].tokens, ::testing::ElementsAreArray(tokens.begin(), first + 1));
  EXPECT_EQ(answers_[id].finish, FinishReason::kStop);
  EXPECT_EQ(answers_[other].tokens.size(), 12u);
}

TEST_F(EngineAhead, ARequestMayEndBetweenStepsWhileItIsComputed) {
  for (const FinishReason reason : {FinishReason::kStop, FinishReason::kCancelled}) {
    open(true);
    const RequestId id = submit(spec(10, 50));
    const RequestId other = submit(spec(21, 12));
    step();
    step();
    ASSERT_TRUE(engine_->stop(id, reason).has_value());
    const RequestId next = submit(spec(10, 50));  // may get its place
    run();
    EXPECT_EQ(answers_[id].tokens.size(), 2u);
    EXPECT_EQ(answers_[other].tokens.size(), 12u);
    EXPECT_EQ(answers_[next].tokens.size(), 50u);
  }
}

TEST_F(EngineAhead, ACancelTakesEffectAStepLaterAtMost) {
  open(true);
  const RequestId id = submit(spec(10, 50));
  step();
  step();
  ASSERT_TRUE(engine_->cancel(id).ok());
  step();
  step();
  EXPECT_EQ(answers_[id].finish, FinishReason::kCancelled);
  EXPECT_LE(answers_[id].tokens.size(), 3u);
}

TEST_F(EngineAhead, AStepThatFailsTakesItsRequestsOutOfTheOneBehindIt) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    open(true, seed);
    const RequestId id = submit(spec(9, 20));
    step();
    step();
    model_.fails_next = true;
    run();
    EXPECT_EQ(answers_[id].finish, FinishReason::kFailed);
    EXPECT_EQ(answers_[id].error, "out of order");
    const RequestId again = submit(spec(9, 20));
    run();
    EXPECT_EQ(answers_[again].finish, FinishReason::kLength);
  }
}

TEST_F(EngineAhead, AStepThatIsNotTakenFailsItsRequestsAlone) {
  std::int64_t failed = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    open(false);
    const auto wanted = answers_to(20, seed);
    open(true, seed);
    late_->refused_permille = 30;
    for (const auto& [id, answer] : answers_to(20, seed)) {
      if (answer.finish == FinishReason::kFailed) {
        EXPECT_EQ(answer.error, "no room");
        ++failed;
      } else if (wanted.at(id).finish == answer.finish) {
        EXPECT_EQ(wanted.at(id), answer);
      }
    }
  }
  EXPECT_GT(failed, 0);
}

// Rows before the broken one may be wrong as well: nothing of its step is for the cache.
TEST_F(EngineAhead, ARequestWithABrokenRowEndsAndPublishesNothingOfItsStep) {
  open(true);
  late_->breaking = 62;
  RequestSpec broken = spec(40, 4);
  broken.prompt[30] = 62;
  const RequestId ends = submit(broken);
  const RequestId goes_on = submit(spec(7, 30));
  for (int i = 0; i < 5; ++i) step();
  late_->breaking = -1;
  run();
  EXPECT_EQ(answers_[ends].finish, FinishReason::kFailed);
  EXPECT_EQ(answers_[ends].error, "the model computed values that are no numbers");
  EXPECT_TRUE(answers_[ends].tokens.empty());
  EXPECT_EQ(answers_[goes_on].finish, FinishReason::kLength);
  RequestSpec again = spec(40, 1);
  again.prompt[39] = 61;
  submit(again);
  const std::int64_t cached_before = engine_->totals().cached_tokens;
  run();
  EXPECT_EQ(engine_->totals().cached_tokens - cached_before, 16) << "of the step before";
}

TEST_F(EngineAhead, OutputsThatAreNotWhatWasAskedForFailTheirStep) {
  const std::vector<TokenId> beyond = {TokenId{HashModel::kVocab}};
  const std::vector<std::int32_t> of_three_rows = {0, 0, 0};
  const std::pair<std::string, std::function<void(StepOutputs&)>> cases[] = {
      {"the model gave 0 tokens instead of 1", [](StepOutputs& given) { given.tokens = {}; }},
      {"the model looked at 3 rows instead of 10",
       [&](StepOutputs& given) { given.broken_rows = of_three_rows; }},
      {"the model gave logits of which none is a number",
       [&](StepOutputs& given) { given.tokens = beyond; }}};
  for (const auto& [error, spoil] : cases) {
    open(true);
    late_->spoil = spoil;
    const RequestId id = submit(spec(10, 2));
    run();
    EXPECT_EQ(answers_[id].finish, FinishReason::kFailed);
    EXPECT_EQ(answers_[id].error, error);
  }
}

TEST_F(EngineAhead, NoStopTokenIsChosenBeforeMinTokens) {
  open(false);
  const RequestId whole = submit(spec(10, 12));
  run();
  RequestSpec stopped = spec(10, 12);
  stopped.stop_tokens = {answers_[whole].tokens[1]};
  stopped.min_tokens = 6;
  std::vector<Answer> answers;
  for (const bool queues : {false, true}) {
    open(queues);
    const RequestId id = submit(stopped);
    run();
    answers.push_back(answers_[id]);
  }
  EXPECT_GE(answers[1].tokens.size(), 6u);
  EXPECT_EQ(answers[1], answers[0]);
}

TEST_F(EngineAhead, TokensThatTheRunnerDrawsMakeNoPause) {
  open(true);
  RequestSpec drawn = spec(10, 20);
  drawn.sampling.temperature = 1;
  drawn.sampling.seed = 3;
  drawn.logprobs = 1;
  submit(drawn);
  run();
  EXPECT_EQ(late_->queued_behind, 19);
}

TEST_F(EngineAhead, TokensThatTheEngineDrawsAreWaitedFor) {
  RequestSpec penalised = spec(10, 20);
  penalised.sampling.presence_penalty = 1;
  RequestSpec drawn = spec(10, 20);
  drawn.sampling.temperature = 1;
  for (const auto& [wanted, can_draw] : {std::pair(penalised, true), std::pair(drawn, false)}) {
    open(true);
    late_->can_draw = can_draw;
    submit(wanted);
    run();
    EXPECT_EQ(late_->queued_behind, 0);
  }
}

TEST_F(EngineAhead, WhatIsPurgedWhileAStepIsComputedIsFoundNoMore) {
  open(true);
  const RequestId id = submit(spec(30, 20));
  step();
  step();
  ASSERT_TRUE(engine_->purge({}).ok());
  run();
  EXPECT_EQ(answers_[id].tokens.size(), 20u);
  EXPECT_EQ(engine_->kv().usage().evictable_tokens, 0);
}

TEST_F(EngineAhead, AnEngineThatGoesWaitsForItsStep) {
  open(true);
  submit(spec(10, 50));
  step();
  step();
  engine_.reset();
  EXPECT_EQ(model_.computed_rows, 10 + 2);
}

TEST_F(EngineAhead, SettlingWaitsForItsStep) {
  open(true);
  late_->computes_early = false;
  submit(spec(10, 50));
  step();
  step();
  EXPECT_EQ(model_.computed_rows, 10 + 1);
  engine_->settle(std::chrono::seconds(1));
  EXPECT_EQ(model_.computed_rows, 10 + 2);
}

TEST_F(EngineAhead, NothingIsPlannedAheadWhereThatIsNotWished) {
  options_.plan_ahead = false;
  open(true);
  submit(spec(10, 20));
  run();
  EXPECT_EQ(late_->queued_behind, 0);
}

}  // namespace
}  // namespace stemma
