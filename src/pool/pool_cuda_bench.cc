// pool_cuda_bench: stores, and pages over the link.
#include "device/cuda_bench.h"
#include "pool/cuda_pool_bench.h"

namespace stemma {

std::span<const CudaBenchmark> cuda_benches() {
  static constexpr CudaBenchmark kBenches[] = {
      {"store",
       [](CudaDevice& device, BenchSink sink) { return bench_cuda_store(device, {}, sink); }},
      {"pages",
       [](CudaDevice& device, BenchSink sink) { return bench_cuda_pages(device, {}, sink); }}};
  return kBenches;
}

}  // namespace stemma
