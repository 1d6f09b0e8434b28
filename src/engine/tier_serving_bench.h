// Benchmarks of serving with lower tiers: what a stored prefix saves after a restart, and what
// tiers cost where they cannot help.
//
// Thread:     one, and the lanes'.
// Memory:     the models, twice where two are compared.
// Cost:       minutes at the default size: it computes a prompt of 4,096 tokens on the CPU.
// Not here:   copies and stores by themselves (bench_host_copies, bench_disk, bench_redis).
#pragma once

#include <vector>

#include "base/bench_line.h"
#include "model/config.h"
#include "stemma/result.h"

namespace stemma {

struct TierServingBenchOptions {
  ModelConfig model;                 // random weights, bf16
  std::int64_t prefix_tokens = 0;    // of the prompt that comes back from the disk
  std::int64_t unshared_tokens = 0;  // of each prompt that no tier has
  int pairs = 0;                     // of runs with tiers and without
};

// The shape of Qwen2.5-0.5B; a prefix of 4,096 tokens; 12 pairs.
TierServingBenchOptions default_tier_serving_bench();

// benefit: milliseconds to the first token after a restart, with the prefix in the disk tier;
//   bound: a fiftieth of computing it (ratio: bound / value, at least 1 is wanted).
// harm: process CPU seconds of prompts that nothing has, with host memory, disk and write-through;
//   bound: the same without tiers, in turns (ratio: value / bound, at most 1.01 is wanted).
// hung: milliseconds to the first token with a disk tier that answers no read, behind no breaker,
// of
//   engines that have served before; bound: without tiers (param extra_ms, at most 50 wanted;
//   first_extra_ms: of their first request, which computes in small steps until it knows its pace).
Result<std::vector<BenchLine>> bench_tier_serving(const TierServingBenchOptions& options);

}  // namespace stemma
