// Rounded bench: the products of one layer on a GPU with weights of 8 and 4 bits, and with bf16
// ones in the same order, at the rows of decode and of prefill steps.
//
// The bound is the longer of two times, both measured beside the samples: that of reading the
// codes and scales (or bf16 weights) once, and that of as many operations in products of the
// vendor's library with bf16. Two layers take turns, so that the cache holds little of what a
// decode step reads.
//
// Thread:     one.
// Memory:     on the device two layers of each format (1.6 GB by default), rows, and read_bytes.
// Cost:       seconds.
// Not here:   which program runs it (runner_cuda_bench), steps of a model (cuda_runner_bench).
#pragma once

#include <cstdint>
#include <vector>

#include "base/bench_line.h"
#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

// The shape of a layer of Llama-3.1-8B.
struct CudaRoundedBenchOptions {
  std::int64_t hidden = 4096;
  std::int64_t intermediate = 14336;
  std::int64_t qkv_columns = 6144;
  std::vector<std::int64_t> rows = {1, 4, 8, 16, 32, 64, 256, 2048};
  int calls = 10;  // of one sample
  int samples = 7;
  std::int64_t read_bytes = std::int64_t{1} << 30;  // that bandwidth is measured over
};

// For each format and number of rows a line, in microseconds, of the four products of a layer: q, k
// and v; what attention gives; gate and up; down. kOutOfMemory.
Status bench_cuda_rounded(CudaDevice& device, const CudaRoundedBenchOptions& options,
                          BenchSink sink);

}  // namespace stemma
