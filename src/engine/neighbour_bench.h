// Benchmark of an engine beside a neighbour that takes half of one of its two cores, in bursts of
// milliseconds: what two threads that wait for each other lose beyond the neighbour's share.
//
// Thread:     starts pools of two threads, and the neighbour's.
// Memory:     the weights of a small model.
// Cost:       half a minute at the default size.
// Not here:   what threads cost without a neighbour (bench_engine).
#pragma once

#include <cstdint>
#include <vector>

#include "base/bench_line.h"
#include "model/config.h"
#include "stemma/result.h"

namespace stemma {

struct NeighbourBenchOptions {
  ModelConfig model;  // weights are made up, bf16
  std::int64_t prefill_tokens = 256;
  int prefill_steps = 4;  // of one sample
  int decode_steps = 100;
  int pairs = 10;  // of samples with the neighbour and without
};

NeighbourBenchOptions default_neighbour_bench();

// Tokens a second, prefill and decode of one request, with workers pinned and not. Bound: without
// the neighbour, by turns, less the neighbour's measured share of the two cores (`neighbour_share`;
// ratio: value / bound). `fall` is what was lost of the rate without it: at most the share and a
// tenth are wanted. Nothing where the process may use other than two CPUs: the neighbour would have
// to take a share of each.
Result<std::vector<BenchLine>> bench_neighbour(const NeighbourBenchOptions& options);

}  // namespace stemma
