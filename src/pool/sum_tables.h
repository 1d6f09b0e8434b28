// SumTables: what a team of threads needs to take the CRC32C of bytes that it walks over together
// (page_copy_cuda), the same sum as base/crc32c.
//
// A team takes kSumStrideBytes at a time, each thread 16 of them, and each thread carries a state
// of its own from one stride to the next. A sum without its first and last complement is linear:
// the state of all bytes is the sum (exclusive or) over the threads of what their bytes alone would
// leave, the others being zeros. Zeros in front change nothing, so that bytes which are no whole
// number of strides are filled up in front.
//
//   advance[p][b]   what byte b, the p-th of a thread's 16, leaves a stride after the first of
//   them:
//                   a thread's new state is the exclusive or of 16 of these, its old state being
//                   added to its first four bytes
//   weights[t]      thread t's 16 bytes end 16 t bytes further on than the tables have it: its last
//                   state is multiplied with x^(-128 t)
//
// Thread:     pure functions.
// Memory:     17 KiB.
// Cost:       making them, about a millisecond.
// Not here:   the walk itself (page_copy_cuda.cu).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stemma {

inline constexpr int kSumThreads = 256;
inline constexpr int kSumWordBytes = 16;
inline constexpr int kSumStrideBytes = kSumThreads * kSumWordBytes;
inline constexpr std::uint32_t kSumPolynomial = 0x82F63B78;  // Castagnoli's, reflected

// Where they lie, in words of 32 bits.
inline constexpr int kSumAdvanceWords = kSumWordBytes * 256;
inline constexpr int kSumTableWords = kSumAdvanceWords + kSumThreads;

// advance [16, 256], then weights [256].
std::vector<std::uint32_t> make_sum_tables();

// a × b, polynomials as sums have them, and what a sum is multiplied with where so many bytes
// follow.
std::uint32_t sum_product(std::uint32_t a, std::uint32_t b);
std::uint32_t sum_advance(std::size_t size_bytes);

// What the complements add to the sum of so many bytes: the sum of as many zeros.
std::uint32_t sum_of_zeros(std::size_t size_bytes);

}  // namespace stemma
