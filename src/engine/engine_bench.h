// Benchmark of the whole engine: Engine::step over a model with the shape of Qwen2.5-0.5B, prefill
// against the multiply-add peak, decode of one request against the read bandwidth, of many against
// the peak, each bound measured before and after each sample.
//
// Thread:     starts its own pools.
// Memory:     the weights (0.99 GB by default), and half a GiB that bandwidth is measured over.
// Cost:       about a minute at the default size.
// Not here:   products and attention by themselves (bench_gemm, bench_attention).
#pragma once

#include <cstdint>
#include <vector>

#include "base/bench_line.h"
#include "model/config.h"
#include "stemma/result.h"

namespace stemma {

struct EngineBenchOptions {
  ModelConfig model;  // weights are made up, bf16
  std::int64_t prefill_tokens = 512;
  std::int64_t decode_requests = 32;  // decoding at once
  int threads_max = 2;                // cases are run with 1 and with this many threads
  int repeats = 5;                    // samples a case
  int decode_steps = 4;               // of one sample
};

EngineBenchOptions default_engine_bench();

// Three lines for each number of threads: phase=prefill and phase=decode of decode_requests in
// gflop/s, phase=decode of one request in gb/s of weights. Two operations are counted for each
// weight that a token is multiplied with, the head's only for tokens whose logits are wanted,
// none for attention or the look-up of embeddings. Lines with two threads carry `two_core_ratio`,
// the lesser of the ratios before and after. kOutOfMemory.
Result<std::vector<BenchLine>> bench_engine(const EngineBenchOptions& options);

}  // namespace stemma
