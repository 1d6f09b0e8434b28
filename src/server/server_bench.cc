#include "server/server_bench.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/prng.h"
#include "http/http_client.h"
#include "server/server.h"
#include "stemma/log.h"

namespace stemma {
namespace {

constexpr std::int64_t kConcurrency = 16;
constexpr int kRepeats = 5;

using Prompts = std::vector<std::vector<TokenId>>;

std::vector<TokenId> drawn(Prng& prng, std::int64_t tokens) {
  std::vector<TokenId> text;
  for (std::int64_t i = 0; i < tokens; ++i) text.push_back(static_cast<TokenId>(prng.below(2000)));
  return text;
}

// 1,500 tokens that all share, 8 groups that share 500 more, 50 of their own; shuffled.
Prompts family(Prng& prng) {
  Prompts prompts;
  const std::vector<TokenId> system = drawn(prng, 1500);
  for (int group = 0; group < 8; ++group) {
    const std::vector<TokenId> shared = drawn(prng, 500);
    for (int i = 0; i < 4; ++i) {
      std::vector<TokenId>& prompt = prompts.emplace_back(system);
      prompt.insert(prompt.end(), shared.begin(), shared.end());
      const std::vector<TokenId> own = drawn(prng, 50);
      prompt.insert(prompt.end(), own.begin(), own.end());
    }
  }
  for (std::size_t i = prompts.size() - 1; i > 0; --i) {
    const auto other = static_cast<std::size_t>(prng.below(static_cast<std::int64_t>(i) + 1));
    std::swap(prompts[i], prompts[other]);
  }
  return prompts;
}

ServedModelOptions model_options(const std::string& directory) {
  ServedModelOptions options;
  options.directory = directory;
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  options.engine.kv.requests_max = kConcurrency;
  options.engine.kv.context_tokens_max = 4096;
  options.engine.scheduler.chunk_tokens_max = 512;
  options.engine.scheduler.step_tokens_max = 512;
  options.engine.scheduler.waiting_max = 1024;
  options.engine.inbox_max = 1024;
  return options;
}

// The same model twice: an engine that is given prompts directly, and one behind a server.
class Trial {
 public:
  static Result<std::unique_ptr<Trial>> open(const std::string& directory) {
    auto trial = std::make_unique<Trial>();
    STEMMA_ASSIGN_OR_RETURN(trial->direct_model_, ServedModel::open(model_options(directory)));
    STEMMA_ASSIGN_OR_RETURN(trial->engine_, trial->direct_model_->open_engine());
    STEMMA_ASSIGN_OR_RETURN(trial->served_model_, ServedModel::open(model_options(directory)));
    ServerOptions options;
    options.http.port = 0;
    options.api.model_name = "bench";
    STEMMA_ASSIGN_OR_RETURN(trial->server_, Server::open(options, *trial->served_model_));
    trial->serving_ = std::jthread([server = trial->server_.get()] { server->run(); });
    return trial;
  }
  ~Trial() {
    if (serving_.joinable()) server_->drain(std::chrono::microseconds(0));
  }

  // Microseconds that all prompts took, tokens and text included.
  double run_direct(const Prompts& prompts, std::int64_t max_tokens) {
    const std::int64_t began_us = clock_.now_us();
    std::vector<TextGeneration> texts;
    std::int64_t first = -1;
    for (const std::vector<TokenId>& prompt : prompts) {
      RequestSpec spec;
      spec.prompt = prompt;
      spec.max_tokens = max_tokens;
      spec.namespace_digest = direct_model_->namespace_digest();
      const Result<RequestId> id = engine_->submit(std::move(spec));
      STEMMA_CHECK(id.ok(), "the queue is long enough");
      if (first < 0) first = id->value();
      texts.emplace_back(direct_model_->tokenizer(), TextRules());
    }
    std::string out;
    while (!engine_->idle()) {
      for (const EngineEvent& event : engine_->step().events) {
        TextGeneration& text = texts[static_cast<std::size_t>(event.request.value() - first)];
        if (event.token >= 0) text.push(event.token, out);
      }
    }
    return static_cast<double>(clock_.now_us() - began_us);
  }

