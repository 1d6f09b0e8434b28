#include "engine/neighbour_bench.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/thread_pool.h"
#include "engine/generated_engine.h"

namespace stemma {
namespace {

using namespace std::chrono_literals;

constexpr int kCores = 2;
// Of the neighbour: as much processor time as half of a core gives in a period, at once.
constexpr auto kPeriod = 4ms;
constexpr double kBurstSeconds = 0.002;
constexpr std::int64_t kShortPromptTokens = 16;

double seconds_of(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The CPUs that this thread may use.
std::vector<std::size_t> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<std::size_t> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// Burns half of `cpu` as long as it lives: what any other program's thread would do.
class Neighbour {
 public:
  explicit Neighbour(std::size_t cpu)
      : thread_([this, cpu](const std::stop_token& stop) { burn(stop, cpu); }) {}

  // Processor seconds that it has had.
  double cpu_s() const { return cpu_s_.load(std::memory_order_relaxed); }

 private:
  void burn(const std::stop_token& stop, std::size_t cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    STEMMA_CHECK_EQ(pthread_setaffinity_np(pthread_self(), sizeof(set), &set), 0);
    auto next = std::chrono::steady_clock::now();
    double had_s = 0;
    while (!stop.stop_requested()) {
      const double end_s = had_s + kBurstSeconds;
      while (had_s < end_s) had_s = seconds_of(CLOCK_THREAD_CPUTIME_ID);
      cpu_s_.store(had_s, std::memory_order_relaxed);
      next = std::max(next + kPeriod, std::chrono::steady_clock::now());
      std::unique_lock lock(mutex_);
      wake_.wait_until(lock, stop, next, [] { return false; });
    }
  }

  std::atomic<double> cpu_s_ = 0;
  std::mutex mutex_;
  std::condition_variable_any wake_;  // nobody does; it waits until a time
  std::jthread thread_;
};

struct Case {
  std::string phase;
  std::int64_t tokens_a_step = 1;
  int steps = 1;
  ThreadPinning pinning = ThreadPinning::kOff;
  std::size_t cpu = 0;  // the neighbour's
};

class NeighbourBench {
 public:
  NeighbourBench(const NeighbourBenchOptions& options, const Case& bench)
      : options_(options), case_(bench), threads_(kCores, bench.pinning) {}

  Result<BenchLine> run() {
    STEMMA_RETURN_IF_ERROR(open());
    STEMMA_ASSIGN_OR_RETURN(const double unused, sample());
    static_cast<void>(unused);
    for (int pair = 0; pair < options_.pairs; ++pair) {
      for (const bool beside : {pair % 2 == 0, pair % 2 != 0}) {
        STEMMA_RETURN_IF_ERROR(beside ? sample_beside() : sample_alone());
      }
    }
    return line();
  }

 private:
  Status open() {
    GeneratedEngineOptions options;
    options.model = options_.model;
    options.step_tokens_max = std::max(options_.prefill_tokens, kShortPromptTokens);
    options.kv_tokens = 8 * options.step_tokens_max + 4 * options_.decode_steps;
    STEMMA_ASSIGN_OR_RETURN(model_, GeneratedEngine::open(options, threads_));
    STEMMA_ASSIGN_OR_RETURN(engine_, model_->open_engine("radix"));
    return {};
  }

  // Computes, and gives tokens a second.
  Result<double> sample() {
    const bool prefill = case_.phase == "prefill";
    if (!prefill) {
      STEMMA_RETURN_IF_ERROR(submit(kShortPromptTokens, case_.steps + 1));
      engine_->step();
    }
    const double start = seconds_of(CLOCK_MONOTONIC);
    for (int step = 0; step < case_.steps; ++step) {
      if (prefill) STEMMA_RETURN_IF_ERROR(submit(case_.tokens_a_step, 1));
      STEMMA_CHECK_EQ(engine_->step().computed_tokens, case_.tokens_a_step);
    }
    const double seconds = seconds_of(CLOCK_MONOTONIC) - start;
    STEMMA_RETURN_IF_ERROR(drain(*engine_));
    return static_cast<double>(case_.tokens_a_step * case_.steps) / seconds;
  }

  Status submit(std::int64_t prompt_tokens, std::int64_t output_tokens) {
    return submit_prompt(*engine_, drawn_prompt(options_.model, ++prompts_, prompt_tokens),
                         output_tokens);
  }

  Status sample_alone() {
    STEMMA_ASSIGN_OR_RETURN(const double rate, sample());
    alone_.push_back(rate);
    return {};
  }

  Status sample_beside() {
    Neighbour neighbour(case_.cpu);
    const double start = seconds_of(CLOCK_MONOTONIC);
    STEMMA_ASSIGN_OR_RETURN(const double rate, sample());
    const double seconds = seconds_of(CLOCK_MONOTONIC) - start;
    beside_.push_back(rate);
    // A burst that began in the sample may end after it: of a core no more than all.
    shares_.push_back(std::min(neighbour.cpu_s() / seconds, 1.0) / kCores);
    return {};
  }

  BenchLine line() const {
    std::vector<double> kept;  // of the rate alone, pair by pair
    std::vector<double> ratios;
    for (std::size_t i = 0; i < alone_.size(); ++i) {
      kept.push_back(beside_[i] / alone_[i]);
      ratios.push_back(kept.back() / (1 - shares_[i]));
    }
    const bool pinned = case_.pinning == ThreadPinning::kWorkers;
    return {.bench = "neighbour",
            .params = {{"phase", case_.phase},
                       {"threads", std::to_string(kCores)},
                       {"workers", pinned ? "pinned" : "free"},
                       {"neighbour_cpu", std::to_string(case_.cpu)},
                       {"neighbour_share", fmt::format("{:.3f}", median(shares_))},
                       {"fall", fmt::format("{:.3f}", 1 - median(kept))}},
            .value = median(beside_),
            .unit = "tokens/s",
            .bound = median(alone_) * (1 - median(shares_)),
            .bound_name = "alone_less_share",
            .ratio = median(ratios),
            .repeats = options_.pairs,
            .spread = spread(ratios)};
  }

  const NeighbourBenchOptions& options_;
  Case case_;
  ThreadPool threads_;
  std::unique_ptr<GeneratedEngine> model_;
  std::unique_ptr<Engine> engine_;
  std::int64_t prompts_ = 0;
  std::vector<double> alone_;
  std::vector<double> beside_;
  std::vector<double> shares_;
};

}  // namespace

NeighbourBenchOptions default_neighbour_bench() {
  NeighbourBenchOptions options;
  options.model = small_bench_config();
  return options;
}

Result<std::vector<BenchLine>> bench_neighbour(const NeighbourBenchOptions& options) {
  std::vector<BenchLine> lines;
  const std::vector<std::size_t> cpus = allowed_cpus();
  if (cpus.size() != kCores) return lines;
  for (const ThreadPinning pinning : {ThreadPinning::kOff, ThreadPinning::kWorkers}) {
    for (const std::size_t cpu : cpus) {
      for (const Case& bench :
           {Case{"prefill", options.prefill_tokens, options.prefill_steps, pinning, cpu},
            Case{"decode", 1, options.decode_steps, pinning, cpu}}) {
        STEMMA_ASSIGN_OR_RETURN(BenchLine line, NeighbourBench(options, bench).run());
        lines.push_back(std::move(line));
      }
    }
  }
  return lines;
}

}  // namespace stemma
