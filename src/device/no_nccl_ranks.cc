// In the place of nccl_ranks.cc where there is no NCCL.
#include "device/cuda_ranks.h"

namespace stemma {

std::unique_ptr<CudaRanks> make_nccl_ranks(CudaStream&, RankGroup&) {
  return nullptr;
}

}  // namespace stemma
