// HeapCounter: counts every allocation of a test program, so that a test can see that a step takes
// none (I10), or how much something allocates and keeps.
//
// Replaces the global operators new and delete: exactly one source of a program may include this,
// and only of a test.
//
// Thread:     one counter for all threads.
// Memory:     what is asked for, from malloc.
// Cost:       three atomic additions an allocation, one when it is freed.
// Not here:   memory that is mapped, or taken by malloc itself (device/buffer).
#pragma once

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace stemma {

// Allocations since the program began.
inline std::atomic<std::int64_t> heap_allocations{0};
// Bytes of them, as asked for.
inline std::atomic<std::int64_t> heap_bytes{0};
// Bytes that are not freed, as malloc rounded them up.
inline std::atomic<std::int64_t> heap_bytes_held{0};

inline void* counted_allocation(std::size_t size_bytes, std::size_t alignment) {
  heap_allocations.fetch_add(1, std::memory_order_relaxed);
  heap_bytes.fetch_add(static_cast<std::int64_t>(size_bytes), std::memory_order_relaxed);
  const std::size_t whole_bytes = (size_bytes + alignment - 1) / alignment * alignment;
  void* const memory = alignment <= alignof(std::max_align_t)
                           ? std::malloc(size_bytes == 0 ? 1 : size_bytes)
                           : std::aligned_alloc(alignment, whole_bytes);
  if (memory == nullptr) std::abort();
  heap_bytes_held.fetch_add(static_cast<std::int64_t>(malloc_usable_size(memory)),
                            std::memory_order_relaxed);
  return memory;
}

inline void counted_free(void* memory) {
  heap_bytes_held.fetch_sub(static_cast<std::int64_t>(malloc_usable_size(memory)),
                            std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace stemma

[[gnu::noinline]] void* operator new(std::size_t size_bytes) {
  return stemma::counted_allocation(size_bytes, 1);
}
[[gnu::noinline]] void* operator new[](std::size_t size_bytes) {
  return stemma::counted_allocation(size_bytes, 1);
}
[[gnu::noinline]] void* operator new(std::size_t size_bytes, std::align_val_t alignment) {
  return stemma::counted_allocation(size_bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new[](std::size_t size_bytes, std::align_val_t alignment) {
  return stemma::counted_allocation(size_bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new(std::size_t size_bytes, const std::nothrow_t&) noexcept {
  return stemma::counted_allocation(size_bytes, 1);
}
[[gnu::noinline]] void* operator new[](std::size_t size_bytes, const std::nothrow_t&) noexcept {
  return stemma::counted_allocation(size_bytes, 1);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  stemma::counted_free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept {
  stemma::counted_free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  stemma::counted_free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept {
  stemma::counted_free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  stemma::counted_free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::align_val_t) noexcept {
  stemma::counted_free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  stemma::counted_free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  stemma::counted_free(memory);
}
