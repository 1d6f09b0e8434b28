// The portable kernel takes eight bytes a step: table[j][b] is the sum of byte b followed by j zero
// bytes, and sums of parts are added by exclusive or.
#include "base/crc32c.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/crc32c_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace stemma {

namespace {

constexpr std::size_t kStepBytes = 8;
using Tables = std::array<std::array<std::uint32_t, 256>, kStepBytes>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) {
      state = (state & 1) != 0 ? (state >> 1) ^ kCrc32cPolynomial : state >> 1;
    }
    tables[0][byte] = state;
  }
  for (std::size_t j = 1; j < kStepBytes; ++j) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t state = tables[j - 1][byte];
      tables[j][byte] = (state >> 8) ^ tables[0][state & 255];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

std::uint32_t sum_by_table(std::span<const std::byte> bytes, std::uint32_t state) {
  std::size_t at = 0;
  for (; at + kStepBytes <= bytes.size(); at += kStepBytes) {
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < kStepBytes; ++i) {
      auto byte = std::to_integer<std::uint32_t>(bytes[at + i]);
      if (i < 4) byte ^= (state >> (8 * i)) & 255;
      next ^= kTables[kStepBytes - 1 - i][byte];
    }
    state = next;
  }
  for (; at < bytes.size(); ++at) {
    const auto byte = std::to_integer<std::uint32_t>(bytes[at]);
    state = (state >> 8) ^ kTables[0][(state ^ byte) & 255];
  }
  return state;
}

// Small pieces, so that what is summed is what was written and still in the nearest cache.
std::uint32_t copy_by_table(const CrcCopy& copy, std::uint32_t state) {
  constexpr std::size_t kPieceBytes = 4096;
  for (std::size_t at = 0; at < copy.from.size(); at += kPieceBytes) {
    const std::size_t bytes = std::min(kPieceBytes, copy.from.size() - at);
    std::memcpy(copy.to + at, copy.from.data() + at, bytes);
    state = sum_by_table({copy.to + at, bytes}, state);
  }
  return state;
}

constexpr Crc32cKernel kPortable = {"table", [] { return true; }, sum_by_table, copy_by_table,
                                    copy_by_table};

const Crc32cKernel& chosen_kernel() {
  static const Crc32cKernel& chosen = []() -> const Crc32cKernel& {
    for (const Crc32cKernel& kernel : crc32c_kernels()) {
      if (kernel.works_here()) return kernel;
    }
    return kPortable;
  }();
  return chosen;
}

}  // namespace

std::span<const Crc32cKernel> crc32c_kernels() {
  static const std::vector<Crc32cKernel> kernels = [] {
    std::vector<Crc32cKernel> all;
    for (const auto& some : {crc32c_x86_kernels(), crc32c_arm_kernels()}) {
      all.insert(all.end(), some.begin(), some.end());
    }
    all.push_back(kPortable);
    return all;
  }();
  return kernels;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) noexcept {
  return ~chosen_kernel().sum(bytes, ~crc);
}

std::uint32_t copy_crc32c(std::span<const std::byte> from, std::byte* to,
                          std::uint32_t crc) noexcept {
  return copy_crc32c(CrcCopy{.from = from, .to = to}, crc);
}

std::uint32_t copy_crc32c(const CrcCopy& copy, std::uint32_t crc) noexcept {
  const bool aligned = reinterpret_cast<std::uintptr_t>(copy.to) % 64 == 0;
  const Crc32cKernel& kernel = chosen_kernel();
  return ~(copy.past_caches && aligned ? kernel.copy_past_caches : kernel.copy)(copy, ~crc);
}

void end_past_caches() noexcept {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace stemma
