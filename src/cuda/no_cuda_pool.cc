// In the place of pool/cuda_kv_pool.cc where the build has no CUDA, for programs that ask at run
// time.
#include "stemma/cuda_pool.h"

namespace stemma {

Result<std::unique_ptr<CudaKvPool>> open_cuda_pool(const KvShape&, KvLayout, int) {
  return Error{ErrorCode::kUnsupported, "device cuda: this build has no CUDA (STEMMA_ENABLE_CUDA)",
               0};
}

bool wait_on_layer(LayerGate&, void*, std::int64_t) {
  return false;  // there are no streams
}

}  // namespace stemma
