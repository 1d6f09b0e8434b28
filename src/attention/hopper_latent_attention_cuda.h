// Attention of latent rows (MLA) on the tensor cores of a Hopper GPU (compute capability 9.0): the
// items of split_attention of up to 64 pairs by products of warpgroups, with the same bits.
//
// Thread:     as CudaStream.
// Memory:     of the device, named by the parameters; shared memory of the team.
// Cost:       reading each item's rows once a KV head; 64 × 2,176 operations a key, whatever pairs
//             the item has.
// Not here:   other GPUs, items of up to 16 pairs, codes (split_attention_cuda); how a batch is
//             cut.
#pragma once

#include <cstdint>

#include "attention/attention_work_cuda.h"
#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

// Whether there is such a kernel for the device and rows of that type and extent.
constexpr bool has_hopper_latent_kernel(int capability, DType dtype, std::int64_t head_dim) {
  constexpr int kHopper = 90;
  const bool plain = dtype == DType::kBF16 || dtype == DType::kF16;
  return capability == kHopper && plain && head_dim > kPlainDimMax && head_dim <= kLatentDimMax;
}

// The items of kSharedPairs, by `teams` teams. REQUIRES: has_hopper_latent_kernel.
Status hopper_latent_attention(CudaStream& stream, const AttentionParams& params,
                               std::int64_t teams);

// Teams that a multiprocessor holds at once.
std::int64_t hopper_latent_attention_residents(std::int64_t team_shared_bytes_max);

}  // namespace stemma
