// Covers logprobs of prompts: each token but the first has them, they are what the model says of
// the text before it, whatever was cached, however the prompt was cut, whoever was preempted.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "base/thread_pool.h"
#include "engine/hash_model.h"
#include "engine/hash_prompts.h"
#include "engine/held_tiers.h"
#include "engine/late_runner.h"
#include "stemma/engine.h"
#include "tier/tier_stack.h"

namespace stemma {
namespace {

using ::testing::ElementsAre;

// What a request was told of its prompt, and what came of it.
struct Told {
  std::vector<TokenLogprob> rows;  // of two entries each: the prompt's token and the likeliest
  std::int64_t tokens = 0;
  EngineEvent end;
};

class EngineScores : public ::testing::Test {
 protected:
  EngineScores() { options_.scheduler.scored_tokens_max = 7; }

  void open(bool queues = false, std::uint64_t seed = 1) {
    engine_.reset();
    stack_.reset();
    model_ = HashModel();
    late_ = std::make_unique<LateRunner>(model_, HashModel::kVocab, seed);
    pool_ = HashModel::make_pool(options_.kv);
    if (host_pages_ > 0) open_host();
    auto engine = Engine::open(options_, {.runner = queues ? static_cast<Runner&>(*late_) : model_,
                                          .pools = {*pool_},
                                          .vocab_tokens = HashModel::kVocab,
                                          .clock = clock_,
                                          .lower_tiers = stack_.get()});
    ASSERT_TRUE(engine.ok()) << to_string(engine.error());
    engine_ = std::move(engine).value();
    told_.clear();
  }

  void open_host() {
    auto stack =
        TierStack::open({.host_bytes = host_pages_ * pool_->shape().layers * pool_->layer_bytes()},
                        *pool_, {}, threads_, clock_);
    ASSERT_TRUE(stack.ok()) << to_string(stack.error());
    stack_ = std::move(stack).value();
  }

  // `changed`: the token that is another one; none if it is not below the prompt's length.
  static RequestSpec spec(std::int64_t prompt_tokens, std::int64_t changed = 1000) {
    RequestSpec out;
    out.prompt = hash_text(prompt_tokens);
    if (changed < prompt_tokens) out.prompt[static_cast<std::size_t>(changed)] = 61;
    out.max_tokens = 1;
    return out;
  }

  static RequestSpec scored(RequestSpec spec) {
    spec.prompt_logprobs = 1;
    return spec;
  }

  RequestId submit(const RequestSpec& spec) {
    const auto id = engine_->submit(spec);
    EXPECT_TRUE(id.ok()) << to_string(id.error());
    asked_[*id] = spec;
    return *id;
  }

  void step() {
    clock_.advance_us(10);
    for (const EngineEvent& event : engine_->step().events) {
      Told& told = told_[event.request];
      EXPECT_TRUE(event.prompt_logprobs.empty() || told.tokens == 0) << "before the first token";
      told.rows.insert(told.rows.end(), event.prompt_logprobs.begin(), event.prompt_logprobs.end());
      told.tokens += event.token >= 0 ? 1 : 0;
      if (event.finish != FinishReason::kNone) told.end = event;
    }
    EXPECT_EQ(engine_->audit().value_or(""), "");
  }

