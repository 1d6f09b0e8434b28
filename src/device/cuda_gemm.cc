#include "device/cuda_gemm.h"

namespace stemma {
namespace {

class OrderedGemm final : public CudaGemm {
 public:
  explicit OrderedGemm(CudaStream& stream) : stream_(stream) {}

  std::string name() const override { return "ordered"; }

  Status multiply(const CudaGemmParams& params) override { return ordered_gemm(stream_, params); }

 private:
  CudaStream& stream_;
};

}  // namespace

std::unique_ptr<CudaGemm> make_ordered_gemm(CudaStream& stream) {
  return std::make_unique<OrderedGemm>(stream);
}

}  // namespace stemma
