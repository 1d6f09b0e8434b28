// Benchmark of what a step costs beside its model: messages, scheduling, page tables, the plan of
// attention, events and commits, with a model that computes nothing and a cache that is full.
//
// Thread:     one.
// Memory:     20 MB for 100,000 cached pages, 200 MB for a million.
// Cost:       seconds.
// Not here:   sampling (it sees 8 logits a request), the model (bench_engine).
#pragma once

#include <cstdint>
#include <vector>

#include "base/bench_line.h"
#include "stemma/result.h"

namespace stemma {

struct StepBenchCase {
  std::int64_t requests = 0;        // that decode at once
  std::int64_t cached_pages = 0;    // the pool is full of them
  std::int64_t context_tokens = 0;  // of a request's prompt
};

struct StepBenchOptions {
  std::vector<StepBenchCase> cases;
  int windows = 9;  // of 64 steps each: samples
};

// 256 requests over 100,000 cached pages, and 1,000 over a million.
StepBenchOptions default_step_bench();

// Microseconds a step, each sample the mean of 64 steps, for each request publishes its output
// once in as many; the middle and the slowest single step beside it (`median_us`, `slowest_us`).
// Bound: reading the page table of the step, which is all that must be done anew (`table_read`).
// 100 us for 256 requests are wanted.
Result<std::vector<BenchLine>> bench_step(const StepBenchOptions& options);

}  // namespace stemma
