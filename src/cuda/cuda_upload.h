// CudaUpload: carries bytes of the host to a GPU through two pinned chunks, one being filled while
// the other is copied.
//
// Thread:     one thread; chunks are filled on all threads of the pool.
// Memory:     two pinned chunks.
// Cost:       the slower of a copy in host memory and one to the device.
// Not here:   what is carried (cuda_weights, cuda_transformer).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "device/cuda_device.h"
#include "device/weight_type.h"
#include "stemma/result.h"

namespace stemma {

class CudaUpload {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{16} << 20;

  // All of them must outlive it.
  static Result<CudaUpload> open(CudaDevice& device, CudaStream& stream, ThreadPool& threads);
  CudaUpload(CudaUpload&&) noexcept = default;
  CudaUpload& operator=(CudaUpload&&) = delete;
  // Waits for what is on its way.
  ~CudaUpload();

  // Queues copies; `bytes` may be gone when it returns.
  Status write(void* device, std::span<const std::byte> bytes);
  // The same of numbers of `type`, which become f32, exactly, and then `added` more.
  Status write_floats(float* device, WeightType type, std::span<const std::byte> bytes,
                      float added = 0);

 private:
  struct Chunk {
    PinnedMemory pinned;
    CudaEvent copied;
  };

  CudaUpload(CudaStream& stream, ThreadPool& threads) : stream_(&stream), threads_(&threads) {}
  void fill(std::byte* to, std::span<const std::byte> from);

  CudaStream* stream_;
  ThreadPool* threads_;
  std::array<Chunk, 2> chunks_;
  std::size_t next_ = 0;
};

}  // namespace stemma