  // The same over HTTP, with `clients` of them at a time.
  Result<double> run_served(const Prompts& prompts, std::int64_t max_tokens, std::int64_t clients) {
    std::vector<std::string> bodies;
    for (const std::vector<TokenId>& prompt : prompts) {
      bodies.push_back(nlohmann::json({{"prompt", prompt},
                                       {"max_tokens", max_tokens},
                                       {"temperature", 0},
                                       {"ignore_eos", true}})
                           .dump());
    }
    std::vector<HttpClient> connections;
    for (std::int64_t i = 0; i < clients; ++i) {
      STEMMA_ASSIGN_OR_RETURN(HttpClient client,
                              HttpClient::connect({"127.0.0.1", server_->port()}));
      connections.push_back(std::move(client));
    }
    std::atomic<std::size_t> next = 0;
    std::atomic<std::int64_t> failed = 0;
    const std::int64_t began_us = clock_.now_us();
    {
      std::vector<std::jthread> threads;
      threads.reserve(connections.size());
      for (HttpClient& client : connections) {
        threads.emplace_back([&] {
          for (std::size_t i = next++; i < bodies.size(); i = next++) {
            const auto answer = client.ask("POST", "/v1/completions", bodies[i]);
            if (!answer.ok() || answer->status != 200) ++failed;
          }
        });
      }
    }
    if (failed.load() > 0) return Error{ErrorCode::kInternal, "bench: an answer failed"};
    return static_cast<double>(clock_.now_us() - began_us);
  }

 private:
  MonotonicClock clock_;
  std::unique_ptr<ServedModel> direct_model_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ServedModel> served_model_;
  std::unique_ptr<Server> server_;
  std::jthread serving_;
};

BenchLine line_of(std::string name, std::string unit, std::string bound_name,
                  std::span<const double> values, double bound) {
  BenchLine line;
  line.bench = "server";
  line.params = {{"case", std::move(name)}};
  line.value = median(values);
  line.unit = std::move(unit);
  line.bound = bound;
  line.bound_name = std::move(bound_name);
  line.repeats = static_cast<int>(values.size());
  line.spread = spread(values);
  return line;
}

// Each prompt is asked directly and over HTTP, in an order that changes.
Result<BenchLine> bench_alone(Trial& trial, Prng& prng) {
  std::vector<double> direct;
  std::vector<double> served;
  std::vector<double> more;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    direct.clear();
    served.clear();
    for (int i = 0; i < 100; ++i) {
      const Prompts prompt = {drawn(prng, 100)};
      const bool served_first = i % 2 == 0;
      if (!served_first) direct.push_back(trial.run_direct(prompt, 8));
      STEMMA_ASSIGN_OR_RETURN(const double us, trial.run_served(prompt, 8, 1));
      served.push_back(us);
      if (served_first) direct.push_back(trial.run_direct(prompt, 8));
    }
    more.push_back(median(served) - median(direct));
  }
  BenchLine line = line_of("alone", "us", "one_ms", more, 1000);
  line.params.emplace_back("directly_us",
                           std::to_string(static_cast<std::int64_t>(median(direct))));
  line.ratio = line.bound / std::max(line.value, 1.0);
  return line;
}

Result<BenchLine> bench_family(Trial& trial, Prng& prng) {
  std::vector<double> direct;
  std::vector<double> served;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const Prompts prompts = family(prng);
    if (repeat % 2 == 0) direct.push_back(trial.run_direct(prompts, 16) / 1e6);
    STEMMA_ASSIGN_OR_RETURN(const double us, trial.run_served(prompts, 16, kConcurrency));
    served.push_back(us / 1e6);
    if (repeat % 2 != 0) direct.push_back(trial.run_direct(prompts, 16) / 1e6);
  }
  BenchLine line = line_of("32_prompts", "s", "directly", served, median(direct));
  line.ratio = line.bound / line.value;
  return line;
}

Result<BenchLine> bench_throughput(Trial& trial, Prng& prng) {
  constexpr std::int64_t kPrompts = 64;
  constexpr std::int64_t kOutput = 128;
  const auto per_second = [](double us) {
    return static_cast<double>(kPrompts * kOutput) / us * 1e6;
  };
  std::vector<double> direct;
  std::vector<double> served;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    Prompts prompts;
    for (std::int64_t i = 0; i < kPrompts; ++i) prompts.push_back(drawn(prng, 128));
    if (repeat % 2 == 0) direct.push_back(per_second(trial.run_direct(prompts, kOutput)));
    STEMMA_ASSIGN_OR_RETURN(const double us, trial.run_served(prompts, kOutput, kConcurrency));
    served.push_back(per_second(us));
    if (repeat % 2 != 0) direct.push_back(per_second(trial.run_direct(prompts, kOutput)));
  }
  BenchLine line = line_of("64_prompts", "tokens/s", "directly", served, median(direct));
  line.ratio = line.value / line.bound;
  return line;
}

}  // namespace

Result<std::vector<BenchLine>> bench_server(const std::string& directory) {
  set_log_level(LogLevel::kWarning);
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, Trial::open(directory));
  Prng prng(20261122);
  trial->run_direct({drawn(prng, 600)}, 16);
  STEMMA_ASSIGN_OR_RETURN(const double warm_us, trial->run_served({drawn(prng, 600)}, 16, 1));
  static_cast<void>(warm_us);
  std::vector<BenchLine> lines;
  for (const auto bench : {bench_alone, bench_family, bench_throughput}) {
    STEMMA_ASSIGN_OR_RETURN(BenchLine line, bench(*trial, prng));
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace stemma
