// ServedTrial: a model with an engine over it, as the tests of I13 open them from the Setting of a
// run.
//
// Thread:     one.
// Memory:     the model's.
// Cost:       opening a model.
// Not here:   what is asked, and compared (engine_trial).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/logits_recorder.h"
#include "engine/served_model.h"
#include "transparency/engine_trial.h"

namespace stemma {

// What every run has a setting of. Contexts have 256 tokens at most.
template <typename Setting>
ServedModelOptions trial_options(const std::string& directory, const Setting& setting) {
  ServedModelOptions options;
  options.directory = directory;
  options.threads = setting.threads;
  options.engine.kv.page_size = setting.page_size;
  options.engine.kv.requests_max = setting.concurrency;
  options.engine.kv.context_tokens_max = 256;
  options.engine.kv.cache = setting.cache;
  options.engine.scheduler.chunk_tokens_max = setting.chunk_tokens;
  options.engine.scheduler.step_tokens_max = std::max(setting.chunk_tokens, setting.concurrency);
  return options;
}

struct ServedTrial {
  std::unique_ptr<ServedModel> model;
  std::unique_ptr<LogitsRecorder> recorder;
  std::unique_ptr<Engine> engine;

  // In the namespace of the model.
  Outcome run(TrialRequests requests = {}) {
    requests.digest = model->namespace_digest();
    return run_trial(*engine, *recorder, requests);
  }
};

// What cannot be opened fails the test, and ends it.
template <typename Opened>
auto opened_for_trial(Result<Opened> opened) {
  if (!opened.ok()) ADD_FAILURE() << to_string(opened.error());
  STEMMA_CHECK(opened.ok(), "what a trial runs on can be opened");
  return std::move(opened).value();
}

inline ServedTrial open_trial(const ServedModelOptions& options) {
  ServedTrial trial;
  trial.model = opened_for_trial(ServedModel::open(options));
  trial.recorder = std::make_unique<LogitsRecorder>(trial.model->batch_runner());
  trial.engine = opened_for_trial(trial.model->open_engine(trial.recorder.get()));
  return trial;
}

// The output tokens of the first `requests` prompts of a trial, over an engine with nothing between
// it and the model, which queues steps where the model's runner does. Adds to `brought_or_null`
// what came from lower tiers; what can be copied to them is there afterwards.
inline std::vector<std::vector<TokenId>> tokens_of_queued_steps(
    ServedModel& model, std::size_t requests, float temperature = 0,
    BroughtTokens* brought_or_null = nullptr) {
  const auto engine = opened_for_trial(model.open_engine());
  std::vector<std::vector<TokenId>> tokens(requests);
  const auto prompts = shared_prompts();
  for (std::size_t i = 0; i < requests; ++i) {
    RequestSpec spec;
    spec.prompt = prompts[i];
    spec.max_tokens = TrialRequests().max_tokens;
    spec.sampling.temperature = temperature;
    const auto id = engine->submit(std::move(spec));
    STEMMA_CHECK(id.ok() && id->index() == i, "a trial's requests are right");
  }
  while (!engine->idle()) {
    for (const EngineEvent& event : engine->step().events) {
      EXPECT_NE(event.finish, FinishReason::kFailed) << to_string(event.error);
      if (event.token >= 0) tokens[event.request.index()].push_back(event.token);
      if (brought_or_null != nullptr) *brought_or_null += event.stats.brought;
    }
  }
  if (brought_or_null != nullptr) engine->settle(std::chrono::hours(1));
  EXPECT_EQ(engine->audit(), std::nullopt);
  return tokens;
}

// The logprobs of the tokens of the first `prompts` prompts of a trial, each prompt asked for
// `rounds` times: first when others compute what it begins with, then when all of it is cached.
inline std::vector<std::vector<float>> logprobs_of_prompts(ServedModel& model, std::size_t prompts,
                                                           int rounds) {
  const auto engine = opened_for_trial(model.open_engine());
  const auto asked = shared_prompts();
  std::vector<std::vector<float>> logprobs;
  for (int round = 0; round < rounds; ++round) {
    for (const std::vector<TokenId>& prompt : std::span(asked).first(prompts)) {
      RequestSpec spec;
      spec.prompt = prompt;
      spec.max_tokens = 1;
      spec.prompt_logprobs = 0;
      STEMMA_CHECK(engine->submit(std::move(spec)).ok(), "a trial's requests are right");
      logprobs.emplace_back();
    }
    while (!engine->idle()) {
      for (const EngineEvent& event : engine->step().events) {
        EXPECT_NE(event.finish, FinishReason::kFailed) << to_string(event.error);
        for (const TokenLogprob& entry : event.prompt_logprobs) {
          logprobs[event.request.index()].push_back(entry.logprob);
        }
      }
    }
  }
  EXPECT_EQ(engine->audit(), std::nullopt);
  return logprobs;
}

}  // namespace stemma