  void run() {
    for (int left = 5'000; left > 0 && !engine_->idle(); --left) step();
    EXPECT_TRUE(engine_->idle());
    if (engine_->kv().transfers_underway()) return;
    EXPECT_EQ(engine_->kv().usage().locked_tokens, 0);
  }

  const Told& answer(const RequestSpec& spec) {
    const RequestId id = submit(spec);
    run();
    return told_[id];
  }

  // What the model says comes after each of the prompt's tokens but the last: found token by token,
  // with nothing cached.
  const std::vector<TokenId>& guesses(const std::vector<TokenId>& prompt) {
    std::vector<TokenId>& out = guesses_[prompt];
    if (!out.empty() || prompt.size() < 2) return out;
    EngineOptions options = options_;
    options.kv.cache = "none";
    HashModel model;
    const auto pool = HashModel::make_pool(options.kv);
    const EngineParts parts = {
        .runner = model, .pools = {*pool}, .vocab_tokens = HashModel::kVocab, .clock = clock_};
    const auto engine = std::move(Engine::open(options, parts)).value();
    for (std::size_t tokens = 1; tokens < prompt.size(); ++tokens) {
      RequestSpec asked;
      asked.prompt.assign(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(tokens));
      asked.max_tokens = 1;
      EXPECT_TRUE(engine->submit(asked).ok());
      while (!engine->idle()) {
        for (const EngineEvent& event : engine->step().events) out.push_back(event.token);
      }
    }
    return out;
  }

  void expect_whole(const RequestSpec& asked, const std::vector<TokenLogprob>& rows) {
    const std::vector<TokenId>& prompt = asked.prompt;
    const auto from = static_cast<std::size_t>(asked.prompt_logprobs_from);
    ASSERT_EQ(rows.size(), 2 * (prompt.size() - from));
    for (std::size_t at = from; at < prompt.size(); ++at) {
      const TokenLogprob& own = rows[2 * (at - from)];
      const TokenLogprob& likeliest = rows[2 * (at - from) + 1];
      EXPECT_EQ(own.token, prompt[at]) << "at " << at;
      ASSERT_EQ(likeliest.token, guesses(prompt)[at - 1]) << "at " << at;
      EXPECT_EQ(likeliest.rank, 1);
      EXPECT_EQ(own.rank == 1, own.token == likeliest.token);
    }
  }

  // Of several texts that begin alike, some scored, some that want room for long answers.
  static RequestSpec drawn_spec(Prng& prng) {
    RequestSpec out = spec(1 + prng.below(60), 10 * prng.below(8));
    out.max_tokens = prng.below(2) == 0 ? 1 : 1 + prng.below(30);
    if (prng.below(2) == 0) out = scored(out);
    if (prng.below(2) == 0) out.prompt_logprobs_from = 1 + prng.below(std::ssize(out.prompt));
    if (prng.below(8) == 0) out.copies = 2;
    return out;
  }

  void live(std::int64_t requests, std::uint64_t seed) {
    Prng prng(seed);
    for (std::int64_t i = 0; i < requests; ++i) {
      const RequestSpec drawn = drawn_spec(prng);
      const RequestId id = submit(drawn);
      if (drawn.prompt_logprobs.has_value()) scored_.push_back(id);
      for (std::int64_t steps = prng.below(12); steps > 0; --steps) step();
      if (prng.below(8) > 0) continue;
      EXPECT_TRUE(engine_->cancel(id).ok());
    }
    run();
  }

  EngineOptions options_ = small_engine_options();
  SharedFakeClock clock_;
  ThreadPool threads_{1};
  HashModel model_;
  std::unique_ptr<LateRunner> late_;
  std::unique_ptr<KvPool> pool_;
  std::int64_t host_pages_ = 0;  // of host memory; 0: there is none
  std::unique_ptr<TierStack> stack_;
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, RequestSpec> asked_;
  std::map<RequestId, Told> told_;
  std::vector<RequestId> scored_;
  std::map<std::vector<TokenId>, std::vector<TokenId>> guesses_;
};

TEST_F(EngineScores, EachTokenOfThePromptButTheFirstHasThem) {
  open();
  const RequestSpec asked = scored(spec(30));
  const Told& told = answer(asked);
  expect_whole(asked, told.rows);
  EXPECT_EQ(told.end.finish, FinishReason::kLength);
  EXPECT_EQ(told.tokens, 1);
}

TEST_F(EngineScores, APromptOfOneTokenHasNone) {
  open();
  EXPECT_TRUE(answer(scored(spec(1))).rows.empty());
}

TEST_F(EngineScores, WhoDoesNotAskIsToldNothing) {
  open();
  EXPECT_TRUE(answer(spec(30)).rows.empty());
}

TEST_F(EngineScores, TheyAreTheSameWhereThePromptIsCached) {
  open();
  answer(spec(30));
  const RequestSpec asked = scored(spec(30));
  const Told told = answer(asked);
  expect_whole(asked, told.rows);
  EXPECT_EQ(told.end.stats.cached_tokens, 0);
  EXPECT_EQ(told.end.stats.computed_tokens, 30);
  EXPECT_EQ(prefix_stop_name(told.end.stats.stop), "prompt_logprobs");
  EXPECT_EQ(engine_->kv().usage().evictable_tokens, 28) << "what was computed twice is kept once";
  EXPECT_EQ(engine_->kv().available_pages(), 64);
}

//   [ 0 … 3 ][ 4 … 7 ][ 8 9 10 11 ]…      from token 11 on: token 10 tells of it, and is computed
//   cached             computed …
TEST_F(EngineScores, WhatComesBeforeTheFirstThatIsWantedIsTakenFromTheCache) {
  open();
  answer(spec(30));
  RequestSpec asked = scored(spec(30));
  asked.prompt_logprobs_from = 11;
  const Told told = answer(asked);
  expect_whole(asked, told.rows);
  EXPECT_EQ(told.end.stats.cached_tokens, 8);
  EXPECT_EQ(prefix_stop_name(told.end.stats.stop), "prompt_logprobs");
}

TEST_F(EngineScores, WhatIsNotCachedOfThatHasItsOwnReason) {
  open();
  RequestSpec asked = scored(spec(30));
  asked.prompt_logprobs_from = 11;
  EXPECT_EQ(prefix_stop_name(answer(asked).end.stats.stop), "cold");
  asked.prompt_logprobs_from = 30;  // none of them
  const Told told = answer(asked);
  EXPECT_TRUE(told.rows.empty());
  EXPECT_EQ(told.end.stats.cached_tokens, 28);
  EXPECT_EQ(prefix_stop_name(told.end.stats.stop), "tail");
}

TEST_F(EngineScores, WhatWasComputedForThemIsCachedForOthers) {
  open();
  answer(scored(spec(30)));
  EXPECT_EQ(answer(spec(30)).end.stats.cached_tokens, 28);
}

TEST_F(EngineScores, NobodyIsWaitedForWhoComputesTheSamePrompt) {
  open();
  const RequestSpec asked = scored(spec(40));
  const RequestId plain = submit(spec(40));
  const RequestId first = submit(asked);
  const RequestId second = submit(asked);
  run();
  expect_whole(asked, told_[first].rows);
  expect_whole(asked, told_[second].rows);
  EXPECT_EQ(told_[plain].end.finish, FinishReason::kLength);
}

//   step     1        2         3         4
//   tokens   0 … 6    7 … 13    14 … 20   21 … 22
TEST_F(EngineScores, AStepHasNoMoreOfThemThanThereIsRoomFor) {
  open();
  submit(scored(spec(23)));
  std::vector<std::int64_t> steps;
  while (!engine_->idle()) steps.push_back(engine_->step().computed_tokens);
  EXPECT_THAT(steps, ElementsAre(7, 7, 7, 2));
}

TEST_F(EngineScores, TheFirstOfSeveralCopiesGetsThem) {
  open();
  RequestSpec asked = scored(spec(30));
  asked.copies = 3;
  const RequestId first = submit(asked);
  run();
  expect_whole(asked, told_[first].rows);
  for (std::int64_t copy = 1; copy < 3; ++copy) {
    const Told& told = told_[RequestId(first.value() + copy)];
    EXPECT_TRUE(told.rows.empty());
    EXPECT_EQ(told.end.finish, FinishReason::kLength);
  }
  EXPECT_EQ(engine_->totals().forks, 2);
}

// Few pages, so that some are preempted in the middle of a prompt; some come from host memory.
TEST_F(EngineScores, NoneIsMissingOrTwiceWhoeverIsPreempted) {
  options_.kv.pages = 27;
  std::int64_t preemptions = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    host_pages_ = seed % 3 == 0 ? 0 : 20;
    open(seed % 2 == 0, seed);
    live(40, seed);
    for (const RequestId id : std::exchange(scored_, {})) {
      if (told_[id].end.finish == FinishReason::kCancelled) continue;
      ASSERT_NO_FATAL_FAILURE(expect_whole(asked_[id], told_[id].rows)) << "seed " << seed;
      preemptions += told_[id].end.stats.preemptions;
    }
    if (HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(preemptions, 20);
}

TEST_F(EngineScores, MoreThanThereAreIsRefused) {
  open();
  RequestSpec wrong = spec(3);
  wrong.prompt_logprobs = 21;
  EXPECT_EQ(engine_->submit(wrong).error().detail, "prompt_logprobs must be from 0 to 20 (got 21)");
}

TEST_F(EngineScores, TheFirstThatIsWantedIsOneOfThePromptsTokens) {
  open();
  for (const std::int64_t from : {0, 4}) {
    RequestSpec wrong = scored(spec(3));
    wrong.prompt_logprobs_from = from;
    EXPECT_EQ(engine_->submit(wrong).error().detail,
              "prompt_logprobs_from must be from 1 to the prompt's 3 tokens (got " +
                  std::to_string(from) + ")");
  }
}

TEST_F(EngineScores, WhereThereIsNoRoomForThemTheyAreRefused) {
  options_.scheduler.scored_tokens_max = 0;
  open();
  EXPECT_EQ(engine_->submit(scored(spec(3))).error().detail,
            "prompt_logprobs: scored_tokens_max is 0");
}

}  // namespace
}  // namespace stemma
