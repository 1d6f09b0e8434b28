// What stands for the vendor's products on an emulated GPU, which has no such library.
#include "device/cuda_gemm.h"

namespace stemma {

Result<std::unique_ptr<CudaGemm>> make_library_gemm(CudaDevice&, CudaStream& stream) {
  return make_ordered_gemm(stream);
}

}  // namespace stemma
