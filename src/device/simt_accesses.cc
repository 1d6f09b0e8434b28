// What a compiler that watches accesses (-fsanitize=thread) calls for each load and store of the
// emulated GPU's kernels: the names are its own, and those of GCC and clang. The sanitizer's
// run-time library is not linked.
#ifdef STEMMA_SIMT_RACES

#include <cstddef>

#include "device/simt_races.h"

namespace {

using stemma::simt::Access;

inline void touch(const void* at, std::size_t size_bytes, Access access, const void* code) {
  if (stemma::simt::RaceTrace* const trace = stemma::simt::running_trace()) {
    trace->touch(at, size_bytes, access, code);
  }
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier)
#define STEMMA_ACCESS(name, bytes, access)                 \
  void name(void* at) {                                    \
    touch(at, bytes, access, __builtin_return_address(0)); \
  }

extern "C" {
STEMMA_ACCESS(__tsan_read1, 1, Access::kRead)
STEMMA_ACCESS(__tsan_read2, 2, Access::kRead)
STEMMA_ACCESS(__tsan_read4, 4, Access::kRead)
STEMMA_ACCESS(__tsan_read8, 8, Access::kRead)
STEMMA_ACCESS(__tsan_read16, 16, Access::kRead)
STEMMA_ACCESS(__tsan_unaligned_read2, 2, Access::kRead)
STEMMA_ACCESS(__tsan_unaligned_read4, 4, Access::kRead)
STEMMA_ACCESS(__tsan_unaligned_read8, 8, Access::kRead)
STEMMA_ACCESS(__tsan_unaligned_read16, 16, Access::kRead)
STEMMA_ACCESS(__tsan_write1, 1, Access::kWrite)
STEMMA_ACCESS(__tsan_write2, 2, Access::kWrite)
STEMMA_ACCESS(__tsan_write4, 4, Access::kWrite)
STEMMA_ACCESS(__tsan_write8, 8, Access::kWrite)
STEMMA_ACCESS(__tsan_write16, 16, Access::kWrite)
STEMMA_ACCESS(__tsan_unaligned_write2, 2, Access::kWrite)
STEMMA_ACCESS(__tsan_unaligned_write4, 4, Access::kWrite)
STEMMA_ACCESS(__tsan_unaligned_write8, 8, Access::kWrite)
STEMMA_ACCESS(__tsan_unaligned_write16, 16, Access::kWrite)

void __tsan_read_range(void* at, std::size_t size_bytes) {
  touch(at, size_bytes, Access::kRead, __builtin_return_address(0));
}
void __tsan_write_range(void* at, std::size_t size_bytes) {
  touch(at, size_bytes, Access::kWrite, __builtin_return_address(0));
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
// NOLINTEND(bugprone-reserved-identifier)

#endif  // STEMMA_SIMT_RACES
