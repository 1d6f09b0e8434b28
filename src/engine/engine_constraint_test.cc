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
#include "engine/hash_model.h"
#include "engine/hash_prompts.h"
#include "engine/late_runner.h"
#include "stemma/engine.h"

namespace stemma {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// Of the tokens below 64 those that leave a rest of 1, 2, 0, 1, ... by three. May end behind
// `least` of them, and is whole behind `most`.
class RestsConstraint final : public OutputConstraint {
 public:
  RestsConstraint(std::int64_t least, std::int64_t most) : least_(least), most_(most) {}

  static bool keeps(std::span<const TokenId> output) {
    for (std::size_t i = 0; i < output.size(); ++i) {
      if (output[i] % 3 != static_cast<TokenId>((i + 1) % 3)) return false;
    }
    return true;
  }

  std::unique_ptr<OutputConstraint> clone() const override {
    return std::make_unique<RestsConstraint>(*this);
  }
  std::span<const std::uint64_t> allowed() override {
    word_ = 0;
    for (std::int64_t token = 0; token < 64 && !is_whole(); ++token) {
      if (token % 3 == (tokens_ + 1) % 3) word_ |= std::uint64_t{1} << token;
    }
    return {&word_, 1};
  }
  bool may_end() override { return tokens_ >= least_; }
  bool is_whole() override { return tokens_ >= most_; }
  void accept(TokenId /*token*/) override { ++tokens_; }

 private:
  std::int64_t least_;
  std::int64_t most_;
  std::int64_t tokens_ = 0;
  std::uint64_t word_ = 0;
};

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
    out.constraint = OwnedConstraint(std::make_unique<RestsConstraint>(least, most));
    return out;
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
    EXPECT_TRUE(RestsConstraint::keeps(outputs_[end.request]));
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
    EXPECT_TRUE(RestsConstraint::keeps(output));
  }
  EXPECT_NE(outputs_[first], outputs_[RequestId(first.value() + 1)]);
}

// Cold, one by one, and then all together: with pages for few, in pieces, queued ahead, preempted.
TEST_F(EngineConstraint, WhatIsWrittenDependsOnNothingElse) {
  const auto drawn = [](Prng& prng) {
    RequestSpec asked = spec(prng.below(30), 3 + prng.below(40));
    asked.prompt = drawn_hash_prompt(prng);
    asked.prompt.resize(std::min<std::size_t>(asked.prompt.size(), 45));
    asked.max_tokens = 40;
    asked.sampling.temperature = prng.below(2) == 0 ? 0.0F : 2.0F;
    asked.sampling.seed = 5;
    asked.stop_tokens = {1, 17, 33};
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
