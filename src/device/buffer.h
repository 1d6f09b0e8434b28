// Buffer: one piece of page-aligned host memory that pools, weights and staging areas live in.
//
// Thread:     a value with one owner; its bytes may be used from any thread.
// Memory:     from a quarter of a huge page on a mapping of huge pages, as far as the system has
//             some, which is never given back before destruction: memory that went back to the host
//             comes back at a few hundred MB/s. What is smaller is of the heap.
// Cost:       a mapping, whose pages' first touch is paid in prefault, in parallel, or by whoever
//             writes first; of what is smaller, writing it.
// Not here:   who owns which part (alloc/), memory of other devices.
#pragma once

#include <cstddef>
#include <span>

#include "base/thread_pool.h"
#include "device/huge_mapping.h"
#include "stemma/result.h"

namespace stemma {

// Move-only; gives its memory back when destroyed. Empty by default and after a move.
class [[nodiscard]] Buffer {
 public:
  Buffer() = default;
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // `size_bytes` zeroed bytes, aligned to 4096, or to kHugePageBytes from a quarter of that size
  // on. kOutOfMemory if the system refuses. Zero bytes give an empty buffer.
  static Result<Buffer> allocate(std::size_t size_bytes);

  // Touches what pages were not yet, so that later writes cost no page fault. Keeps the contents.
  void prefault(ThreadPool& pool);

  // Gives it back now and leaves the buffer empty.
  void release() noexcept;

  std::byte* bytes() noexcept { return bytes_; }
  const std::byte* bytes() const noexcept { return bytes_; }
  std::size_t size_bytes() const noexcept { return size_bytes_; }
  bool empty() const noexcept { return size_bytes_ == 0; }

  // The whole buffer as values of T, as many as fit.
  template <typename T>
  std::span<T> as() noexcept {
    return {reinterpret_cast<T*>(bytes_), size_bytes_ / sizeof(T)};
  }
  template <typename T>
  std::span<const T> as() const noexcept {
    return {reinterpret_cast<const T*>(bytes_), size_bytes_ / sizeof(T)};
  }

 private:
  Buffer(std::byte* bytes, std::size_t size_bytes) noexcept
      : bytes_(bytes), size_bytes_(size_bytes) {}

  std::byte* bytes_ = nullptr;
  std::size_t size_bytes_ = 0;  // what was asked for: whole pages are there
};

}  // namespace stemma
