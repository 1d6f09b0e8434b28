// cuda_cuda_bench: a model's steps, the experts of a mixture, and the drawing of tokens.
#include "cuda/cuda_experts_bench.h"
#include "cuda/cuda_runner_bench.h"
#include "cuda/cuda_sample_bench.h"
#include "device/cuda_bench.h"

namespace stemma {

std::span<const CudaBenchmark> cuda_benches() {
  static constexpr CudaBenchmark kBenches[] = {
      [](CudaDevice& device) { return bench_cuda_runner(device, default_cuda_runner_bench()); },
      [](CudaDevice& device) { return bench_cuda_experts(device, {}); },
      [](CudaDevice& device) { return bench_cuda_sampling(device, {}); }};
  return kBenches;
}

}  // namespace stemma
