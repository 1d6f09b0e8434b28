// Mappings of huge pages: address space at a multiple of kHugePageBytes, that asks for such pages.
//
// Thread:     any.
// Memory:     what is touched of it.
// Cost:       four system calls.
// Not here:   whose it is (buffer, simt_arena).
#pragma once

#include <cstddef>

namespace stemma {

inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// Zeroed and private; `protection` and further `flags` are mmap's. nullptr: errno says why.
// REQUIRES: size_bytes is a multiple of kHugePageBytes, and that much below the largest size.
std::byte* try_map_huge(std::size_t size_bytes, int protection, int flags = 0);

// Nothing if there are no bytes.
void unmap(std::byte* begin, std::size_t size_bytes) noexcept;

}  // namespace stemma
