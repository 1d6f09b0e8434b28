// CUDA runner bench: a model's prefill and decode steps on a GPU, through CudaRunner alone, with
// made-up weights: prefill against the products that the vendor's library does a second, decode
// against reading the weights and all K and V of the batch once, each bound measured beside the
// samples.
//
// A step is queued before the one before it is done, and takes its tokens on the device; only they
// come to the host.
//
// Thread:     starts its own pool.
// Memory:     on the device the weights (16 GB by default), K and V, and read_bytes; none of the
//             weights on the host.
// Cost:       about half a minute a way of computing on a GPU, most of it loading.
// Not here:   the engine around it (engine_bench), printing (cli/).
#pragma once

#include <cstdint>
#include <vector>

#include "base/bench_line.h"
#include "device/cuda_device.h"
#include "model/config.h"
#include "stemma/result.h"

namespace stemma {

struct CudaRunnerBenchOptions {
  ModelConfig model;                                       // dense; its files have bf16
  std::vector<std::int64_t> decode_requests = {1, 8, 64};  // decoding at once
  std::int64_t context_tokens = 1024;                      // of each before it decodes
  std::int64_t step_tokens = 2048;                         // of a prefill step, at least a context
  int decode_steps = 32;                                   // of one sample
  int samples = 5;                                         // of decode
  std::int64_t read_bytes = std::int64_t{2} << 30;         // that bandwidth is measured over
};

// The shape of Llama-3.1-8B: 8.03 billion parameters.
CudaRunnerBenchOptions default_cuda_runner_bench();

// Ways of computing: products of the library, in recorded steps and in others; ordered ones in
// recorded steps, with weights as they are, of 8 bits and of 4.
enum class CudaRunnerWay { kLibrary, kLibraryUnrecorded, kOrdered, kInt8, kInt4 };

// A line of phase=prefill, and one of phase=decode for each number of requests, in tokens a second.
// Two operations are counted for each weight that a token is multiplied with, none for attention.
// kOutOfMemory.
Status bench_cuda_runner(CudaDevice& device, const CudaRunnerBenchOptions& options,
                         CudaRunnerWay way, BenchSink sink);

}  // namespace stemma
