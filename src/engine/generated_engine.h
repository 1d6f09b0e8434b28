// GeneratedEngine: an Engine over a model whose weights are made up in memory, for benchmarks of
// the whole engine, and what they ask of it.
//
// Thread:     one.
// Memory:     the weights and a pool of kv_tokens.
// Cost:       open packs every weight.
// Not here:   what is measured (engine_bench, miss_bench, neighbour_bench).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "model/config.h"
#include "model/model_runner.h"
#include "stemma/engine.h"
#include "stemma/kv_pool.h"
#include "stemma/result.h"

namespace stemma {

struct GeneratedEngineOptions {
  ModelConfig model;
  std::int64_t kv_tokens = 4096;
  std::int64_t requests_max = 32;
  std::int64_t step_tokens_max = 512;
};

class GeneratedEngine {
 public:
  // `threads` must outlive it.
  static Result<std::unique_ptr<GeneratedEngine>> open(const GeneratedEngineOptions& options,
                                                       ThreadPool& threads);

  // An engine with this cache ("radix", "none") on the model, whose pool is shared by turns.
  Result<std::unique_ptr<Engine>> open_engine(const std::string& cache) const;

  const ModelConfig& config() const noexcept { return options_.model; }

  explicit GeneratedEngine(const GeneratedEngineOptions& options) : options_(options) {}

 private:
  GeneratedEngineOptions options_;
  MonotonicClock clock_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<KvPool> pool_;
};

// The shape of Qwen2.5-0.5B: 494 million weights, embeddings tied.
ModelConfig half_billion_config();

// A model of the same kind with about 60 million weights, for what must be run many times.
ModelConfig small_bench_config();

// Prompts of drawn tokens, no two alike.
std::vector<TokenId> drawn_prompt(const ModelConfig& config, std::int64_t seed,
                                  std::int64_t tokens);

// Submits a request for `output_tokens`; no token ends it.
Status submit_prompt(Engine& engine, std::vector<TokenId> prompt, std::int64_t output_tokens);

// Steps until nothing is left. An error is that of the first request that failed.
Status drain(Engine& engine);

}  // namespace stemma
