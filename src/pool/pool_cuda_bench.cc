// pool_cuda_bench: stores, and pages over the link.
#include "device/cuda_bench.h"
#include "pool/cuda_pool_bench.h"

namespace stemma {

std::span<const CudaBenchmark> cuda_benches() {
  static constexpr CudaBenchmark kBenches[] = {
      {"store", [](CudaDevice& device) { return bench_cuda_store(device, {}); }},
      {"pages", [](CudaDevice& device) { return bench_cuda_pages(device, {}); }}};
  return kBenches;
}

}  // namespace stemma
