// In the place of open_cuda_backend.cc where the build has no CUDA.
#include "cuda/open_cuda_backend.h"

namespace stemma {
namespace {

Error no_cuda() {
  return {ErrorCode::kUnsupported, "--device cuda: this build has no CUDA (STEMMA_ENABLE_CUDA)"};
}

}  // namespace

Result<std::unique_ptr<DeviceBackend>> open_cuda_backend(int, const CudaRunnerOptions&) {
  return no_cuda();
}

Result<std::unique_ptr<DeviceBackend>> open_cuda_backend(const RankGroup&,
                                                         const CudaRunnerOptions&) {
  return no_cuda();
}

}  // namespace stemma
