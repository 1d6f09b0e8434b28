// CudaBench: what every program ROOM_cuda_bench has, which measures the room's part on a GPU.
//
// Thread:     main.
// Memory:     that of the benchmarks.
// Cost:       up to a minute.
// Not here:   what is measured (the room's *_cuda_bench.cc), main (cli/cuda_bench_main.cc).
#pragma once

#include <span>
#include <string_view>

#include "base/bench_line.h"
#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

// One of them, and the name by which it alone is run.
struct CudaBenchmark {
  std::string_view name;
  Status (*run)(CudaDevice& device, BenchSink sink);
};

// A benchmark with its options as they are by default, as CudaBenchmark::run.
template <auto kBench>
Status by_default(CudaDevice& device, BenchSink sink) {
  return kBench(device, {}, sink);
}

// Defined by the room, once: its benchmarks in the order in which they run, each line printed when
// it was measured. What a kernel that fails leaves behind no later one gets over: those with
// kernels that ran on no GPU yet go last.
std::span<const CudaBenchmark> cuda_benches();

}  // namespace stemma
