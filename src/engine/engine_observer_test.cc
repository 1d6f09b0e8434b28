// Who observes an engine is told of each request that it takes in, and of its end.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/hash_model.h"
#include "engine/hash_prompts.h"
#include "stemma/engine.h"

namespace stemma {
namespace {

struct Notes final : RequestObserver {
  void came(RequestId request, std::int64_t submitted_us) override {
    EXPECT_FALSE(submitted.contains(request));
    submitted[request] = submitted_us;
  }
  void ended(EndedRequest&& request) override {
    EXPECT_TRUE(submitted.contains(request.request));
    EXPECT_FALSE(ends.contains(request.request));
    const RequestId id = request.request;
    ends.emplace(id, std::move(request));
  }

  std::map<RequestId, std::int64_t> submitted;
  std::map<RequestId, EndedRequest> ends;
};

class EngineObserverTest : public ::testing::Test {
 protected:
  EngineObserverTest() : pool_(HashModel::make_pool(options_.kv)) {
    auto engine = Engine::open(options_, {.runner = model_,
                                          .pools = {*pool_},
                                          .vocab_tokens = HashModel::kVocab,
                                          .clock = clock_,
                                          .observer = &notes_});
    EXPECT_TRUE(engine.ok()) << to_string(engine.error());
    engine_ = std::move(engine).value();
  }

  static RequestSpec spec(std::int64_t prompt_tokens) {
    RequestSpec out;
    out.prompt = hash_text(prompt_tokens);
    out.max_tokens = 3;
    return out;
  }

  const EngineOptions options_ = small_engine_options();
  HashModel model_;
  std::unique_ptr<KvPool> pool_;
  FakeClock clock_;
  Notes notes_;
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, std::vector<TokenId>> answers_;
};

TEST_F(EngineObserverTest, IsToldWhatWasAskedAndWhatCame) {
  clock_.advance_us(70);
  RequestSpec wanted = spec(20);
  wanted.priority = 4;
  wanted.namespace_digest.bytes[0] = 9;
  wanted.shared_prefix = SharedPrefix{.digest = {{8}}, .tokens = 8};
  const RequestId id = *engine_->submit(wanted);
  EXPECT_TRUE(notes_.submitted.empty()) << "no step has seen it";
  clock_.advance_us(30);
  finish_prompts(*engine_, answers_);
  EXPECT_EQ(notes_.submitted.at(id), 70);
  const EndedRequest& end = notes_.ends.at(id);
  EXPECT_EQ(end.finish, FinishReason::kLength);
  EXPECT_EQ(end.prompt_tokens, 20);
  std::vector<TokenId> tokens = wanted.prompt;
  tokens.insert(tokens.end(), answers_.at(id).begin(), answers_.at(id).end());
  EXPECT_EQ(end.tokens, tokens);
  EXPECT_EQ(end.priority, 4);
  EXPECT_EQ(end.namespace_digest, wanted.namespace_digest);
  ASSERT_TRUE(end.shared_prefix.has_value());
  EXPECT_EQ(end.shared_prefix->digest, wanted.shared_prefix->digest);
  EXPECT_EQ(end.shared_prefix->tokens, 8);
}

TEST_F(EngineObserverTest, IsToldOfEveryCopyAndHoweverTheyEnd) {
  RequestSpec twice = spec(20);
  twice.copies = 2;
  const RequestId first = *engine_->submit(twice);
  const RequestId copy(first.value() + 1);
  const RequestId given_up = *engine_->submit(spec(30));
  const RequestId stopped = *engine_->submit(spec(40));
  engine_->step();
  EXPECT_EQ(notes_.submitted.size(), 4u);
  EXPECT_TRUE(engine_->cancel(given_up).ok());
  engine_->stop(stopped, FinishReason::kCancelled);
  EXPECT_EQ(notes_.ends.at(stopped).finish, FinishReason::kCancelled);
  finish_prompts(*engine_, answers_);
  EXPECT_EQ(notes_.ends.size(), 4u);
  EXPECT_EQ(notes_.ends.at(given_up).finish, FinishReason::kCancelled);
  EXPECT_EQ(notes_.ends.at(copy).tokens.size(), 23u);
}

TEST_F(EngineObserverTest, IsNotToldOfWhatNoStepTookIn) {
  EXPECT_FALSE(engine_->submit(spec(400)).ok());
  const RequestId id = *engine_->submit(spec(20));
  EXPECT_TRUE(engine_->cancel(id).ok());
  engine_.reset();
  EXPECT_TRUE(notes_.submitted.empty());
  EXPECT_TRUE(notes_.ends.empty());
}

}  // namespace
}  // namespace stemma
