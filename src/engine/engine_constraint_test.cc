// Covers outputs that keep to a constraint: every token does, ends wait for it, and what is written
// depends on nothing else than before.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "engine/constraint_queue.h"
#include "engine/costly_constraint.h"
#include "engine/hash_model.h"
#include "engine/hash_prompts.h"
#include "engine/late_runner.h"
#include "stemma/engine.h"

namespace stemma {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class EngineConstraint : public ::testing::Test {
 protected:
  void open(bool queues = false, std::uint64_t seed = 1) {
    engine_.reset();
    model_ = HashModel();
    late_ = std::make_unique<LateRunner>(model_, HashModel::kVocab, seed);
    pool_ = HashModel::make_pool(options_.kv);
    engine_ =
        std::move(Engine::open(options_, {.runner = queues ? static_cast<Runner&>(*late_) : model_,
                                          .pools = {*pool_},
                                          .vocab_tokens = HashModel::kVocab,
                                          .clock = clock_}))
            .value();
    outputs_.clear();
    ends_.clear();
  }

  static RequestSpec spec(std::int64_t least, std::int64_t most, std::int64_t prompt_tokens = 20) {
    RequestSpec out;
    out.prompt = hash_text(prompt_tokens);
    out.max_tokens = 12;
    out.constraint = constraint({.least = least, .most = most});
    return out;
  }
  static OwnedConstraint constraint(CostlyConstraint::Extent extent) {
    return OwnedConstraint(std::make_unique<CostlyConstraint>(extent));
  }

  RequestId submit(const RequestSpec& asked) {
    const auto id = engine_->submit(asked);
    EXPECT_TRUE(id.ok()) << to_string(id.error());
    return *id;
  }

  void run() {
    for (int left = 5'000; left > 0 && !engine_->idle(); --left) {
      for (const EngineEvent& event : engine_->step().events) {
        if (event.token >= 0) outputs_[event.request].push_back(event.token);
        if (event.finish != FinishReason::kNone) ends_[event.request] = event;
      }
      EXPECT_EQ(engine_->audit().value_or(""), "");
    }
    EXPECT_TRUE(engine_->idle());
  }

  const EngineEvent& answer(const RequestSpec& asked) {
    const RequestId id = submit(asked);
    run();
    return ends_[id];
  }

