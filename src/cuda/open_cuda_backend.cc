#include "cuda/open_cuda_backend.h"

namespace stemma {

Result<std::unique_ptr<DeviceBackend>> open_cuda_backend(int ordinal,
                                                         const CudaRunnerOptions& options) {
  return make_cuda_backend(ordinal, options);
}

Result<std::unique_ptr<DeviceBackend>> open_cuda_backend(const RankGroup& ranks,
                                                         const CudaRunnerOptions& options) {
  return make_cuda_backend(ranks, options);
}

}  // namespace stemma
