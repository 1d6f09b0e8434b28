#include "engine/generated_engine.h"

#include <utility>

#include "base/math.h"
#include "base/prng.h"
#include "model/generated_files.h"
#include "pool/kv_pool_factory.h"

namespace stemma {

Result<std::unique_ptr<GeneratedEngine>> GeneratedEngine::open(
    const GeneratedEngineOptions& options, ThreadPool& threads) {
  auto made = std::make_unique<GeneratedEngine>(options);
  GeneratedFiles files(options.model);
  ModelRunnerOptions runner_options;
  runner_options.rows_max = options.step_tokens_max;
  runner_options.outputs_max = options.requests_max;
  runner_options.requests_max = options.requests_max;
  runner_options.files = &files;
  STEMMA_ASSIGN_OR_RETURN(made->runner_, ModelRunner::load("generated", runner_options, threads));
  KvShape shape = made->runner_->pool_shape();
  shape.page_size = KvCacheOptions().page_size;
  shape.pages = ceil_div(options.kv_tokens, shape.page_size);
  shape.dtype = DType::kBF16;
  STEMMA_ASSIGN_OR_RETURN(made->pool_, make_kv_pool(shape, KvLayout::kLayerFirst, threads));
  return made;
}

Result<std::unique_ptr<Engine>> GeneratedEngine::open_engine(const std::string& cache) const {
  EngineOptions engine;
  engine.kv.pages = pool_->shape().pages;
  engine.kv.requests_max = options_.requests_max;
  engine.kv.context_tokens_max = options_.model.context_tokens_max;
  engine.kv.cache = cache;
  engine.scheduler.step_tokens_max = options_.step_tokens_max;
  engine.scheduler.chunk_tokens_max = options_.step_tokens_max;
  engine.scheduler.step_us_max = 0;  // a step is as large as a benchmark says
  return Engine::open(engine, {.runner = *runner_,
                               .pools = {*pool_},
                               .vocab_tokens = options_.model.vocab_tokens,
                               .clock = clock_});
}

ModelConfig half_billion_config() {
  ModelConfig model;
  model.family = ModelFamily::kQwen2;
  model.vocab_tokens = 151'936;
  model.hidden = 896;
  model.intermediate = 4864;
  model.layers = 24;
  model.query_heads = 14;
  model.kv_heads = 2;
  model.head_dim = 64;
  model.context_tokens_max = 8192;
  model.rope.theta = 1e6;
  model.qkv_bias = true;
  model.tied_embeddings = true;
  model.weights_dtype = DType::kBF16;
  return model;
}

ModelConfig small_bench_config() {
  ModelConfig model = half_billion_config();
  model.vocab_tokens = 32'000;
  model.hidden = 512;
  model.intermediate = 2048;
  model.layers = 10;
  model.query_heads = 8;
  return model;
}

std::vector<TokenId> drawn_prompt(const ModelConfig& config, std::int64_t seed,
                                  std::int64_t tokens) {
  Prng prng(static_cast<std::uint64_t>(seed));
  std::vector<TokenId> prompt;
  for (std::int64_t i = 0; i < tokens; ++i) {
    prompt.push_back(static_cast<TokenId>(prng.below(config.vocab_tokens)));
  }
  return prompt;
}

Status submit_prompt(Engine& engine, std::vector<TokenId> prompt, std::int64_t output_tokens) {
  RequestSpec spec;
  spec.prompt = std::move(prompt);
  spec.max_tokens = output_tokens;
  STEMMA_RETURN_IF_ERROR(engine.submit(std::move(spec)));
  return {};
}

Status drain(Engine& engine) {
  while (!engine.idle()) {
    for (const EngineEvent& event : engine.step().events) {
      if (event.finish == FinishReason::kFailed) return event.error;
    }
  }
  return {};
}

}  // namespace stemma
