// Read pass: a kernel that does nothing but read memory of the device, as the bound of kernels that
// read what they need once.
//
// Thread:     as CudaStream.
// Memory:     of the device.
// Cost:       reading the bytes.
// Not here:   timing (cuda_attention_bench).
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

// Words of `out` that a pass of so many teams writes: something that depends on all that was read.
std::int64_t read_pass_words(std::int64_t teams);

// Reads `size_bytes` by `teams` teams. REQUIRES: a multiple of 16, aligned to 16.
Status read_pass(CudaStream& stream, const void* bytes, std::int64_t size_bytes, std::uint32_t* out,
                 std::int64_t teams);

}  // namespace stemma
