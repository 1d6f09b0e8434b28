// The pool is filled by requests that end at once. The requests that are measured begin one after
// another, a step apart, so that they publish their outputs in turns, as in service.
#include "engine/step_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "attention/attention_plan.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/math.h"
#include "base/prng.h"
#include "base/thread_pool.h"
#include "pool/kv_pool_factory.h"
#include "stemma/engine.h"

namespace stemma {
namespace {

constexpr std::int64_t kVocabTokens = 8;
constexpr std::int64_t kFillPromptTokens = 4096;
constexpr int kWindowSteps = 64;

double us_now() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Plans attention as a model of 14 query heads would, computes nothing, and finds token 1 likeliest
// everywhere.
class IdleRunner final : public Runner {
 public:
  IdleRunner(const AttentionLimits& limits, std::int64_t outputs_max)
      : plan_({.query_heads = 14, .kv_heads = 2, .head_dim = 64, .scale = 1}, limits, kThreads),
        logits_(static_cast<std::size_t>(outputs_max * kVocabTokens)) {
    for (std::size_t i = 1; i < logits_.size(); i += kVocabTokens) logits_[i] = 1;
  }

  Result<LogitsView> forward(const KvBatch& batch, KvPools) override {
    plan_.cut(batch);
    return LogitsView{logits_.data(), batch.outputs(), kVocabTokens};
  }

 private:
  static constexpr int kThreads = 2;

  AttentionPlan plan_;
  std::vector<float> logits_;
};

class StepBench {
 public:
  StepBench(const StepBenchCase& bench, int windows) : bench_(bench), windows_(windows) {}

  Result<BenchLine> run() {
    STEMMA_RETURN_IF_ERROR(open());
    STEMMA_RETURN_IF_ERROR(fill());
    STEMMA_RETURN_IF_ERROR(begin_decoding());
    std::vector<double> means;
    std::vector<double> steps;
    for (int window = 0; window < windows_; ++window) {
      const double begin = us_now();
      for (int step = 0; step < kWindowSteps; ++step) {
        const double start = us_now();
        STEMMA_CHECK_EQ(engine_->step().computed_tokens, bench_.requests);
        steps.push_back(us_now() - start);
      }
      means.push_back((us_now() - begin) / kWindowSteps);
    }
    return line(means, steps);
  }

 private:
  std::int64_t output_tokens() const {
    return bench_.requests + std::int64_t{windows_ + 1} * kWindowSteps;
  }

  Status open() {
    KvShape shape;
    shape.layers = 1;
    shape.heads = 1;
    shape.head_dim = 8;
    shape.dtype = DType::kBF16;
    shape.page_size = KvCacheOptions().page_size;
    const std::int64_t request_tokens = bench_.context_tokens + output_tokens();
    shape.pages = bench_.cached_pages + bench_.requests * ceil_div(request_tokens, shape.page_size);
    ThreadPool threads(1);
    STEMMA_ASSIGN_OR_RETURN(pool_, make_kv_pool(shape, KvLayout::kLayerFirst, threads));
    EngineOptions options;
    options.kv.pages = shape.pages;
    options.kv.requests_max = bench_.requests;
    options.kv.context_tokens_max = std::max(request_tokens, kFillPromptTokens + 1);
    options.scheduler.step_tokens_max = bench_.requests + kFillPromptTokens;
    options.scheduler.chunk_tokens_max = kFillPromptTokens;
    options.scheduler.step_us_max = 0;
    const AttentionLimits limits = {.rows_max = options.scheduler.step_tokens_max,
                                    .requests_max = bench_.requests,
                                    .context_tokens_max = options.kv.context_tokens_max};
    runner_ = std::make_unique<IdleRunner>(limits, bench_.requests);
    STEMMA_ASSIGN_OR_RETURN(engine_, Engine::open(options, {.runner = *runner_,
                                                            .pools = {*pool_},
                                                            .vocab_tokens = kVocabTokens,
                                                            .clock = clock_}));
    return {};
  }

  Status submit(std::int64_t prompt_tokens, std::int64_t output_tokens) {
    RequestSpec spec;
    for (std::int64_t i = 0; i < prompt_tokens; ++i) {
      spec.prompt.push_back(static_cast<TokenId>(prng_.below(kVocabTokens)));
    }
    spec.max_tokens = output_tokens;
    STEMMA_RETURN_IF_ERROR(engine_->submit(std::move(spec)));
    return {};
  }

  // Until pages have been evicted.
  Status fill() {
    const std::int64_t pages = pool_->shape().pages;
    const std::int64_t prompts = ceil_div(pages * pool_->shape().page_size, kFillPromptTokens) + 1;
    for (std::int64_t i = 0; i < prompts; ++i) {
      STEMMA_RETURN_IF_ERROR(submit(kFillPromptTokens, 1));
      while (!engine_->idle()) engine_->step();
    }
    return {};
  }

  Status begin_decoding() {
    for (std::int64_t i = 0; i < bench_.requests; ++i) {
      STEMMA_RETURN_IF_ERROR(submit(bench_.context_tokens, output_tokens()));
      engine_->step();
    }
    return {};
  }

  // Every page id of the step, read once.
  double table_read_us() const {
    const std::int64_t pages = ceil_div(bench_.context_tokens, pool_->shape().page_size);
    const std::vector<std::int32_t> table(static_cast<std::size_t>(bench_.requests * pages), 1);
    constexpr int kRepeats = 100;
    std::int64_t sum = 0;
    const double start = us_now();
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      for (const std::int32_t page : table) sum += page;
      asm volatile("" : "+r"(sum) : "r"(table.data()) : "memory");
    }
    return (us_now() - start) / kRepeats;
  }

  BenchLine line(const std::vector<double>& means, const std::vector<double>& steps) const {
    const double bound = table_read_us();
    return {.bench = "step",
            .params = {{"requests", std::to_string(bench_.requests)},
                       {"context_tokens", std::to_string(bench_.context_tokens)},
                       {"cached_pages", std::to_string(bench_.cached_pages)},
                       {"page_size", std::to_string(pool_->shape().page_size)},
                       {"median_us", fmt::format("{:.1f}", median(steps))},
                       {"slowest_us",
                        fmt::format("{:.1f}", *std::max_element(steps.begin(), steps.end()))}},
            .value = median(means),
            .unit = "us",
            .bound = bound,
            .bound_name = "table_read",
            .ratio = bound / median(means),
            .repeats = windows_,
            .spread = spread(means)};
  }

  StepBenchCase bench_;
  int windows_;
  MonotonicClock clock_;
  Prng prng_{1};
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<IdleRunner> runner_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace

StepBenchOptions default_step_bench() {
  return {.cases = {{.requests = 256, .cached_pages = 100'000, .context_tokens = 1024},
                    {.requests = 1000, .cached_pages = 1'000'000, .context_tokens = 1024}}};
}

Result<std::vector<BenchLine>> bench_step(const StepBenchOptions& options) {
  std::vector<BenchLine> lines;
  for (const StepBenchCase& bench : options.cases) {
    STEMMA_ASSIGN_OR_RETURN(BenchLine line, StepBench(bench, options.windows).run());
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace stemma
