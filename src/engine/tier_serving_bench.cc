#include "engine/tier_serving_bench.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <ctime>
#include <memory>
#include <mutex>
#include <utility>

#include "base/prng.h"
#include "base/temp_directory.h"
#include "engine/generated_engine.h"
#include "engine/served_model.h"
#include "model/random_model.h"
#include "tier/memory_page_store.h"
#include "tier/tier_stack.h"

namespace stemma {
namespace {

constexpr std::chrono::seconds kSettleTime(60);

struct Run {
  RequestStats stats;
  double cpu_s = 0;
};

double cpu_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::vector<TokenId> drawn_prompt(std::int64_t seed, std::int64_t tokens) {
  Prng prng(static_cast<std::uint64_t>(seed));
  std::vector<TokenId> prompt;
  for (std::int64_t i = 0; i < tokens; ++i) {
    prompt.push_back(static_cast<TokenId>(prng.below(256)));
  }
  return prompt;
}

Result<Run> answer(Engine& engine, std::vector<TokenId> prompt) {
  RequestSpec spec;
  spec.prompt = std::move(prompt);
  spec.max_tokens = 1;
  const double begin_s = cpu_seconds();
  STEMMA_RETURN_IF_ERROR(engine.submit(std::move(spec)));
  for (;;) {
    for (const EngineEvent& event : engine.step().events) {
      if (event.finish == FinishReason::kFailed) return event.error;
      if (event.finish != FinishReason::kNone) return Run{event.stats, cpu_seconds() - begin_s};
    }
  }
}

// Knows every page and gives none until its deadline.
class HungStore final : public PageStore {
 public:
  Tier tier() const override { return Tier::kDisk; }
  std::string_view name() const override { return "hung"; }
  void describe(const NamespaceDigest&, std::string_view) override {}
  Result<std::int64_t> lookup(std::span<const PageKey> keys, std::int64_t) override {
    return static_cast<std::int64_t>(keys.size());
  }
  bool lookup_is_local() const override { return true; }
  void read(std::span<PageRead>, std::int64_t deadline_us) override {
    std::unique_lock lock(mutex_);
    never_.wait_for(lock, std::chrono::microseconds(deadline_us - clock_.now_us()));
  }
  void write(std::span<PageWrite> writes, std::int64_t) override {
    for (PageWrite& write : writes) write.verdict = PageVerdict::kRefused;
  }
  void remove(std::span<const PageRemoval>, std::int64_t) override {}
  PurgeOutcome purge(std::span<const NamespaceFamily>, std::int64_t) override { return {}; }
  PageStoreUsage usage() const override { return {}; }
  void visit_metrics(MetricVisitor&) const override {}

 private:
  MonotonicClock clock_;
  std::mutex mutex_;
  std::condition_variable never_;
};

class TierServingBench {
 public:
  explicit TierServingBench(const TierServingBenchOptions& options) : options_(options) {}

  Result<std::vector<BenchLine>> run() {
    STEMMA_RETURN_IF_ERROR(
        write_random_model(files_.path(), {.config = options_.model, .type = WeightType::kBf16}));
    std::vector<BenchLine> lines(3);
    STEMMA_ASSIGN_OR_RETURN(lines[0], benefit());
    STEMMA_ASSIGN_OR_RETURN(lines[1], harm());
    STEMMA_ASSIGN_OR_RETURN(lines[2], hung());
    return lines;
  }

 private:
  ServedModelOptions serving(bool tiers) const {
    ServedModelOptions serving;
    serving.directory = files_.path();
    serving.kv_bytes = std::int64_t{256} << 20;
    serving.threads = 2;
    serving.engine.kv.requests_max = 4;
    serving.engine.kv.context_tokens_max = 0;  // the model's
    serving.engine.scheduler.step_tokens_max = 512;
    serving.engine.scheduler.chunk_tokens_max = 512;
    if (!tiers) return serving;
    serving.tiers.host_bytes = std::int64_t{256} << 20;
    serving.tiers.disk_directory = disk_.path();
    serving.tiers.disk_bytes = std::int64_t{2} << 30;
    return serving;
  }

  Result<BenchLine> benefit() {
    constexpr int kRestarts = 5;
    const auto prompt = drawn_prompt(1, options_.prefix_tokens + 1);
    double computed_ms = 0;
    std::vector<double> loaded_ms;
    std::vector<double> from_disk;
    for (int life = 0; life <= kRestarts; ++life) {
      STEMMA_ASSIGN_OR_RETURN(const auto model, ServedModel::open(serving(true)));
      STEMMA_ASSIGN_OR_RETURN(const auto engine, model->open_engine());
      STEMMA_ASSIGN_OR_RETURN(const Run run, answer(*engine, prompt));
      const double ttft_ms = static_cast<double>(run.stats.ttft_us) / 1000;
      if (life == 0) {
        computed_ms = ttft_ms;
        engine->settle(kSettleTime);
      } else {
        loaded_ms.push_back(ttft_ms);
        from_disk.push_back(static_cast<double>(run.stats.brought.disk));
      }
    }
    BenchLine line = {.bench = "tier",
                      .params = {{"case", "benefit"},
                                 {"prefix_tokens", std::to_string(options_.prefix_tokens)},
                                 {"from_disk_tokens", fmt::format("{}", median(from_disk))},
                                 {"computing_ms", fmt::format("{:.1f}", computed_ms)}},
                      .value = median(loaded_ms),
                      .unit = "ms",
                      .bound = computed_ms / 50,
                      .bound_name = "computing/50"};
    line.ratio = line.bound / line.value;
    line.repeats = kRestarts;
    line.spread = spread(loaded_ms);
    return line;
  }

