// cuda_cuda_bench: a model's steps, products with rounded weights, the experts of a mixture, and
// the drawing of tokens.
#include <iterator>
#include <utility>

#include "cuda/cuda_experts_bench.h"
#include "cuda/cuda_rounded_bench.h"
#include "cuda/cuda_runner_bench.h"
#include "cuda/cuda_sample_bench.h"
#include "device/cuda_bench.h"

namespace stemma {

Result<std::vector<BenchLine>> run_cuda_benches(CudaDevice& device) {
  STEMMA_ASSIGN_OR_RETURN(std::vector<BenchLine> lines,
                          bench_cuda_runner(device, default_cuda_runner_bench()));
  STEMMA_ASSIGN_OR_RETURN(std::vector<BenchLine> rounded, bench_cuda_rounded(device, {}));
  std::move(rounded.begin(), rounded.end(), std::back_inserter(lines));
  STEMMA_ASSIGN_OR_RETURN(std::vector<BenchLine> experts, bench_cuda_experts(device, {}));
  std::move(experts.begin(), experts.end(), std::back_inserter(lines));
  STEMMA_ASSIGN_OR_RETURN(std::vector<BenchLine> sampling, bench_cuda_sampling(device, {}));
  std::move(sampling.begin(), sampling.end(), std::back_inserter(lines));
  return lines;
}

}  // namespace stemma
