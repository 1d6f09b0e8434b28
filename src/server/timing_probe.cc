#include "server/timing_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/bench_line.h"
#include "base/clock.h"
#include "base/prng.h"

namespace stemma {
namespace {

// Random words: nobody has sent them before.
std::string random_text(Prng& prng, std::int64_t words) {
  std::string text;
  for (std::int64_t i = 0; i < words; ++i) {
    const std::int64_t letters = 3 + prng.below(5);
    for (std::int64_t j = 0; j < letters; ++j) {
      text += static_cast<char>('a' + prng.below(26));
    }
    text += ' ';
  }
  return text;
}

class Prober {
 public:
  Prober(const TimingProbeOptions& options, HttpClient client)
      : options_(options), client_(std::move(client)), prng_(mix64(options.seed)) {}

  Result<TimingProbeReport> run() {
    for (std::int64_t probe = 0; probe < options_.probes; ++probe) {
      STEMMA_RETURN_IF_ERROR(probe_once());
      if (options_.progress) options_.progress(probe + 1);
    }
    TimingProbeReport report = {.probes = options_.probes,
                                .within_auc = area_under_roc(own_us_, fresh_us_),
                                .across_auc = std::nullopt,
                                .fresh_us = median(fresh_us_),
                                .own_us = median(own_us_)};
    if (!others_us_.empty()) {
      report.across_auc = area_under_roc(others_us_, fresh_us_);
      report.others_us = median(others_us_);
    }
    return report;
  }

 private:
  // The order of the three is drawn, so that none is always asked right after another.
  Status probe_once() {
    const std::string own = random_text(prng_, options_.words);
    const std::string others = random_text(prng_, options_.words);
    const std::string fresh = random_text(prng_, options_.words);
    const bool across = !options_.other_key.empty();
    STEMMA_RETURN_IF_ERROR(ask(own, options_.key, nullptr));
    if (across) {
      STEMMA_RETURN_IF_ERROR(ask(others, options_.other_key, nullptr));
    }
    struct Ask {
      const std::string* text;
      std::vector<double>* us;
    };
    std::vector<Ask> asks = {{&own, &own_us_}, {&fresh, &fresh_us_}};
    if (across) asks.push_back({&others, &others_us_});
    for (std::size_t i = asks.size() - 1; i > 0; --i) {
      const std::int64_t other = prng_.below(static_cast<std::int64_t>(i) + 1);
      std::swap(asks[i], asks[static_cast<std::size_t>(other)]);
    }
    for (const Ask& each : asks) {
      STEMMA_RETURN_IF_ERROR(ask(*each.text, options_.key, each.us));
    }
    return {};
  }

  Status ask(const std::string& text, const std::string& key, std::vector<double>* us_or_null) {
    const nlohmann::json body = {{"prompt", text}, {"max_tokens", 1}, {"temperature", 0}};
    HttpClient::Headers headers;
    if (!key.empty()) headers.emplace_back("Authorization", "Bearer " + key);
    const std::int64_t began_us = clock_.now_us();
    STEMMA_ASSIGN_OR_RETURN(const HttpResponse answer,
                            client_.ask("POST", "/v1/completions", body.dump(), headers));
    if (us_or_null != nullptr) {
      us_or_null->push_back(static_cast<double>(clock_.now_us() - began_us));
    }
    if (answer.status == 200) return {};
    return Error{ErrorCode::kUnsupported,
                 fmt::format("the server answers {}: {}", answer.status, answer.body)};
  }

  const TimingProbeOptions& options_;
  HttpClient client_;
  Prng prng_;
  MonotonicClock clock_;
  std::vector<double> fresh_us_;
  std::vector<double> own_us_;
  std::vector<double> others_us_;
};

}  // namespace

double area_under_roc(std::span<const double> low, std::span<const double> high) {
  std::vector<double> sorted(high.begin(), high.end());
  std::sort(sorted.begin(), sorted.end());
  double below = 0;
  for (const double value : low) {
    const auto [first, last] = std::equal_range(sorted.begin(), sorted.end(), value);
    below += static_cast<double>(sorted.end() - last) + static_cast<double>(last - first) / 2;
  }
  return below / (static_cast<double>(low.size()) * static_cast<double>(high.size()));
}

Result<TimingProbeReport> run_timing_probe(const TimingProbeOptions& options) {
  if (options.probes < 1 || options.words < 1) {
    return Error{ErrorCode::kInvalidArgument, "--probes and --words must be at least 1"};
  }
  STEMMA_ASSIGN_OR_RETURN(HttpClient client, HttpClient::connect(options.server));
  return Prober(options, std::move(client)).run();
}

}  // namespace stemma