  // Pairs of equal work in turns, each pair in another order.
  Result<BenchLine> harm() {
    STEMMA_ASSIGN_OR_RETURN(const auto with, ServedModel::open(serving(true)));
    STEMMA_ASSIGN_OR_RETURN(const auto without, ServedModel::open(serving(false)));
    STEMMA_ASSIGN_OR_RETURN(const auto engine_with, with->open_engine());
    STEMMA_ASSIGN_OR_RETURN(const auto engine_without, without->open_engine());
    std::vector<double> with_s;
    std::vector<double> without_s;
    std::vector<double> ratios;
    for (int pair = -1; pair < options_.pairs; ++pair) {
      const auto prompt = drawn_prompt(std::int64_t{1000} + pair, options_.unshared_tokens);
      Engine& first = pair % 2 == 0 ? *engine_with : *engine_without;
      Engine& second = pair % 2 == 0 ? *engine_without : *engine_with;
      STEMMA_ASSIGN_OR_RETURN(const Run one, answer(first, prompt));
      STEMMA_ASSIGN_OR_RETURN(const Run two, answer(second, prompt));
      if (pair < 0) continue;  // memory is touched for the first time
      with_s.push_back(pair % 2 == 0 ? one.cpu_s : two.cpu_s);
      without_s.push_back(pair % 2 == 0 ? two.cpu_s : one.cpu_s);
      ratios.push_back(with_s.back() / without_s.back());
    }
    return BenchLine{.bench = "tier",
                     .params = {{"case", "harm"},
                                {"prompt_tokens", std::to_string(options_.unshared_tokens)},
                                {"hits", "0%"}},
                     .value = median(with_s),
                     .unit = "cpu_s",
                     .bound = median(without_s),
                     .bound_name = "tiers_off",
                     .ratio = median(ratios),
                     .repeats = options_.pairs,
                     .spread = spread(ratios)};
  }

  // Pairs in turns. The first, of engines that do not know their pace yet, stands by itself.
  Result<BenchLine> hung() {
    constexpr int kPairs = 24;
    STEMMA_ASSIGN_OR_RETURN(const auto with, ServedModel::open(serving(false)));
    STEMMA_ASSIGN_OR_RETURN(const auto without, ServedModel::open(serving(false)));
    STEMMA_ASSIGN_OR_RETURN(const auto stack, hung_tiers(with->pool()));
    STEMMA_ASSIGN_OR_RETURN(const auto engine_with, open_engine(*with, stack.get()));
    STEMMA_ASSIGN_OR_RETURN(const auto engine_without, open_engine(*without, nullptr));
    double first_extra_ms = 0;
    std::vector<double> extra_ms;
    std::vector<double> with_ms;
    std::vector<double> without_ms;
    for (int pair = -1; pair < kPairs; ++pair) {
      const auto prompt = drawn_prompt(std::int64_t{5000} + pair, options_.unshared_tokens);
      Engine& first = pair % 2 == 0 ? *engine_with : *engine_without;
      Engine& second = pair % 2 == 0 ? *engine_without : *engine_with;
      STEMMA_ASSIGN_OR_RETURN(const double one, ttft_ms(first, prompt));
      STEMMA_ASSIGN_OR_RETURN(const double two, ttft_ms(second, prompt));
      const double hung = pair % 2 == 0 ? one : two;
      const double plain = pair % 2 == 0 ? two : one;
      if (pair < 0) {
        first_extra_ms = hung - plain;
        continue;
      }
      with_ms.push_back(hung);
      without_ms.push_back(plain);
      extra_ms.push_back(hung - plain);
    }
    return BenchLine{.bench = "tier",
                     .params = {{"case", "hung"},
                                {"prompt_tokens", std::to_string(options_.unshared_tokens)},
                                {"extra_ms", fmt::format("{:.1f}", median(extra_ms))},
                                {"first_extra_ms", fmt::format("{:.1f}", first_extra_ms)}},
                     .value = median(with_ms),
                     .unit = "ms",
                     .bound = median(without_ms),
                     .bound_name = "tiers_off",
                     .ratio = median(with_ms) / median(without_ms),
                     .repeats = kPairs,
                     .spread = spread(with_ms)};
  }

  Result<std::unique_ptr<TierStack>> hung_tiers(KvPool& pool) {
    std::vector<std::unique_ptr<PageStore>> stores;
    stores.push_back(std::make_unique<HungStore>());
    ThreadPool threads(1);
    return TierStack::open({.host_bytes = std::int64_t{64} << 20}, pool, std::move(stores), threads,
                           clock_);
  }

  Result<std::unique_ptr<Engine>> open_engine(ServedModel& model, LowerTiers* tiers_or_null) {
    EngineOptions options = model.engine_options();
    options.kv.tiers.store_deadline_us = 300'000;
    return Engine::open(options, {.runner = model.runner(),
                                  .pools = {model.pool()},
                                  .vocab_tokens = options_.model.vocab_tokens,
                                  .clock = clock_,
                                  .lower_tiers = tiers_or_null});
  }

  static Result<double> ttft_ms(Engine& engine, const std::vector<TokenId>& prompt) {
    STEMMA_ASSIGN_OR_RETURN(const Run run, answer(engine, prompt));
    return static_cast<double>(run.stats.ttft_us) / 1000;
  }

  TierServingBenchOptions options_;
  MonotonicClock clock_;
  TempDirectory files_;
  TempDirectory disk_;
};

}  // namespace

TierServingBenchOptions default_tier_serving_bench() {
  TierServingBenchOptions options;
  options.model = half_billion_config();
  options.prefix_tokens = 4096;
  options.unshared_tokens = 256;
  options.pairs = 12;
  return options;
}

Result<std::vector<BenchLine>> bench_tier_serving(const TierServingBenchOptions& options) {
  return TierServingBench(options).run();
}

}  // namespace stemma
