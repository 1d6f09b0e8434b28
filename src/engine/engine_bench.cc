#include "engine/engine_bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/thread_pool.h"
#include "device/buffer.h"
#include "device/machine_probe.h"
#include "device/simd_target.h"
#include "engine/generated_engine.h"
#include "model/weights.h"

namespace stemma {
namespace {

constexpr std::int64_t kShortPromptTokens = 16;
constexpr std::size_t kReadBytesMax = std::size_t{1} << 29;
constexpr double kBf16Bytes = 2;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// How many weights a token is multiplied with.
struct WeightCount {
  double body = 0;  // of all layers
  double head = 0;
};

WeightCount count_weights(const ModelConfig& config) {
  WeightCount count;
  for (const TensorSpec& tensor : needed_tensors(config)) {
    if (tensor.shape.size() != 2) continue;
    const auto weights =
        static_cast<double>(tensor.shape[0]) * static_cast<double>(tensor.shape[1]);
    if (tensor.shape[0] != config.vocab_tokens) count.body += weights;
  }
  count.head = static_cast<double>(config.vocab_tokens) * static_cast<double>(config.hidden);
  return count;
}

// Output tokens of a request that decodes until nothing is measured any more.
std::int64_t decoded_tokens(const EngineBenchOptions& options) {
  return std::int64_t{options.repeats} * options.decode_steps + 2;
}

// What is measured against: by turns with the engine's steps, on the same threads.
class Bounds {
 public:
  static Result<Bounds> create(std::size_t weight_bytes, ThreadPool& threads) {
    constexpr std::size_t kLineBytes = 128;
    const std::size_t bytes = std::min(weight_bytes, kReadBytesMax) / kLineBytes * kLineBytes;
    STEMMA_ASSIGN_OR_RETURN(Buffer area, Buffer::allocate(bytes));
    area.prefault(threads);
    return Bounds(std::move(area), threads);
  }

  double fma_peak() const {
    constexpr int kWindows = 5;
    std::array<double, kWindows> windows{};
    for (double& window : windows) window = fma_peak_now_gflop_per_s(threads_);
    return median(windows);
  }

  double read_gb_per_s() const {
    const std::span<const std::byte> area(area_.bytes(), area_.size_bytes());
    return read_pass_gb_per_s(std::span(&area, 1), threads_);
  }

 private:
  Bounds(Buffer area, ThreadPool& threads) : area_(std::move(area)), threads_(threads) {}

  Buffer area_;
  ThreadPool& threads_;
};

enum class Phase : std::uint8_t { kPrefill, kDecode };

struct Case {
  Phase phase = Phase::kPrefill;
  std::int64_t requests = 1;
  std::int64_t prompt_tokens = 0;
  double work_a_step = 0;  // in 1e9 of the unit
  bool reads = false;      // bound by reading weights, not by operations
};

class EngineBench {
 public:
  EngineBench(const EngineBenchOptions& options, const GeneratedEngine& model, const Bounds& bounds,
              int threads)
      : options_(options), model_(model), bounds_(bounds), threads_(threads) {}

  // The prompts of the first case touch all memory that a step uses for the first time.
  Result<std::vector<BenchLine>> run() {
    const WeightCount weights = count_weights(options_.model);
    const auto prompt = static_cast<double>(options_.prefill_tokens);
    const auto many = static_cast<double>(options_.decode_requests);
    const double decode = weights.body + weights.head;
    const std::array cases = {
        Case{Phase::kDecode, options_.decode_requests, kShortPromptTokens, 2e-9 * many * decode,
             false},
        Case{Phase::kDecode, 1, kShortPromptTokens, kBf16Bytes * 1e-9 * decode, true},
        Case{Phase::kPrefill, 1, options_.prefill_tokens,
             2e-9 * (prompt * weights.body + weights.head), false},
    };
    std::vector<BenchLine> lines;
    for (const Case& bench : cases) {
      STEMMA_ASSIGN_OR_RETURN(BenchLine line, measure(bench));
      lines.push_back(std::move(line));
    }
    return lines;
  }

 private:
  double bound_of(const Case& bench) const {
    return bench.reads ? bounds_.read_gb_per_s() : bounds_.fma_peak();
  }

