// One huge page too long is asked for, and the ends that the alignment leaves over go back at once.
#include "device/huge_mapping.h"

#include <sys/mman.h>

#include <cstdint>

#include "base/check.h"

namespace stemma {

void unmap(std::byte* begin, std::size_t size_bytes) noexcept {
  if (size_bytes == 0) return;
  STEMMA_CHECK_EQ(munmap(begin, size_bytes), 0);
}

std::byte* try_map_huge(std::size_t size_bytes, int protection, int flags) {
  STEMMA_CHECK_EQ(size_bytes % kHugePageBytes, std::size_t{0});
  const std::size_t asked_bytes = size_bytes + kHugePageBytes;
  void* const mapping =
      mmap(nullptr, asked_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(mapping);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(first) % kHugePageBytes;
  const std::size_t head = misaligned == 0 ? 0 : kHugePageBytes - misaligned;
  std::byte* const begin = first + head;
  unmap(first, head);
  unmap(begin + size_bytes, kHugePageBytes - head);
  // Advice only: without huge pages everything works, more slowly.
  static_cast<void>(madvise(begin, size_bytes, MADV_HUGEPAGE));
  return begin;
}

}  // namespace stemma
