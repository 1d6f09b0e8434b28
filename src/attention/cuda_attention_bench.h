// Cuda attention bench: decode against the bandwidth at which the device reads, prefill against the
// rate of the largest dense product of bf16 by the vendor's library.
//
// Times are the device's own, of runs queued one behind another; what is measured and what bounds
// it take turns. Keys and values are random, on pages in a random order.
//
// Thread:     one thread.
// Memory:     of the device: a layer of the largest case, about 2 GiB, and the product's matrices.
// Cost:       a few seconds on a GPU.
// Not here:   how lines are printed (cli/).
#pragma once

#include <cstdint>

#include "base/bench_line.h"
#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

// How much is measured.
struct CudaAttentionBenchOptions {
  std::int64_t requests = 64;          // of a decode step
  std::int64_t context_tokens = 8192;  // of each
  std::int64_t prefill_tokens = 8192;
  std::int64_t sparse_requests = 32;
  std::int64_t sparse_context_tokens = 16384;
  std::int64_t gemm_extent = 8192;  // the three extents of the dense product
  int runs = 10;                    // of a sample
  int samples = 9;
};

// Lines "cuda_attention", phase "decode": 32 query heads over 8 and over 4 KV heads of 128, bf16 on
// pages of 1, 16 and 64 tokens; "decode_shared": all but the last 512 tokens are one begin of all
// requests, counted as if each read its own; "decode_latent": 128 query heads over latent rows of
// 576, of which 512 are values.
Status bench_cuda_decode(CudaDevice& device, const CudaAttentionBenchOptions& options,
                         BenchSink sink);

// Phase "decode" over codes on pages of 64: fp8 and, over 8 KV heads, int8.
Status bench_cuda_decode_codes(CudaDevice& device, const CudaAttentionBenchOptions& options,
                               BenchSink sink);

// Phase "decode_latent_hopper": "decode_latent" by products of warpgroups. No line where the GPU
// has none. kCorrupt, behind the line, if it has not the bits of the other kernel (same_bits=no).
Status bench_cuda_hopper_latent(CudaDevice& device, const CudaAttentionBenchOptions& options,
                                BenchSink sink);

// Of sparse rows that keep 1 of 8 tokens, labels of 8 channels, 32 query heads over 8, bf16 on
// pages of 64, of many requests and of one: phase "decode_sparse", the bytes of labels and of K and
// V of what is kept; phase "sparse_gain", times as fast as dense rows over the same pages, bound by
// how many times fewer bytes that is.
Status bench_cuda_sparse(CudaDevice& device, const CudaAttentionBenchOptions& options,
                         BenchSink sink);

// Phase "prefill": one request, its whole prompt, over 8 and over 4 KV heads of bf16; operations of
// keys that rows see.
Status bench_cuda_prefill(CudaDevice& device, const CudaAttentionBenchOptions& options,
                          BenchSink sink);

// The same over 8 KV heads of fp8.
Status bench_cuda_prefill_codes(CudaDevice& device, const CudaAttentionBenchOptions& options,
                                BenchSink sink);

// Phase "prefill_hopper": those of bf16 by products of warpgroups. No lines where the GPU has none.
// kCorrupt as of bench_cuda_hopper_latent.
Status bench_cuda_hopper_prefill(CudaDevice& device, const CudaAttentionBenchOptions& options,
                                 BenchSink sink);

}  // namespace stemma
