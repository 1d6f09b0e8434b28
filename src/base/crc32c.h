// Crc32c: the checksum of bytes that leave a pool (Castagnoli's polynomial, reflected, as in
// iSCSI), alone or in the same pass as a copy.
//
// A checksum finds accidents, not intent: whose bytes they are is said by a digest (base/digest).
//
// Thread:     pure functions.                            Invariants: I8 (docs/INVARIANTS.md).
// Memory:     none.
// Cost:       55 GB/s in cache with AVX-512, 27 with AVX2 (both with VPCLMULQDQ) or SSE4.2 alone,
//             about 1.5 elsewhere. With VPCLMULQDQ a summed copy from memory costs what a copy
//             costs; with SSE4.2 alone, up to half as much again where pieces are small and
//             scattered.
// Not here:   where sums are kept (pool/host_pool, tier/page_frame).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace stemma {

// The sum of `bytes`; of an earlier part and `bytes`, if `crc` is the earlier part's sum.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept;

// Copies, and returns crc32c(from, crc). The sum is of the bytes that were written: each is read
// once. REQUIRES: `to` has room for from.size() bytes and the two do not overlap.
std::uint32_t copy_crc32c(std::span<const std::byte> from, std::byte* to,
                          std::uint32_t crc = 0) noexcept;

// One of a series of copies.
struct CrcCopy {
  std::span<const std::byte> from;
  std::byte* to = nullptr;
  // Where the next copy of the series begins to read, if it is known: asked for in advance, because
  // no processor guesses it. Only a hint: nothing is wrong where fewer bytes lie there.
  const std::byte* next = nullptr;
  // Whether to write past the caches, where that is possible (`to` aligned to 64): for more bytes
  // than the caches hold, or bytes that nobody reads soon. Whoever lets other threads see them
  // calls end_past_caches first, once a series.
  bool past_caches = false;
};

// As the other copy_crc32c.
std::uint32_t copy_crc32c(const CrcCopy& copy, std::uint32_t crc = 0) noexcept;
void end_past_caches() noexcept;

}  // namespace stemma