  EngineOptions options_ = small_engine_options();
  FakeClock clock_;
  HashModel model_;
  std::unique_ptr<LateRunner> late_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, std::vector<TokenId>> outputs_;
  std::map<RequestId, EngineEvent> ends_;
};

TEST_F(EngineConstraint, EveryTokenKeepsToIt) {
  open();
  for (const float temperature : {0.0F, 1.0F, 5.0F}) {
    RequestSpec asked = spec(100, 100);
    asked.sampling.temperature = temperature;
    const EngineEvent& end = answer(asked);
    EXPECT_EQ(end.finish, FinishReason::kLength);
    EXPECT_THAT(outputs_[end.request], SizeIs(12));
    EXPECT_TRUE(CostlyConstraint::keeps(outputs_[end.request]));
  }
}

TEST_F(EngineConstraint, EndsWhenNothingCanFollow) {
  open();
  const EngineEvent& end = answer(spec(4, 4));
  EXPECT_EQ(end.finish, FinishReason::kStop);
  EXPECT_EQ(end.token, -1) << "its last token is text: it came before";
  EXPECT_EQ(end.stats.output_tokens, 4);
  EXPECT_THAT(outputs_[end.request], SizeIs(4));
}

// Whoever ends it by itself with that token has no end to read them from.
TEST_F(EngineConstraint, ItsLastTokenHasItsStats) {
  open();
  submit(spec(4, 4));
  std::vector<std::int64_t> output_tokens;
  while (!engine_->idle()) {
    for (const EngineEvent& event : engine_->step().events) {
      output_tokens.push_back(event.stats.output_tokens);
    }
  }
  EXPECT_THAT(output_tokens, ElementsAre(1, 0, 0, 4, 4));
}

TEST_F(EngineConstraint, EndsSoWithTheLastTokenThatItMayHave) {
  open();
  RequestSpec asked = spec(4, 4);
  asked.max_tokens = 4;
  EXPECT_EQ(answer(asked).finish, FinishReason::kStop);
  asked.max_tokens = 3;
  EXPECT_EQ(answer(asked).finish, FinishReason::kLength);
}

// Every token that leaves no rest is one; so the constraint allows one at each third place.
TEST_F(EngineConstraint, StopTokensWaitForItsEnd) {
  open();
  RequestSpec asked = spec(5, 100);
  asked.sampling.temperature = 1;
  for (TokenId token = 2; token < 64; token += 3) asked.stop_tokens.push_back(token);
  asked.stop_tokens.pop_back();  // 62
  asked.sampling.logit_bias = {{TokenId{62}, 100.0F}, {TokenId{5}, 50.0F}};
  const EngineEvent& end = answer(asked);
  EXPECT_EQ(end.finish, FinishReason::kStop);
  EXPECT_EQ(end.token, 5);
  EXPECT_THAT(outputs_[end.request], SizeIs(6));
  EXPECT_EQ(outputs_[end.request][1], 62) << "allowed, and no stop token";
}

// They are among what it allows, and wanted most.
TEST_F(EngineConstraint, StopTokensAreNoText) {
  open();
  RequestSpec asked = spec(5, 100);
  for (TokenId token = 0; token < 64; token += 3) asked.stop_tokens.push_back(token);
  for (const TokenId token : asked.stop_tokens)
    asked.sampling.logit_bias.emplace_back(token, 50.0F);
  asked.stop_tokens.pop_back();  // one text of this kind is none of them
  asked.sampling.logit_bias.pop_back();
  const EngineEvent& end = answer(asked);
  EXPECT_EQ(end.finish, FinishReason::kStop);
  EXPECT_THAT(outputs_[end.request], SizeIs(6)) << "the fifth is the last that it has to have";
}

TEST_F(EngineConstraint, FailsWhereNoTokenMayCome) {
  open();
  const EngineEvent& end = answer(spec(100, 0));
  EXPECT_EQ(end.finish, FinishReason::kFailed);
  EXPECT_EQ(end.error.detail, "no token of the vocabulary is known to go on as the output has to");
}

TEST_F(EngineConstraint, EachTokenHasItsLogprobs) {
  open();
  RequestSpec asked = spec(2, 2);
  asked.logprobs = 1;
  const RequestId id = submit(asked);
  std::vector<std::size_t> rows;
  while (!engine_->idle()) {
    for (const EngineEvent& event : engine_->step().events) rows.push_back(event.logprobs.size());
  }
  EXPECT_THAT(rows, ElementsAre(2, 2, 0)) << "the end has no token";
  EXPECT_TRUE(id.valid());
}

TEST_F(EngineConstraint, CopiesGoTheirOwnWays) {
  open();
  RequestSpec asked = spec(7, 7);
  asked.copies = 3;
  asked.sampling.temperature = 5;
  const RequestId first = submit(asked);
  run();
  ASSERT_THAT(outputs_, SizeIs(3));
  for (const auto& [id, output] : outputs_) {
    EXPECT_THAT(output, SizeIs(7));
    EXPECT_TRUE(CostlyConstraint::keeps(output));
  }
  EXPECT_NE(outputs_[first], outputs_[RequestId(first.value() + 1)]);
}

// Their prompt is computed when the first of them knows what may come, and the others do not yet.
TEST_F(EngineConstraint, CopiesRestUntilTheirFirstTokensCanBeChosen) {
  open();
  RequestSpec asked = spec(7, 7);
  asked.copies = 4;
  asked.constraint = constraint({.least = 7, .most = 7, .work = 2 * ConstraintQueue::kStepWork});
  submit(asked);
  while (!engine_->idle()) {
    const std::int64_t before = CostlyConstraint::work_of_all;
    for (const EngineEvent& event : engine_->step().events) {
      if (event.token >= 0) outputs_[event.request].push_back(event.token);
    }
    EXPECT_LE(CostlyConstraint::work_of_all - before, ConstraintQueue::kStepWork + 4);
  }
  EXPECT_THAT(outputs_, SizeIs(4));
  for (const auto& [id, output] : outputs_) {
    EXPECT_THAT(output, SizeIs(7));
    EXPECT_TRUE(CostlyConstraint::keeps(output));
  }
}

// One that has no form beside 32 whose tokens take 1,500,000 units of work each, a fifth of a
// second.
TEST_F(EngineConstraint, CostlyOnesHoldNobodyElseUp) {
  options_.kv.requests_max = 40;
  options_.kv.pages = 400;
  options_.scheduler.waiting_max = 40;
  options_.scheduler.step_tokens_max = 1'000;
  open();
  RequestSpec costly = spec(100, 100, 4);
  costly.constraint = constraint({.least = 100, .most = 100, .work = 1'500'000});
  std::vector<RequestId> ids;
  for (int i = 0; i < 32; ++i) ids.push_back(submit(costly));
  RequestSpec plain = spec(0, 0, 15);
  plain.constraint = {};
  plain.max_tokens = 40;
  const RequestId other = submit(plain);
  std::int64_t steps = 0;
  for (; !ends_.contains(other); ++steps) {
    const std::int64_t before = CostlyConstraint::work_of_all;
    for (const EngineEvent& event : engine_->step().events) {
      if (event.finish != FinishReason::kNone) ends_[event.request] = event;
    }
    EXPECT_LE(CostlyConstraint::work_of_all - before, ConstraintQueue::kStepWork + 40);
  }
  EXPECT_EQ(steps, 40) << "a token each step";
  run();
  for (const RequestId id : ids) {
    EXPECT_EQ(ends_[id].finish, FinishReason::kLength);
    EXPECT_EQ(ends_[id].stats.output_tokens, 12);
  }
}

// Nobody else is there: steps that compute nothing go on with the work.
TEST_F(EngineConstraint, ACostlyOneAloneComesToItsEnd) {
  open();
  RequestSpec asked = spec(0, 0);
  asked.constraint = constraint({.least = 5, .most = 5, .work = 7 * ConstraintQueue::kStepWork});
  const EngineEvent& end = answer(asked);
  EXPECT_EQ(end.finish, FinishReason::kStop);
  EXPECT_EQ(end.stats.output_tokens, 5);
}

TEST_F(EngineConstraint, WhoRestsMayBeCancelled) {
  open();
  RequestSpec asked = spec(0, 0);
  asked.constraint = constraint({.least = 5, .most = 5, .work = 100 * ConstraintQueue::kStepWork});
  const RequestId id = submit(asked);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(engine_->step().events.size(), 0U);
  ASSERT_TRUE(engine_->cancel(id).ok());
  run();
  EXPECT_EQ(ends_[id].finish, FinishReason::kCancelled);
}

// Cold, one by one, and then all together: with pages for few, in pieces, queued ahead, preempted.
TEST_F(EngineConstraint, WhatIsWrittenDependsOnNothingElse) {
  const auto drawn = [](Prng& prng) {
    RequestSpec asked = spec(0, 0);
    asked.prompt = drawn_hash_prompt(prng);
    asked.prompt.resize(std::min<std::size_t>(asked.prompt.size(), 45));
    asked.max_tokens = 40;
    asked.sampling.temperature = prng.below(2) == 0 ? 0.0F : 2.0F;
    asked.sampling.seed = 5;
    asked.stop_tokens = {1, 17, 33};
    constexpr std::int64_t kSteps = ConstraintQueue::kStepWork;
    const std::int64_t works[] = {0, 10, kSteps / 10, 2 * kSteps};
    asked.constraint = constraint({.least = prng.below(30),
                                   .most = 3 + prng.below(40),
                                   .work = works[prng.below(std::ssize(works))]});
    if (prng.below(3) == 0) asked.constraint = {};
    return asked;
  };
  std::int64_t preemptions = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    options_ = small_engine_options();
    open();
    std::vector<std::vector<TokenId>> cold;
    for (Prng prng(seed); cold.size() < 40;) {
      const EngineEvent& end = answer(drawn(prng));
      cold.push_back(outputs_[end.request]);
    }
    options_.kv.pages = 25;
    options_.scheduler.chunk_tokens_max = 5;
    open(/*queues=*/seed % 2 == 1, seed);
    std::vector<RequestId> ids;
    for (Prng prng(seed); ids.size() < 40;) ids.push_back(submit(drawn(prng)));
    run();
    preemptions += engine_->totals().preemptions;
    for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(outputs_[ids[i]], cold[i]) << i;
  }
  EXPECT_GT(preemptions, 6);
}

}  // namespace
}  // namespace stemma
