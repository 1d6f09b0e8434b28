// Load benchmark: how long a model takes until it is ready, against reading the bytes of its files.
//
// Thread:     starts its own pool.
// Memory:     the model, twice at times; its files lie in a temporary directory.
// Cost:       writing a model of random weights and a few seconds a case.
// Not here:   printing (cli/), what follows a load (engine/).
#pragma once

#include <vector>

#include "base/bench_line.h"
#include "model/config.h"
#include "stemma/result.h"

namespace stemma {

struct LoadBenchOptions {
  ModelConfig config;
  int threads = 2;
  int repeats = 5;
};

// A model of 0.5 billion parameters, 1 GB of bf16.
LoadBenchOptions default_load_bench();

// For weights as they are and rounded, each with the files in the system's cache and not: bytes of
// the files a second until the model is ready, against one thread that reads them from end to end
// into memory it has, before and after. `fresh_gb_per_s` is that reading into memory that is
// touched for the first time, as a model's is.
Result<std::vector<BenchLine>> bench_load(const LoadBenchOptions& options);

}  // namespace stemma
