// Reading on a GPU: as fast as its memory goes, the bound of what reads weights or keys once.
//
// Thread:     as CudaStream.
// Memory:     none; addresses are the device's.
// Cost:       the time to read `bytes`.
// Not here:   what is measured against it (benchmarks).
#pragma once

#include <cstdint>

#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

struct ReadBytes {
  const void* bytes = nullptr;    // aligned to 16
  std::int64_t size_bytes = 0;    // a multiple of 16
  std::uint32_t* sums = nullptr;  // [teams]: exclusive or of what each team read
  std::int64_t teams = 0;         // a few for each multiprocessor
};

// Queues a read of every byte. kInvalidArgument for other sizes and for no teams.
Status read_bytes(CudaStream& stream, const ReadBytes& params);

}  // namespace stemma
