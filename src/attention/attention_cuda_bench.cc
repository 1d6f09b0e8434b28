// attention_cuda_bench: decode, sparse decode and prefill.
#include <iterator>
#include <utility>

#include "attention/cuda_attention_bench.h"
#include "device/cuda_bench.h"

namespace stemma {

Result<std::vector<BenchLine>> run_cuda_benches(CudaDevice& device) {
  STEMMA_ASSIGN_OR_RETURN(std::vector<BenchLine> lines, bench_cuda_decode(device, {}));
  for (const auto bench : {bench_cuda_sparse, bench_cuda_prefill}) {
    STEMMA_ASSIGN_OR_RETURN(std::vector<BenchLine> more, bench(device, {}));
    std::move(more.begin(), more.end(), std::back_inserter(lines));
  }
  return lines;
}

}  // namespace stemma
