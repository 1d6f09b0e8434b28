// The vendor's products; those with rounded weights and wide ones, which it does not have, are
// ordered ones. To a library that counts columns first, a dense [rows, columns] matrix of ours is
// [columns, rows]: yᵀ = w xᵀ, with w transposed.
#include <cublas_v2.h>

#include <string>
#include <utility>

#include "device/cuda_gemm.h"
#include "device/wide_gemm_cuda.h"

namespace stemma {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

Status status_of(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  const ErrorCode code =
      status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorCode::kOutOfMemory : ErrorCode::kInternal;
  return Error{code, std::string("cublas: ") + cublasGetStatusString(status), 0};
}

auto data_type(WeightType type) {
  if (type == WeightType::kF32) return CUDA_R_32F;
  return type == WeightType::kF16 ? CUDA_R_16F : CUDA_R_16BF;
}

class LibraryGemm final : public CudaGemm {
 public:
  LibraryGemm() = default;
  ~LibraryGemm() override {
    if (handle_ != nullptr) static_cast<void>(cublasDestroy(handle_));
  }
  LibraryGemm(const LibraryGemm&) = delete;
  LibraryGemm& operator=(const LibraryGemm&) = delete;

  Status prepare(CudaDevice& device, CudaStream& stream) {
    stream_ = &stream;
    Result<CudaMemory> workspace = device.allocate(kWorkspaceBytes, stream);
    if (!workspace.ok()) return workspace.error();
    workspace_ = std::move(workspace).value();
    cublasStatus_t status = cublasCreate(&handle_);
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = cublasSetStream(handle_, static_cast<cudaStream_t>(stream.raw()));
    }
    if (status == CUBLAS_STATUS_SUCCESS) {  // the stream resets it: afterwards
      status = cublasSetWorkspace(handle_, workspace_.bytes(), kWorkspaceBytes);
    }
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = cublasSetMathMode(handle_, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    }
    return status_of(status);
  }

  std::string name() const override {
    int version = 0;
    static_cast<void>(cublasGetVersion(handle_, &version));
    return "cublas " + std::to_string(version);
  }

  Status multiply(const CudaGemmParams& params) override {
    if (params.codes != CodeForm::kNone || is_wide(params)) return ordered_gemm(*stream_, params);
    const CudaGemmParams p = with_strides(params);
    const Status checked = check_gemm(p);
    if (!checked.ok() || p.m == 0) return checked;
    const float one = 1;
    const float zero = 0;
    const int m = static_cast<int>(p.m);
    const int n = static_cast<int>(p.n);
    const int k = static_cast<int>(p.k);
    const auto type = data_type(p.type);
    const auto out_type = p.f32_out ? CUDA_R_32F : type;
    const int x_stride = static_cast<int>(p.x_stride);
    const int y_stride = static_cast<int>(p.y_stride);
    if (p.products == 1) {
      return status_of(cublasGemmEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, p.w, type, k,
                                    p.x, type, x_stride, &zero, p.y, out_type, y_stride,
                                    CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    }
    return status_of(cublasGemmStridedBatchedEx(
        handle_, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, p.w, type, k, p.w_step, p.x, type,
        x_stride, p.x_step, &zero, p.y, out_type, y_stride, p.y_step, static_cast<int>(p.products),
        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }

 private:
  CudaStream* stream_ = nullptr;
  cublasHandle_t handle_ = nullptr;
  CudaMemory workspace_;
};

}  // namespace

Result<std::unique_ptr<CudaGemm>> make_library_gemm(CudaDevice& device, CudaStream& stream) {
  auto gemm = std::make_unique<LibraryGemm>();
  const Status prepared = gemm->prepare(device, stream);
  if (!prepared.ok()) return prepared.error();
  return std::unique_ptr<CudaGemm>(std::move(gemm));
}

}  // namespace stemma
