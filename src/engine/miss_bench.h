// Benchmark of what the cache costs where it cannot help: prompts that share nothing.
//
// Thread:     one: waiting threads would count as work.
// Memory:     the weights of a small model.
// Cost:       half a minute at the default size.
// Not here:   what lower tiers cost (bench_tier_serving).
#pragma once

#include <cstdint>
#include <vector>

#include "base/bench_line.h"
#include "model/config.h"
#include "stemma/result.h"

namespace stemma {

struct MissBenchOptions {
  ModelConfig model;  // weights are made up, bf16
  std::int64_t requests = 4;
  std::int64_t prompt_tokens = 128;
  std::int64_t output_tokens = 32;
  int pairs = 15;
};

MissBenchOptions default_miss_bench();

// Processor seconds of the process for requests none of which finds anything, with the radix cache;
// bound: with no cache, by turns (`no_cache`; ratio: value / bound, the median of the pairs, at
// most 1.005 is wanted).
Result<std::vector<BenchLine>> bench_misses(const MissBenchOptions& options);

}  // namespace stemma
