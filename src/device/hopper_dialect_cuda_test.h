// Kernels that show what products of warpgroups do, for hopper_dialect_cuda_test.cc.
//
// Thread:     as launch.
// Memory:     none.
// Cost:       one team each.
// Not here:   the tests themselves.
#pragma once

#include <cstdint>

#include "base/float16.h"
#include "device/cuda_device.h"

namespace stemma {

// Of the product below: what is summed over.
inline constexpr int kGroupDepth = 64;

enum class LeftPlace { kRegisters, kShared };
enum class RightLayout { kRows, kColumns };

// d [64, columns] = c + a b of one warpgroup, a [64, kGroupDepth] row-major; b [columns,
// kGroupDepth] or, of columns, [kGroupDepth, columns], row-major. c may be nullptr: then d = a b.
// Columns: 16, 64 or 128; of kColumns 64 or 128.
template <typename T>
Status launch_group_product(CudaStream& stream, LeftPlace left, RightLayout right, int columns,
                            const T* a, const T* b, const float* c, float* d);

// Warp 0 puts phase after phase into two places, and all warps add what they find: out[thread] =
// 1 + 2 + … + phases, over `threads` of one team.
Status launch_handing_over(CudaStream& stream, int threads, int phases, std::int32_t* out);

// Lane i of one warp stores matrices of the words 4 i + j; out: [4 matrices, 8 rows, 4 words].
Status launch_stored_matrices(CudaStream& stream, std::uint32_t* out);

// What a kernel may do wrong.
enum class GroupFault {
  kNone,
  kWritesNotFenced,
  kCopiesFencedTooEarly,
  kRegistersNotFenced,
  kSumsUsedTooEarly,
  kSumsTouched,
  kOperandsTouched,
  kOverwritten,
  kWarpMissing,
  kMisaligned,
  kUnlikeMatrices,
  kEndsTooEarly,
};
// Multiplies zeros, with that fault. `words`: 16 bytes of the device.
Status launch_group_fault(CudaStream& stream, GroupFault fault, const void* words, float* out);

}  // namespace stemma
