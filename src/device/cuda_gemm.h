// CudaGemm: products of matrices on a GPU, y = x wᵀ, in one of two ways: ordered (gemm_cuda.h: a
// row's bits depend on that row alone), or by the vendor's library, which is faster and chooses its
// order by the shape. Products with rounded weights (rounded_gemm_cuda.h), and of rows of 16 bits
// with matrices in f32 (wide_gemm_cuda.h), are ordered ones in both.
//
// Thread:     as the stream it was made for.
// Memory:     ordered none; the library's workspace, fixed, on the device.
// Cost:       bound by reading w for few rows, by multiplications for many.
// Not here:   biases and what follows (whoever reads y).
#pragma once

#include <memory>
#include <string>

#include "device/cuda_device.h"
#include "device/gemm_cuda.h"
#include "stemma/result.h"

namespace stemma {

class CudaGemm {
 public:
  virtual ~CudaGemm() = default;

  // "ordered", or the library with its version: what a product's bits depend on besides the device,
  // and, of a library, the shape.
  virtual std::string name() const = 0;

  // Queues the product on the stream that it was made for. Errors are those of check_gemm, and the
  // library's. May be recorded.
  virtual Status multiply(const CudaGemmParams& params) = 0;
};

// `stream` must outlive it.
std::unique_ptr<CudaGemm> make_ordered_gemm(CudaStream& stream);

// cuBLAS; f32 without TF32. On an emulated GPU, which has no such library, an ordered one.
// kOutOfMemory, kInternal. The device and `stream` must outlive it.
Result<std::unique_ptr<CudaGemm>> make_library_gemm(CudaDevice& device, CudaStream& stream);

}  // namespace stemma
