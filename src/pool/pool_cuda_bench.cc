// pool_cuda_bench: stores, and pages over the link.
#include "device/cuda_bench.h"
#include "pool/cuda_pool_bench.h"

namespace stemma {

std::span<const CudaBenchmark> cuda_benches() {
  static constexpr CudaBenchmark kBenches[] = {{"store", by_default<bench_cuda_store>},
                                               {"pages", by_default<bench_cuda_pages>}};
  return kBenches;
}

}  // namespace stemma
