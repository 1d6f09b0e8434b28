// Cuda pool bench: what a GPU's pool does with bytes, against plain copies of as many: rows that
// are stored, against the device's own copies; pages that go to pinned host memory and come back,
// against copies of pinned memory over the same link.
//
// Times are the device's own, of calls queued one behind another, but for those of a page mover,
// whose calls end on the host. Cases and plain copies take turns; every call works on other pages.
//
// Thread:     one thread.
// Memory:     pool_bytes on the device twice, and pinned as often.
// Cost:       half a minute on a GPU.
// Not here:   how lines are printed (cli/).
#pragma once

#include <cstdint>
#include <vector>

#include "base/bench_line.h"
#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

// How much is measured; the defaults are beyond a GPU's caches.
struct CudaPoolBenchOptions {
  std::int64_t pool_bytes = std::int64_t{512} << 20;
  std::vector<std::int64_t> stored_tokens = {256, 1024, 4096, 16384};
  std::vector<std::int64_t> moved_bytes = {64 << 10, 256 << 10, 1 << 20,
                                           4 << 20,  16 << 20,  64 << 20};
  std::int64_t sample_bytes = std::int64_t{256} << 20;  // of calls in one sample, or one call's
  int samples = 15;
};

// A line for each number of tokens and of loads on their way: rows of 2 KiB of K and of V to random
// pages of 16.
Status bench_cuda_store(CudaDevice& device, const CudaPoolBenchOptions& options, BenchSink sink);

// A line for each number of bytes, direction, size of a piece and way of copying; and one each for
// calls of page movers of one stream and of two that back up and promote as much as the largest.
Status bench_cuda_pages(CudaDevice& device, const CudaPoolBenchOptions& options, BenchSink sink);

}  // namespace stemma
