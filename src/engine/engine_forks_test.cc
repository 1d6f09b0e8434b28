// Covers several answers to one prompt: it is computed once, each goes on by itself with its own
// copy of the page where the prompt ends, and where there is no room for one it waits as any other.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "engine/hash_model.h"
#include "engine/hash_prompts.h"
#include "stemma/engine.h"

namespace stemma {
namespace {

class EngineForks : public ::testing::Test {
 protected:
  EngineForks() {
    options_.kv.page_size = 4;
    options_.kv.pages = 64;
    options_.kv.requests_max = 4;
    options_.kv.context_tokens_max = 100;
    options_.scheduler.waiting_max = 8;
    options_.inbox_max = 16;
  }

  void open() {
    model_ = HashModel();
    pool_ = HashModel::make_pool(options_.kv);
    auto engine = Engine::open(
        options_,
        {.runner = model_, .pools = {*pool_}, .vocab_tokens = HashModel::kVocab, .clock = clock_});
    ASSERT_TRUE(engine.ok()) << to_string(engine.error());
    engine_ = std::move(engine).value();
  }

  static RequestSpec spec(std::int64_t prompt_tokens, std::int64_t copies) {
    RequestSpec out;
    out.prompt = hash_text(prompt_tokens);
    out.max_tokens = 9;
    out.sampling.temperature = 3;  // answers part
    out.sampling.seed = 11;
    out.copies = copies;
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
      if (event.token >= 0) tokens_[event.request].push_back(event.token);
      if (event.finish != FinishReason::kNone) ends_[event.request] = event;
    }
    EXPECT_EQ(engine_->audit().value_or(""), "");
  }

