// GEMM benchmark: products of a small model's shapes against the multiply-add peak and the read
// bandwidth, both measured beside each sample, and against OpenBLAS where that is installed.
//
// Thread:     starts its own pools.
// Memory:     weight_bytes of weights, and what it takes to multiply them.
// Cost:       packing the weights (first touch) and a few seconds a case.
// Not here:   printing (cli/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bench_line.h"
#include "stemma/result.h"

namespace stemma {

struct GemmBenchOptions {
  int threads_max = 2;  // cases are run with 1 and with this many threads
  std::int64_t prefill_rows = 512;
  int repeats = 5;  // samples a case
  std::size_t weight_bytes =
      0;  // weights that few-row cases cycle over; 0: twice the last-level cache, at most 1.25 GiB
};

// Prefill shapes in GFLOP/s against the peak between the products (a rested processor's is beside
// it as `rested_peak_gflop_per_s`); few rows over weights beyond the last-level cache, one row in
// GB/s against reading the same weights, more in GFLOP/s against the tighter of the two bounds; the
// same of rounded weights, in their own bytes. Lines with `against` have OpenBLAS's sgemm for a
// bound, of the same weights in f32, on as many threads; where it is missing a line says so.
// Lines with two threads carry `two_core_ratio`, the lesser of the ratios before and after.
// kOutOfMemory.
Result<std::vector<BenchLine>> bench_gemm(const GemmBenchOptions& options);

}  // namespace stemma
