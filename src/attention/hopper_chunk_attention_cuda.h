// Chunk attention on the tensor cores of a Hopper GPU (compute capability 9.0): the items of
// chunk_attention by products of warpgroups, with the same bits, half as fast again.
//
// Thread:     as CudaStream.
// Memory:     of the device, named by the parameters; shared memory of the team.
// Cost:       4 × head_dim operations a pair and key, of tiles that the last row of each 64 pairs
//             sees.
// Not here:   other GPUs, codes, rows of more than 128 columns (chunk_attention_cuda).
#pragma once

#include <cstdint>

#include "attention/attention_work_cuda.h"
#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

// Whether there is such a kernel for the device and rows of that type and extent.
constexpr bool has_hopper_chunk_kernel(int capability, DType dtype, std::int64_t head_dim) {
  constexpr int kHopper = 90;
  constexpr std::int64_t kHeadDimMax = 128;
  const bool plain = dtype == DType::kBF16 || dtype == DType::kF16;
  return capability == kHopper && plain && head_dim <= kHeadDimMax && head_dim % 8 == 0;
}

// The items of kChunkPairs, by `teams` teams; params.chunk_sums is not used.
// REQUIRES: has_hopper_chunk_kernel.
Status hopper_chunk_attention(CudaStream& stream, const AttentionParams& params,
                              std::int64_t teams);

// Teams that a multiprocessor holds at once.
std::int64_t hopper_chunk_attention_residents(DType dtype, std::int64_t head_dim,
                                              std::int64_t team_shared_bytes_max);

}  // namespace stemma
