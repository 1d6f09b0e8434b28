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
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "cli/logits_recorder.h"
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
  trial.recorder = std::make_unique<LogitsRecorder>(trial.model->runner());
  trial.engine = opened_for_trial(trial.model->open_engine(trial.recorder.get()));
  return trial;
}

}  // namespace stemma
