// TimingProbe: whether somebody can tell by the time of an answer that a prompt was cached, for
// themselves and for others.
//
// It asks with random prompts that nobody has sent before: fresh ones (misses), ones that the same
// key has just sent, and ones that another key has just sent; each once, in random order. The area
// under the ROC curve says how well a time tells a cached prompt from a fresh one: 0.5 not at all,
// 1 always.
//
// Thread:     the caller's; one request at a time.
// Memory:     three times a probe.
// Cost:       five requests a probe.
// Not here:   keeping tenants apart (preparation).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "http/http_client.h"
#include "stemma/result.h"

namespace stemma {

struct TimingProbeOptions {
  HttpAddress server;
  std::string key;        // of the one who probes; empty: none
  std::string other_key;  // of the one who is probed; empty: only the own cache is
  std::int64_t probes = 1000;
  std::int64_t words = 120;  // of a prompt
  std::uint64_t seed = 0;
  std::function<void(std::int64_t done)> progress;  // may be empty
};

struct TimingProbeReport {
  std::int64_t probes = 0;
  double within_auc = 0;             // own prompts against fresh ones
  std::optional<double> across_auc;  // the other's prompts against fresh ones
  double fresh_us = 0;               // medians
  double own_us = 0;
  double others_us = 0;
};

// How often a value of `low` lies below one of `high`, ties counting half: the area under the ROC
// curve of telling them apart. REQUIRES: neither is empty.
double area_under_roc(std::span<const double> low, std::span<const double> high);

// Asks; the first answer that is no completion ends it with an error.
Result<TimingProbeReport> run_timing_probe(const TimingProbeOptions& options);

}  // namespace stemma
