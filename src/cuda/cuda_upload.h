// CudaUpload: carries bytes of the host to a GPU through two pinned chunks, one being filled while
// the other is copied.
//
// Thread:     one thread; chunks are filled on all threads of the pool.
// Memory:     two pinned chunks.
// Cost:       the slower of a copy in host memory and one to the device.
// Not here:   what is carried (cuda_weights, cuda_transformer).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "device/cuda_device.h"
#include "device/cuda_pinned_turns.h"
#include "device/weight_type.h"
#include "stemma/result.h"

namespace stemma {

// Its end waits for what is on its way.
class CudaUpload {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{16} << 20;

  // All of them must outlive it.
  static Result<CudaUpload> open(CudaDevice& device, CudaStream& stream, ThreadPool& threads);

  // Queues copies; `bytes` may be gone when it returns.
  Status write(void* device, std::span<const std::byte> bytes);
  // The same of numbers of `type`, which become f32, exactly, and then `added` more.
  Status write_floats(float* device, WeightType type, std::span<const std::byte> bytes,
                      float added = 0);

 private:
  CudaUpload(CudaStream& stream, ThreadPool& threads) : stream_(&stream), threads_(&threads) {}
  void fill(std::byte* to, std::span<const std::byte> from);

  CudaStream* stream_;
  ThreadPool* threads_;
  PinnedTurns chunks_;
};

}  // namespace stemma
