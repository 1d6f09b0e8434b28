// HashPrompts: options and prompts of engines over a HashModel, and their answers, for tests.
//
// Thread:     the engine's.
// Memory:     the answers.
// Cost:       the engine's steps.
// Not here:   which model, pools and tiers (the tests).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "engine/hash_model.h"
#include "stemma/engine.h"

namespace stemma {

// Four requests at a time, in 64 pages of four tokens; prompts take several steps.
inline EngineOptions small_engine_options() {
  EngineOptions options;
  options.kv.page_size = 4;
  options.kv.pages = 64;
  options.kv.requests_max = 4;
  options.kv.context_tokens_max = 100;
  options.scheduler.step_tokens_max = 24;
  options.scheduler.chunk_tokens_max = 16;
  options.scheduler.waiting_max = 64;
  options.inbox_max = 128;
  return options;
}

// The first tokens of one text.
inline std::vector<TokenId> hash_text(std::int64_t tokens) {
  std::vector<TokenId> text;
  for (std::int64_t i = 0; i < tokens; ++i) text.push_back(static_cast<TokenId>(i * 7 % 60));
  return text;
}

// Each the beginning of one of seven texts.
inline std::vector<TokenId> drawn_hash_prompt(Prng& prng) {
  Prng text(static_cast<std::uint64_t>(1 + prng.below(7)));
  std::vector<TokenId> prompt;
  for (std::int64_t i = 8 + prng.below(80); i > 0; --i) {
    prompt.push_back(static_cast<TokenId>(text.below(HashModel::kVocab)));
  }
  return prompt;
}

inline RequestId submit_prompt(Engine& engine, const std::vector<TokenId>& prompt) {
  RequestSpec spec;
  spec.prompt = prompt;
  spec.max_tokens = 6;
  const auto id = engine.submit(std::move(spec));
  EXPECT_TRUE(id.ok()) << to_string(id.error());
  return *id;
}

// Until nothing is left to do; every step leaves the engine whole.
inline void finish_prompts(Engine& engine, std::map<RequestId, std::vector<TokenId>>& answers) {
  for (int left = 100'000; left > 0 && !engine.idle() && !testing::Test::HasFailure(); --left) {
    for (const EngineEvent& event : engine.step().events) {
      EXPECT_NE(event.finish, FinishReason::kFailed) << to_string(event.error);
      if (event.token >= 0) answers[event.request].push_back(event.token);
    }
    ASSERT_EQ(engine.audit(), std::nullopt);
  }
  EXPECT_TRUE(engine.idle());
}

// Asks up to three at once. `cold` says what a prompt's answer is where nothing is cached.
template <typename Cold>
void ask_drawn_prompts(Engine& engine, Prng& prng, const Cold& cold) {
  std::map<RequestId, std::vector<TokenId>> answers;
  std::map<RequestId, std::vector<TokenId>> prompts;
  for (std::int64_t left = 1 + prng.below(3); left > 0; --left) {
    std::vector<TokenId> prompt = drawn_hash_prompt(prng);
    prompts[submit_prompt(engine, prompt)] = std::move(prompt);
  }
  finish_prompts(engine, answers);
  for (const auto& [id, prompt] : prompts) ASSERT_EQ(answers[id], cold(prompt));
}

}  // namespace stemma
