// pool_cuda_bench: stores, and pages over the link.
#include <iterator>
#include <utility>

#include "device/cuda_bench.h"
#include "pool/cuda_pool_bench.h"

namespace stemma {

Result<std::vector<BenchLine>> run_cuda_benches(CudaDevice& device) {
  STEMMA_ASSIGN_OR_RETURN(std::vector<BenchLine> lines, bench_cuda_store(device, {}));
  STEMMA_ASSIGN_OR_RETURN(std::vector<BenchLine> pages, bench_cuda_pages(device, {}));
  std::move(pages.begin(), pages.end(), std::back_inserter(lines));
  return lines;
}

}  // namespace stemma
