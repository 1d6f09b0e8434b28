// What drawing the tokens of a decode step takes, beside reading its logits once for the largest
// (top_rows). Both over the same logits again and again, which the caches of a large GPU hold as
// they hold what a product has just written.
//
// Thread:     one.
// Memory:     the logits, on the device and pinned.
// Cost:       seconds.
// Not here:   which program runs it (runner_cuda_bench).
#pragma once

#include <cstdint>
#include <vector>

#include "base/bench_line.h"
#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

struct CudaSampleBenchOptions {
  std::vector<std::int64_t> rows = {1, 16, 64, 256};
  std::int64_t columns = 128256;
  int calls = 20;  // of one sample
  int samples = 15;
};

// For each number of rows a line a rule, in microseconds. kOutOfMemory.
Status bench_cuda_sampling(CudaDevice& device, const CudaSampleBenchOptions& options,
                           BenchSink sink);

}  // namespace stemma
