// cuda_cuda_bench: a model's steps.
#include "cuda/cuda_runner_bench.h"
#include "device/cuda_bench.h"

namespace stemma {

Result<std::vector<BenchLine>> run_cuda_benches(CudaDevice& device) {
  return bench_cuda_runner(device, default_cuda_runner_bench());
}

}  // namespace stemma
