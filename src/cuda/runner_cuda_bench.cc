// cuda_cuda_bench: a model's steps, products with rounded weights, the experts of a mixture, and
// the drawing of tokens.
#include "cuda/cuda_experts_bench.h"
#include "cuda/cuda_rounded_bench.h"
#include "cuda/cuda_runner_bench.h"
#include "cuda/cuda_sample_bench.h"
#include "device/cuda_bench.h"

namespace stemma {
namespace {

template <CudaRunnerWay kWay>
Status bench_steps(CudaDevice& device, BenchSink sink) {
  return bench_cuda_runner(device, default_cuda_runner_bench(), kWay, sink);
}

}  // namespace

std::span<const CudaBenchmark> cuda_benches() {
  static constexpr CudaBenchmark kBenches[] = {
      {"steps", bench_steps<CudaRunnerWay::kLibrary>},
      {"steps_ordered", bench_steps<CudaRunnerWay::kOrdered>},
      {"rounded", by_default<bench_cuda_rounded>},
      {"experts", by_default<bench_cuda_experts>},
      {"sampling", by_default<bench_cuda_sampling>},
      {"steps_int8", bench_steps<CudaRunnerWay::kInt8>},
      {"steps_int4", bench_steps<CudaRunnerWay::kInt4>},
      {"steps_unrecorded", bench_steps<CudaRunnerWay::kLibraryUnrecorded>}};
  return kBenches;
}

}  // namespace stemma
