// The language of kernels on Hopper's tensor cores: products of a warpgroup, four warps whose first
// is a multiple of four, and what keeps them in order. For kernels in hopper_*.cu, which are
// compiled for compute capability 9.0 alone (sm_90a) and for the emulated GPU.
//
//   SharedMatrix                       where a matrix of 16-bit elements lies in shared memory
//   matrix_of_rows(p)                  rows are the extent that is not summed over: A of m × k,
//                                      B of n × k ("K-major")
//   matrix_of_columns(p, panel_bytes)  rows are the one that is: B of k × n ("MN-major")
//   advanced(matrix, bytes)            the same from a later place
//   multiply_group<T, kB>(d, a, b, adds)   d [64, n] (+)= a [64, 16] b [16, n]; wgmma.m64nNk16 of T
//                                      BFloat16 or Float16, sums in f32; a in registers or shared
//   fence_registers()                  before products, when their registers were touched
//   commit_products()  wait_products<N>()  settle(d)
//   fence_shared_writes()              before products read what the thread wrote or copied
//   store_matrices(row, r)             stmatrix.x4: what load_matrices of the same row would load;
//                                      each lane writes one row of one of four matrices
//   give_registers<N>()  take_registers<N>()   a group has N a thread from here on, fewer or more
//                                      than the kernel's; all warps of it, behind one branch
//   SharedBarrier: begin_barrier(b, arrivals)  arrive(b)  wait_for(b, parity)      mbarrier
//   arrive_as_warp(b)                  once for all lanes, behind what all have done
//
// Matrices lie in *panels*: rows of 64 elements, 128 bytes, behind one another, from a multiple of
// 1,024 bytes on; the 16-byte piece p of row r is at place p ^ (r % 8) of its row. A matrix of rows
// is one panel; a product's 16 columns begin at piece 0, 2, 4 or 6 of it (advanced by 32 bytes
// each). A matrix of columns has a panel for each 64 columns, panel_bytes apart; a product's 16
// rows begin at a multiple of 8 (advanced by 1,024 bytes each).
//
// Of d, [n / 8][4], warp w of the group has rows 16 w …, spread over its lanes as those of
// multiply_add are; so is a in registers. Products are done later, in the order in which they were
// issued: until wait_products and settle neither d nor a may be touched, nor shared memory
// that they read be written. All threads of the group take part in all of these but
// fence_shared_writes and the barriers; in store_matrices those of a warp.
//
// A barrier has phases, counted by their parity from 0 on; one ends when as many threads as it was
// begun with have arrived. What they wrote before is seen by who waited for the phase's end.
//
// Thread:     code of kernels.
// Memory:     shared memory of the team; registers.
// Cost:       a product of n columns is n / 2 cycles of a multiprocessor's tensor cores; it reads
//             32 n bytes of shared memory, and 2,048 more where a lies there.
// Not here:   products of single warps (cuda_dialect.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda_dialect.h"

namespace stemma {

inline constexpr int kGroupThreads = 128;
// Of panels.
inline constexpr int kPanelElements = 64;
inline constexpr int kPanelRowBytes = 128;
inline constexpr int kPanelAlignment = 1024;

// What a product is told of a matrix (PTX ISA, "Matrix descriptor format").
struct SharedMatrix {
  std::uint64_t descriptor;
};

// How the right matrix of a product lies.
enum class RightMatrix { kRows, kColumns };

// In shared memory; no thread looks into it.
struct alignas(8) SharedBarrier {
  std::uint64_t state;
};

// Addresses and distances in sixteens of bytes; swizzles of 128 bytes.
constexpr std::uint64_t matrix_descriptor(std::uint32_t address, std::uint32_t leading_bytes,
                                          std::uint32_t stride_bytes) {
  constexpr std::uint32_t kAddresses = 0x3FFFF;
  return std::uint64_t{(address & kAddresses) >> 4} |
         std::uint64_t{(leading_bytes & kAddresses) >> 4} << 16 |
         std::uint64_t{(stride_bytes & kAddresses) >> 4} << 32 | std::uint64_t{1} << 62;
}

}  // namespace stemma

#ifdef __CUDACC__
#include "device/cuda_warpgroup_native-inl.h"
#else
#include "device/cuda_warpgroup_simt-inl.h"
#endif

namespace stemma {

// What both have, made of the above.

STEMMA_ON_DEVICE SharedMatrix matrix_of_rows(const void* shared) {
  return {matrix_descriptor(shared_address(shared), 16, kPanelAlignment)};
}
STEMMA_ON_DEVICE SharedMatrix matrix_of_columns(const void* shared, int panel_bytes) {
  return {matrix_descriptor(shared_address(shared), static_cast<std::uint32_t>(panel_bytes),
                            kPanelAlignment)};
}
// Addresses are the lowest bits of the lower word: the upper one is left alone.
STEMMA_ON_DEVICE SharedMatrix advanced(SharedMatrix matrix, int bytes) {
  const auto low = static_cast<std::uint32_t>(matrix.descriptor);
  return {(matrix.descriptor & ~std::uint64_t{0xFFFFFFFFu}) |
          (low + static_cast<std::uint32_t>(bytes / 16))};
}

// The warp's lanes have all come here; it arrives once.
STEMMA_ON_DEVICE void arrive_as_warp(SharedBarrier* barrier) {
  warp_barrier();
  if (lane_index() == 0) arrive(barrier);
}

// Where piece `piece` of row `row` lies in panels of `kRows` rows behind one another.
template <int kRows>
STEMMA_ON_DEVICE int panel_piece_at(int row, int piece) {
  return (piece / 8 * kRows + row) * kPanelRowBytes + ((piece ^ row) & 7) * 16;
}

}  // namespace stemma
