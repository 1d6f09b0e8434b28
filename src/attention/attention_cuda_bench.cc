// attention_cuda_bench: decode, sparse decode and prefill.
#include "attention/cuda_attention_bench.h"
#include "device/cuda_bench.h"

namespace stemma {

std::span<const CudaBenchmark> cuda_benches() {
  static constexpr CudaBenchmark kBenches[] = {
      {"decode", by_default<bench_cuda_decode>},
      {"sparse", by_default<bench_cuda_sparse>},
      {"prefill", by_default<bench_cuda_prefill>},
      {"prefill_hopper", by_default<bench_cuda_hopper_prefill>},
      {"decode_codes", by_default<bench_cuda_decode_codes>},
      {"prefill_codes", by_default<bench_cuda_prefill_codes>},
      {"decode_latent_hopper", by_default<bench_cuda_hopper_latent>}};
  return kBenches;
}

}  // namespace stemma
