// A serving loop over an engine whose steps wait until they are let go, and what came of each
// answer.
//
// Thread:     tests; updates come on the loop's.
// Memory:     all updates.
// Cost:       none of note.
// Not here:   anything that ships.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/hash_model.h"
#include "model/tokenizer_examples.h"
#include "server/serving_loop.h"

namespace stemma {

// A model whose steps wait until they are let go, one by one or all.
class SteppedModel final : public Runner {
 public:
  Result<LogitsView> forward(const KvBatch& batch, KvPools pools) override {
    if (is_lost) return Error{ErrorCode::kInternal, "the device is lost"};
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return free_ || steps_ > 0; });
    if (!free_) --steps_;
    --waiting_;
    return model_.forward(batch, pools);
  }

  // Waits until a step stands at the gate.
  void wait_for_step() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ > 0; });
  }
  void let_go(std::int64_t steps) {
    const std::lock_guard lock(mutex_);
    steps_ += steps;
    changed_.notify_all();
  }
  void let_all_go() {
    const std::lock_guard lock(mutex_);
    free_ = true;
    changed_.notify_all();
  }
  std::atomic<bool> is_lost = false;  // every step fails

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  HashModel model_;
  std::int64_t steps_ = 0;
  std::int64_t waiting_ = 0;
  bool free_ = false;
};

// What came of each answer.
class Updates {
 public:
  struct Answer {
    std::string text, thoughts;
    std::vector<TokenId> tokens;
    std::vector<TokenChance> chances;
    std::vector<TokenChance> of_prompt;
    std::int64_t updates = 0;
    std::int64_t firsts = 0;
    std::int64_t ends = 0;
    AnswerUpdate first, last;
  };
  using Key = std::pair<std::int64_t, std::int64_t>;  // exchange, index

  void take(std::vector<AnswerUpdate>&& updates) {
    const std::lock_guard lock(mutex_);
    for (AnswerUpdate& update : updates) {
      Answer& answer = answers_[{update.exchange.value(), update.index}];
      EXPECT_EQ(answer.ends, 0) << "nothing follows the end";
      const std::vector<TokenChance>& prompt = update.of_prompt;
      EXPECT_TRUE(prompt.empty() || answer.updates == 0) << "before anything else";
      answer.of_prompt.insert(answer.of_prompt.end(), prompt.begin(), prompt.end());
      answer.updates += prompt.empty() ? 1 : 0;
      answer.text += update.text;
      answer.thoughts += update.thoughts;
      answer.tokens.insert(answer.tokens.end(), update.tokens.begin(), update.tokens.end());
      answer.chances.insert(answer.chances.end(), update.chances.begin(), update.chances.end());
      answer.firsts += update.is_first ? 1 : 0;
      if (update.is_first) answer.first = update;
      answer.ends += update.finish != FinishReason::kNone ? 1 : 0;
      ended_ += update.finish != FinishReason::kNone ? 1 : 0;
      answer.last = std::move(update);
    }
    changed_.notify_all();
  }
  void wait_for_ends(std::int64_t ends) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ >= ends; });
  }
  Answer answer(std::int64_t exchange, std::int64_t index = 0) {
    const std::lock_guard lock(mutex_);
    return answers_[{exchange, index}];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Answer> answers_;
  std::int64_t ended_ = 0;
};

// Sixty-four words, each with its space before it and a letter of two bytes, as Llama 2 has them;
// in the place of some, others.
inline Tokenizer words(const std::map<TokenId, std::string>& others = {}) {
  std::string vocab;
  for (TokenId word = 0; word < 64; ++word) {
    const auto other = others.find(word);
    const std::string text = other == others.end() ? "▁é" + std::to_string(word) : other->second;
    vocab += (word == 0 ? "" : ",") + in_json(text) + ":" + std::to_string(word);
  }
  ExampleFile file = sentence_piece_file();
  file.model = R"({"type":"BPE","vocab":{)" + vocab + R"(},"merges":[]})";
  file.added_tokens = "[]";
  file.around = "null";
  Result<Tokenizer> tokenizer = Tokenizer::parse(file.json(), "words.json");
  EXPECT_TRUE(tokenizer.ok()) << to_string(tokenizer.error());
  return std::move(tokenizer).value();
}

class ServingLoopTest : public ::testing::Test {
 protected:
  ServingLoopTest()
      : tokenizer_(std::move(Tokenizer::load(STEMMA_SOURCE_DIR "/models/scribe-3m")).value()) {
    options_.kv.page_size = 4;
    options_.kv.pages = 64;
    options_.kv.requests_max = 4;
    options_.kv.context_tokens_max = 200;
    options_.scheduler.waiting_max = 32;
    options_.scheduler.chunk_tokens_max = 6;
    options_.scheduler.scored_tokens_max = 4;
    options_.inbox_max = 256;
  }

  void open(std::int64_t messages_max = 64) {
    loop_.reset();
    updates_ = std::make_unique<Updates>();
    model_ = std::make_unique<SteppedModel>();
    engine_.reset();
    pool_ = HashModel::make_pool(options_.kv);
    auto engine = Engine::open(
        options_,
        {.runner = *model_, .pools = {*pool_}, .vocab_tokens = HashModel::kVocab, .clock = clock_});
    ASSERT_TRUE(engine.ok()) << to_string(engine.error());
    engine_ = std::move(engine).value();
    ServingLoop::Options options;
    options.messages_max = messages_max;
    options.stall_time = std::chrono::milliseconds(5);
    loop_ = std::make_unique<ServingLoop>(
        *engine_, tokenizer_, options,
        [this](std::vector<AnswerUpdate>&& updates) { updates_->take(std::move(updates)); });
  }

  // Its model's steps do not wait.
  void open_freely() {
    open();
    model_->let_all_go();
  }

  static AnswerJob job(std::int64_t exchange, std::int64_t prompt_tokens, std::int64_t max_tokens,
                       std::int64_t copies = 1) {
    AnswerJob job;
    job.exchange = ExchangeId(exchange);
    job.in_pieces = true;
    PromptJob& prompt = job.prompts.emplace_back();
    for (std::int64_t i = 0; i < prompt_tokens; ++i) {
      prompt.spec.prompt.push_back(static_cast<TokenId>(i * 5 % 60));
    }
    prompt.spec.max_tokens = max_tokens;
    prompt.spec.copies = copies;
    prompt.wants_tokens = true;
    return job;
  }

  bool submit(AnswerJob&& job) { return loop_->submit(make_ready(*engine_, std::move(job))); }

  // What the loop's engine says once everything has ended.
  void expect_nothing_left() {
    EXPECT_EQ(loop_->answers_in_flight(), 0);
    loop_.reset();
    EXPECT_TRUE(engine_->idle());
    EXPECT_EQ(engine_->audit().value_or(""), "");
    EXPECT_EQ(engine_->kv().free_rows(), options_.kv.requests_max);
    EXPECT_EQ(engine_->kv().usage().locked_tokens, 0);
  }

  Tokenizer tokenizer_;
  EngineOptions options_;
  MonotonicClock clock_;
  std::unique_ptr<Updates> updates_;
  std::unique_ptr<SteppedModel> model_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ServingLoop> loop_;
};

}  // namespace stemma