  Result<BenchLine> measure(const Case& bench) {
    STEMMA_ASSIGN_OR_RETURN(const auto engine, model_.open_engine("radix"));
    if (bench.phase == Phase::kDecode) STEMMA_RETURN_IF_ERROR(begin_decoding(*engine, bench));
    std::vector<double> values;
    std::vector<double> bounds;
    std::vector<double> ratios;
    double before = bound_of(bench);
    for (int repeat = 0; repeat < options_.repeats; ++repeat) {
      STEMMA_ASSIGN_OR_RETURN(const double seconds, sample_seconds(*engine, bench));
      const double after = bound_of(bench);
      bounds.push_back((std::exchange(before, after) + after) / 2);
      values.push_back(bench.work_a_step / seconds);
      ratios.push_back(values.back() / bounds.back());
    }
    return BenchLine{.bench = "engine",
                     .params = {{"phase", bench.phase == Phase::kDecode ? "decode" : "prefill"},
                                {"requests", std::to_string(bench.requests)},
                                {"prompt_tokens", std::to_string(bench.prompt_tokens)},
                                {"weights", "bf16"},
                                {"threads", std::to_string(threads_)},
                                {"simd", std::string(simd_target_name())}},
                     .value = median(values),
                     .unit = bench.reads ? "gb/s" : "gflop/s",
                     .bound = median(bounds),
                     .bound_name = bench.reads ? "read_bandwidth" : "fma_peak",
                     .ratio = median(ratios),
                     .repeats = options_.repeats,
                     .spread = spread(ratios)};
  }

  // All prompts fit into one step, and no request ends before the last sample.
  Status begin_decoding(Engine& engine, const Case& bench) {
    for (std::int64_t i = 0; i < bench.requests; ++i) {
      STEMMA_RETURN_IF_ERROR(submit_prompt(engine, next_prompt(bench), decoded_tokens(options_)));
    }
    const auto seconds = step_seconds(engine, bench.requests * bench.prompt_tokens);
    return seconds.ok() ? Status() : Status(seconds.error());
  }

  // A prompt that nothing has, or the middle one of some steps of requests that all run.
  Result<double> sample_seconds(Engine& engine, const Case& bench) {
    if (bench.phase == Phase::kPrefill) {
      STEMMA_RETURN_IF_ERROR(submit_prompt(engine, next_prompt(bench), 1));
      return step_seconds(engine, bench.prompt_tokens);
    }
    std::vector<double> seconds;
    for (int step = 0; step < options_.decode_steps; ++step) {
      STEMMA_ASSIGN_OR_RETURN(const double of_one, step_seconds(engine, bench.requests));
      seconds.push_back(of_one);
    }
    return median(seconds);
  }

  Result<double> step_seconds(Engine& engine, std::int64_t tokens) {
    const double start = seconds_now();
    const StepReport report = engine.step();
    const double seconds = seconds_now() - start;
    for (const EngineEvent& event : report.events) {
      if (event.finish == FinishReason::kFailed) return event.error;
    }
    STEMMA_CHECK_EQ(report.computed_tokens, tokens);
    return seconds;
  }

  std::vector<TokenId> next_prompt(const Case& bench) {
    return drawn_prompt(options_.model, ++prompts_, bench.prompt_tokens);
  }

  const EngineBenchOptions& options_;
  const GeneratedEngine& model_;
  const Bounds& bounds_;
  int threads_;
  std::int64_t prompts_ = 0;
};

Result<std::vector<BenchLine>> bench_with_threads(const EngineBenchOptions& options, int threads) {
  ThreadPool pool(threads, ThreadPinning::kWorkers);
  GeneratedEngineOptions engine;
  engine.model = options.model;
  engine.requests_max = options.decode_requests;
  engine.step_tokens_max =
      std::max(options.prefill_tokens, options.decode_requests * kShortPromptTokens);
  engine.kv_tokens =
      std::max(4 * options.prefill_tokens,
               options.decode_requests * (kShortPromptTokens + decoded_tokens(options) + 16));
  STEMMA_ASSIGN_OR_RETURN(const auto model, GeneratedEngine::open(engine, pool));
  const WeightCount weights = count_weights(options.model);
  const auto weight_bytes = static_cast<std::size_t>(kBf16Bytes * (weights.body + weights.head));
  STEMMA_ASSIGN_OR_RETURN(const Bounds bounds, Bounds::create(weight_bytes, pool));
  return EngineBench(options, *model, bounds, threads).run();
}

}  // namespace

EngineBenchOptions default_engine_bench() {
  EngineBenchOptions options;
  options.model = half_billion_config();
  return options;
}

Result<std::vector<BenchLine>> bench_engine(const EngineBenchOptions& options) {
  STEMMA_ASSIGN_OR_RETURN(std::vector<BenchLine> lines, bench_with_threads(options, 1));
  if (options.threads_max == 1) return lines;
  ThreadPool pair(2, ThreadPinning::kWorkers);
  const double ratio_before = two_core_ratio(pair);
  STEMMA_ASSIGN_OR_RETURN(std::vector<BenchLine> many,
                          bench_with_threads(options, options.threads_max));
  const double ratio = std::min(ratio_before, two_core_ratio(pair));
  for (BenchLine& line : many) {
    line.params.emplace_back("two_core_ratio", std::to_string(ratio));
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace stemma
