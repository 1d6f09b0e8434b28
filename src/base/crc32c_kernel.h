// Crc32c kernels: the ways to sum that this build knows, for crc32c.cc and its test.
//
// A kernel works on the inner state: the complement of the sum so far.
//
// Thread:     pure functions.
// Memory:     a table of 8 KiB for the portable kernel.
// Cost:       each kernel's own; see crc32c.h.
// Not here:   what callers use (crc32c.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/crc32c.h"

namespace stemma {

struct Crc32cKernel {
  std::string_view name;
  bool (*works_here)();  // on this processor
  std::uint32_t (*sum)(std::span<const std::byte> bytes, std::uint32_t state);
  std::uint32_t (*copy)(const CrcCopy& copy, std::uint32_t state);
  // REQUIRES: copy.to is aligned to 64. Ended by end_past_caches.
  std::uint32_t (*copy_past_caches)(const CrcCopy& copy, std::uint32_t state);
};

// All of this build, fastest first; the last one works everywhere.
std::span<const Crc32cKernel> crc32c_kernels();

// Those of one kind of processor: empty in builds for another.
std::span<const Crc32cKernel> crc32c_x86_kernels();
std::span<const Crc32cKernel> crc32c_arm_kernels();

// Reflected: bit 31 is the coefficient of x^0, bit 0 that of x^31; x^32 is left out.
inline constexpr std::uint32_t kCrc32cPolynomial = 0x82F63B78;

// a × b modulo the polynomial, all reflected.
constexpr std::uint32_t crc32c_multiply(std::uint32_t a, std::uint32_t b) noexcept {
  std::uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    if (((b >> bit) & 1) != 0) product ^= a;
    a = (a & 1) != 0 ? (a >> 1) ^ kCrc32cPolynomial : a >> 1;
  }
  return product;
}

// x^n modulo the polynomial, reflected: what a sum is multiplied by when n zero bits follow.
constexpr std::uint32_t crc32c_power(std::uint64_t n) noexcept {
  std::uint32_t power = 0x80000000;
  std::uint32_t square = 0x40000000;
  for (; n != 0; n >>= 1) {
    if ((n & 1) != 0) power = crc32c_multiply(power, square);
    square = crc32c_multiply(square, square);
  }
  return power;
}

}  // namespace stemma
