// Both engines write to the same pool, by turns: nothing that one has cached is ever asked for
// again.
#include "engine/miss_bench.h"

#include <ctime>
#include <memory>
#include <string>

#include "base/check.h"
#include "base/thread_pool.h"
#include "engine/generated_engine.h"

namespace stemma {
namespace {

double cpu_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Result<double> answer_s(Engine& engine, const MissBenchOptions& options, std::int64_t round) {
  for (std::int64_t i = 0; i < options.requests; ++i) {
    const std::int64_t seed = round * options.requests + i;
    STEMMA_RETURN_IF_ERROR(submit_prompt(
        engine, drawn_prompt(options.model, seed, options.prompt_tokens), options.output_tokens));
  }
  const double start = cpu_seconds();
  STEMMA_RETURN_IF_ERROR(drain(engine));
  return cpu_seconds() - start;
}

}  // namespace

MissBenchOptions default_miss_bench() {
  MissBenchOptions options;
  options.model = small_bench_config();
  return options;
}

Result<std::vector<BenchLine>> bench_misses(const MissBenchOptions& options) {
  ThreadPool threads(1);
  GeneratedEngineOptions opening;
  opening.model = options.model;
  opening.requests_max = options.requests;
  opening.step_tokens_max = options.requests * options.prompt_tokens;
  // Room for twice what runs at once: most of what is published is evicted while it is measured.
  opening.kv_tokens = 2 * options.requests * (options.prompt_tokens + options.output_tokens + 16);
  STEMMA_ASSIGN_OR_RETURN(const auto model, GeneratedEngine::open(opening, threads));
  STEMMA_ASSIGN_OR_RETURN(const auto with, model->open_engine("radix"));
  STEMMA_ASSIGN_OR_RETURN(const auto without, model->open_engine("none"));
  std::vector<double> with_s;
  std::vector<double> without_s;
  std::vector<double> ratios;
  for (int pair = -1; pair < options.pairs; ++pair) {
    const bool with_first = pair % 2 == 0;
    STEMMA_ASSIGN_OR_RETURN(const double first,
                            answer_s(with_first ? *with : *without, options, pair + 2));
    STEMMA_ASSIGN_OR_RETURN(const double second,
                            answer_s(with_first ? *without : *with, options, pair + 2));
    if (pair < 0) continue;  // memory is touched for the first time
    with_s.push_back(with_first ? first : second);
    without_s.push_back(with_first ? second : first);
    ratios.push_back(with_s.back() / without_s.back());
  }
  STEMMA_CHECK_EQ(with->totals().cached_tokens, 0);
  return std::vector<BenchLine>{
      {.bench = "misses",
       .params = {{"requests", std::to_string(options.requests)},
                  {"prompt_tokens", std::to_string(options.prompt_tokens)},
                  {"output_tokens", std::to_string(options.output_tokens)},
                  {"hits", "0%"},
                  {"threads", "1"}},
       .value = median(with_s),
       .unit = "cpu_s",
       .bound = median(without_s),
       .bound_name = "no_cache",
       .ratio = median(ratios),
       .repeats = options.pairs,
       .spread = spread(ratios)}};
}

}  // namespace stemma
