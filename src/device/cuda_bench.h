// CudaBench: what every program ROOM_cuda_bench has, which measures the room's part on a GPU.
//
// Thread:     main.
// Memory:     that of the benchmarks.
// Cost:       up to a minute.
// Not here:   what is measured (the room's *_cuda_bench.cc), main (cli/cuda_bench_main.cc).
#pragma once

#include <vector>

#include "base/bench_line.h"
#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

// Defined by the room, once.
Result<std::vector<BenchLine>> run_cuda_benches(CudaDevice& device);

}  // namespace stemma
