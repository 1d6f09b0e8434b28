// EngineTrial: prompts that share prefixes, sent through a whole engine, and what came of each of
// them bit by bit: what the tests of I13 compare.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/prng.h"
#include "engine/logits_recorder.h"
#include "stemma/engine.h"

namespace stemma {

// What requests gave, in the order of submission, and what they cost.
struct Outcome {
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::vector<float>> logits;  // the rows of its output tokens, one behind the other
  std::vector<RequestStats> stats;
  std::int64_t cached_tokens = 0;
  BroughtTokens brought;
  std::int64_t steps = 0;
  EngineTotals totals;  // of the engine, since it was opened
};

inline std::vector<TokenId> random_tokens(Prng& prng, std::int64_t count) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  for (TokenId& token : tokens) token = static_cast<TokenId>(prng.below(256));
  return tokens;
}

// Sixteen prompts: all share 70 tokens, pairs share 40 more, one in four is the same as another.
inline std::vector<std::vector<TokenId>> shared_prompts() {
  Prng prng(11);
  const std::vector<TokenId> common = random_tokens(prng, 70);
  std::vector<std::vector<TokenId>> prompts;
  std::vector<TokenId> pair;
  for (int i = 0; i < 16; ++i) {
    if (i % 2 == 0) pair = random_tokens(prng, 40);
    std::vector<TokenId> prompt = common;
    prompt.insert(prompt.end(), pair.begin(), pair.end());
    const std::vector<TokenId> own = random_tokens(prng, 3 + i);
    prompt.insert(prompt.end(), own.begin(), own.end());
    prompts.push_back(i % 4 == 3 ? prompts[static_cast<std::size_t>(i) - 2] : prompt);
  }
  return prompts;
}

// What the requests of a trial have in common.
struct TrialRequests {
  std::vector<std::vector<TokenId>> prompts = shared_prompts();
  std::int64_t max_tokens = 5;
  NamespaceDigest digest = {};
  std::vector<std::string> adapters = {""};  // of the first, of the second, ..., and again
  std::int64_t steps_apart = 0;              // between the submission of one and that of the next
};

// Runs them to their end on an idle engine over `recorder`. before_step(n) is called before step n.
template <typename BeforeStep>
Outcome run_trial(Engine& engine, const LogitsRecorder& recorder, const TrialRequests& requests,
                  BeforeStep&& before_step) {
  const std::size_t count = requests.prompts.size();
  Outcome outcome;
  outcome.tokens.resize(count);
  outcome.stats.resize(count);
  std::vector<RequestId> ids;
  while (ids.size() < count || !engine.idle()) {
    while (ids.size() < count && outcome.steps >= std::ssize(ids) * requests.steps_apart) {
      RequestSpec spec;
      spec.prompt = requests.prompts[ids.size()];
      spec.max_tokens = requests.max_tokens;
      spec.namespace_digest = requests.digest;
      spec.adapter = requests.adapters[ids.size() % requests.adapters.size()];
      const auto id = engine.submit(std::move(spec));
      STEMMA_CHECK(id.ok(), "a trial's requests are right");
      ids.push_back(*id);
    }
    before_step(outcome.steps);
    for (const EngineEvent& event : engine.step().events) {
      EXPECT_NE(event.finish, FinishReason::kFailed) << to_string(event.error);
      const std::size_t request = event.request.index() - ids.front().index();
      if (event.token >= 0) outcome.tokens[request].push_back(event.token);
      if (event.finish == FinishReason::kNone) continue;
      outcome.stats[request] = event.stats;
      outcome.cached_tokens += event.stats.cached_tokens;
      outcome.brought.host += event.stats.brought.host;
      outcome.brought.disk += event.stats.brought.disk;
      outcome.brought.remote += event.stats.brought.remote;
    }
    ++outcome.steps;
  }
  EXPECT_EQ(engine.audit(), std::nullopt);
  for (const RequestId id : ids) outcome.logits.push_back(recorder.rows().at(id));
  outcome.totals = engine.totals();
  return outcome;
}

inline Outcome run_trial(Engine& engine, const LogitsRecorder& recorder,
                         const TrialRequests& requests = {}) {
  return run_trial(engine, recorder, requests, [](std::int64_t) {});
}

inline void expect_same_bits(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  ASSERT_EQ(a.logits.size(), b.logits.size());
  for (std::size_t request = 0; request < a.logits.size(); ++request) {
    const std::vector<float>& rows = a.logits[request];
    const std::vector<float>& others = b.logits[request];
    ASSERT_FALSE(rows.empty());
    ASSERT_EQ(rows.size(), others.size());
    EXPECT_EQ(std::memcmp(rows.data(), others.data(), rows.size() * sizeof(float)), 0)
        << "request " << request;
  }
}

}  // namespace stemma
