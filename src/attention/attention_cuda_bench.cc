// attention_cuda_bench: decode, sparse decode and prefill.
#include "attention/cuda_attention_bench.h"
#include "device/cuda_bench.h"

namespace stemma {

std::span<const CudaBenchmark> cuda_benches() {
  static constexpr CudaBenchmark kBenches[] = {
      {"decode", [](CudaDevice& device) { return bench_cuda_decode(device, {}); }},
      {"sparse", [](CudaDevice& device) { return bench_cuda_sparse(device, {}); }},
      {"prefill", [](CudaDevice& device) { return bench_cuda_prefill(device, {}); }},
      {"prefill_hopper", [](CudaDevice& device) { return bench_cuda_hopper_prefill(device, {}); }}};
  return kBenches;
}

}  // namespace stemma
