#include "prefix/untouched_array.h"

#include <sys/mman.h>

#include <memory_resource>

namespace stemma {

namespace {

constexpr std::size_t kLinePairBytes = 128;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// Whole huge pages for what fills at least one; less would only waste memory.
std::size_t alignment_of(std::size_t bytes) {
  return bytes >= kHugePageBytes ? kHugePageBytes : kLinePairBytes;
}

std::size_t rounded_up(std::size_t bytes) {
  const std::size_t alignment = alignment_of(bytes);
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

void* reserve_untouched(std::size_t bytes, Backing backing) {
  void* const memory =
      std::pmr::new_delete_resource()->allocate(rounded_up(bytes), alignment_of(bytes));
  // Advice: where it is not taken, small pages serve as well.
  if (alignment_of(bytes) == kHugePageBytes) {
    const int advice = backing == Backing::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
    static_cast<void>(madvise(memory, rounded_up(bytes), advice));
  }
  return memory;
}

void give_back_untouched(void* memory, std::size_t bytes) noexcept {
  std::pmr::new_delete_resource()->deallocate(memory, rounded_up(bytes), alignment_of(bytes));
}

}  // namespace stemma