  void run() {
    for (int left = 2'000; left > 0 && !engine_->idle(); --left) step();
    EXPECT_TRUE(engine_->idle());
  }

  // What each copy answers that is computed alone, its seed given.
  std::vector<std::vector<TokenId>> answers_alone(std::int64_t prompt_tokens, std::int64_t copies) {
    std::vector<std::vector<TokenId>> answers;
    for (std::int64_t copy = 0; copy < copies; ++copy) {
      open();
      tokens_.clear();
      RequestSpec alone = spec(prompt_tokens, 1);
      if (copy > 0) alone.sampling.seed = mix64(mix64(11) + static_cast<std::uint64_t>(copy));
      const RequestId id = submit(alone);
      run();
      answers.push_back(tokens_[id]);
    }
    tokens_.clear();
    ends_.clear();
    open();
    return answers;
  }

  void expect_answers(RequestId first, const std::vector<std::vector<TokenId>>& answers) {
    for (std::size_t copy = 0; copy < answers.size(); ++copy) {
      const RequestId id(first.value() + static_cast<std::int64_t>(copy));
      EXPECT_EQ(tokens_[id], answers[copy]) << "copy " << copy;
      EXPECT_EQ(ends_[id].finish, FinishReason::kLength) << "copy " << copy;
    }
  }

  EngineOptions options_;
  FakeClock clock_;
  HashModel model_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, std::vector<TokenId>> tokens_;
  std::map<RequestId, EngineEvent> ends_;
};

//   [ 0 … 7 ][ 8 9 . . ]      the prompt: two pages of 4 and half a page
//            [ 8 9 a b ]…     each copy goes on in its own half page
//            [ 8 9 c d ]…
TEST_F(EngineForks, ThePromptIsComputedOnce) {
  for (const std::int64_t prompt_tokens : {1, 7, 8, 10}) {
    SCOPED_TRACE(prompt_tokens);
    const auto answers = answers_alone(prompt_tokens, 4);
    EXPECT_NE(answers[0], answers[1]);
    const RequestId id = submit(spec(prompt_tokens, 4));
    run();
    expect_answers(id, answers);
    EXPECT_EQ(engine_->totals().forks, 3);
    EXPECT_EQ(engine_->totals().computed_prompt_tokens, prompt_tokens);
    EXPECT_EQ(ends_[RequestId(id.value() + 1)].stats.cached_tokens, prompt_tokens);
  }
}

// Forked off the first, or later, from what the first has cached.
TEST_F(EngineForks, TheirPromptCountsOnceInTheTotals) {
  for (const std::int64_t at_once : {4, 2}) {
    SCOPED_TRACE(at_once);
    options_.kv.requests_max = at_once;
    open();
    submit(spec(10, 4));
    run();
    EXPECT_EQ(engine_->totals().prompt_tokens, 10);
    EXPECT_EQ(engine_->totals().cached_tokens, 0);
    EXPECT_EQ(engine_->totals().output_tokens, 36);
    submit(spec(10, 4));
    run();
    EXPECT_EQ(engine_->totals().prompt_tokens, 20);
    EXPECT_EQ(engine_->totals().cached_tokens, 8) << "what the first of them found";
  }
}

TEST_F(EngineForks, TheFirstOfThemIsTheFirstToSayWhatThePromptFound) {
  open();
  const RequestId id = submit(spec(10, 4));
  std::vector<RequestId> order;
  while (order.empty()) {
    for (const EngineEvent& event : engine_->step().events) order.push_back(event.request);
  }
  ASSERT_EQ(order.size(), 4u);
  for (std::size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(order[i].value(), id.value() + static_cast<std::int64_t>(i));
  }
}

TEST_F(EngineForks, ALongPromptIsForkedWhenItsLastChunkIsDone) {
  options_.scheduler.chunk_tokens_max = 3;
  const auto answers = answers_alone(22, 3);
  const RequestId id = submit(spec(22, 3));
  run();
  expect_answers(id, answers);
  EXPECT_EQ(engine_->totals().computed_prompt_tokens, 22);
}

TEST_F(EngineForks, CopiesWithoutARowWaitAndFindThePrompt) {
  options_.kv.requests_max = 2;
  const auto answers = answers_alone(10, 5);
  const RequestId id = submit(spec(10, 5));
  run();
  expect_answers(id, answers);
  EXPECT_EQ(engine_->totals().forks, 1);
  EXPECT_EQ(ends_[RequestId(id.value() + 4)].stats.cached_tokens, 8);
}

TEST_F(EngineForks, ACacheThatSharesNothingComputesEachCopy) {
  options_.kv.cache = "none";
  const auto answers = answers_alone(10, 3);
  const RequestId id = submit(spec(10, 3));
  run();
  expect_answers(id, answers);
  EXPECT_EQ(engine_->totals().forks, 0);
}

TEST_F(EngineForks, WhereTheFirstIsCancelledTheOthersComputeThePrompt) {
  options_.scheduler.chunk_tokens_max = 3;
  const auto answers = answers_alone(22, 3);
  const RequestId id = submit(spec(22, 3));
  step();
  step();
  ASSERT_TRUE(engine_->cancel(id).ok());
  run();
  EXPECT_EQ(ends_[id].finish, FinishReason::kCancelled);
  EXPECT_EQ(tokens_[RequestId(id.value() + 1)], answers[1]);
  EXPECT_EQ(tokens_[RequestId(id.value() + 2)], answers[2]);
}

TEST_F(EngineForks, ACopyThatIsCancelledWhileItWaitsIsGone) {
  options_.scheduler.chunk_tokens_max = 3;
  const auto answers = answers_alone(22, 3);
  const RequestId id = submit(spec(22, 3));
  step();
  ASSERT_TRUE(engine_->cancel(RequestId(id.value() + 1)).ok());
  run();
  EXPECT_EQ(tokens_[id], answers[0]);
  EXPECT_TRUE(tokens_[RequestId(id.value() + 1)].empty());
  EXPECT_EQ(tokens_[RequestId(id.value() + 2)], answers[2]);
  EXPECT_EQ(engine_->totals().forks, 1);
}

TEST_F(EngineForks, PagesThatRunShortPreemptThemAsAnyOther) {
  options_.kv.pages = 8;
  const auto answers = answers_alone(10, 4);
  const RequestId id = submit(spec(10, 4));
  run();
  expect_answers(id, answers);
}

TEST_F(EngineForks, CopiesThatFindTheQueueFullEndAsFailed) {
  options_.scheduler.waiting_max = 2;
  open();
  const RequestId id = submit(spec(10, 4));
  run();
  EXPECT_EQ(ends_[RequestId(id.value() + 1)].finish, FinishReason::kLength);
  EXPECT_EQ(ends_[RequestId(id.value() + 3)].finish, FinishReason::kFailed);
}

// What it would go on from was never written.
TEST_F(EngineForks, ACopyWhosePageCannotBeCopiedFailsAlone) {
  const auto answers = answers_alone(10, 3);
  model_.fails_next_copy = true;
  const RequestId id = submit(spec(10, 3));
  run();
  const RequestId fails(id.value() + 1);
  EXPECT_EQ(ends_[fails].finish, FinishReason::kFailed);
  EXPECT_EQ(ends_[fails].error.detail, "no copy");
  EXPECT_TRUE(tokens_[fails].empty());
  EXPECT_EQ(tokens_[id], answers[0]);
  EXPECT_EQ(tokens_[RequestId(id.value() + 2)], answers[2]);
}

TEST_F(EngineForks, BeganWhenTheirPromptDid) {
  open();
  const RequestId id = submit(spec(10, 3));
  run();
  for (std::int64_t copy = 1; copy < 3; ++copy) {
    EXPECT_EQ(ends_[RequestId(id.value() + copy)].stats.queue_us, ends_[id].stats.queue_us);
  }
}

TEST_F(EngineForks, LogprobsComeWithEachToken) {
  open();
  RequestSpec wanted = spec(10, 2);
  wanted.logprobs = 3;
  const RequestId id = submit(wanted);
  std::int64_t tokens = 0;
  for (int left = 100; left > 0 && !engine_->idle(); --left) {
    for (const EngineEvent& event : engine_->step().events) {
      ASSERT_EQ(event.logprobs.size(), 4U) << "of request " << event.request.value();
      EXPECT_EQ(event.logprobs[0].token, event.token);
      EXPECT_GE(event.logprobs[1].logprob, event.logprobs[2].logprob);
      ++tokens;
    }
  }
  EXPECT_EQ(tokens, 18);
  EXPECT_EQ(id, RequestId(0));
}

TEST_F(EngineForks, ARepetitionPenaltyIsOfThePromptOfEach) {
  open();
  RequestSpec wanted = spec(10, 3);
  const TokenId of_prompt = wanted.prompt[2];
  TokenId other = 0;
  while (std::ranges::count(wanted.prompt, other) > 0) ++other;
  wanted.max_tokens = 1;
  wanted.sampling.temperature = 0;
  wanted.sampling.logit_bias = {{of_prompt, 10.0f}, {other, 8.0f}};
  const RequestId without = submit(wanted);
  wanted.sampling.repetition_penalty = 2;
  const RequestId with = submit(wanted);
  run();
  expect_answers(without, std::vector(3, std::vector{of_prompt}));
  expect_answers(with, std::vector(3, std::vector{other}));
}

// Logits are 0 or 1: of one token with a bias of 10 and one of 7 the first comes twice, then they
// take turns. The next request in the same place begins anew.
TEST_F(EngineForks, AFrequencyPenaltyIsOfTheOutputOfEach) {
  open();
  RequestSpec wanted = spec(10, 3);
  wanted.max_tokens = 6;
  wanted.sampling.temperature = 0;
  wanted.sampling.logit_bias = {{20, 10.0f}, {30, 7.0f}};
  wanted.sampling.frequency_penalty = 2;
  for (int again = 0; again < 2; ++again) {
    const RequestId first = submit(wanted);
    run();
    const std::vector<TokenId> turns = {20, 20, 30, 20, 30, 20};
    expect_answers(first, std::vector(3, turns));
  }
}

TEST_F(EngineForks, HowManyIsCheckedAtTheDoor) {
  open();
  EXPECT_EQ(engine_->submit(spec(3, 0)).error().detail, "copies must be from 1 to 128 (got 0)");
  RequestSpec wrong = spec(3, 1);
  wrong.logprobs = 21;
  EXPECT_EQ(engine_->submit(wrong).error().detail, "logprobs must be from 0 to 20 (got 21)");
}

}  // namespace
}  // namespace stemma
