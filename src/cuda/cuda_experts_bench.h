// Experts bench: products over the experts of a mixture on a GPU, and a mixture as a whole, at the
// rows of decode and of prefill steps.
//
// The bound is the longer of two times, both measured beside the samples: that of reading the
// matrices of the experts that any row goes to, once; and that of as many operations in products
// of the vendor's library over one expert. No two calls in a row go to the same experts, so that
// the cache holds little of what a decode step reads.
//
// Thread:     one.
// Memory:     on the device a mixture's weights (1.2 GB by default), scratch for the most rows, and
//             read_bytes.
// Cost:       seconds.
// Not here:   which program runs it (runner_cuda_bench).
#pragma once

#include <cstdint>
#include <vector>

#include "base/bench_line.h"
#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

// The shape of a mixture of Qwen3-30B-A3B, in bf16.
struct CudaExpertsBenchOptions {
  std::int64_t hidden = 2048;
  std::int64_t width = 768;
  std::int64_t experts = 128;
  std::int64_t row_experts = 8;
  std::vector<std::int64_t> rows = {1, 16, 64, 512, 2048, 8192};
  int calls = 10;  // of one sample
  int samples = 7;
  std::int64_t read_bytes = std::int64_t{1} << 30;  // that bandwidth is measured over
};

// For each number of rows, in microseconds, a line of part=products (gate and up, and down), whose
// rows are spread over the experts by the host, and one of part=mixture (all launches), whose rows
// choose for themselves; its bound counts as many experts as even choices touch. kOutOfMemory.
Status bench_cuda_experts(CudaDevice& device, const CudaExpertsBenchOptions& options,
                          BenchSink sink);

}  // namespace stemma
