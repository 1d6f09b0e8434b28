// The CRC32C instructions of ARMv8, eight bytes at a time. One stream: joining several needs a
// carry-less multiplication, which not every processor with these instructions has.
#include "base/crc32c_kernel.h"

#if defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cstring>
#endif

namespace stemma {

#if defined(__aarch64__)

namespace {

constexpr unsigned long kHwcapCrc32 = 1ul << 7;  // HWCAP_CRC32 of Linux

bool has_crc32() {
  return (getauxval(AT_HWCAP) & kHwcapCrc32) != 0;
}

#if defined(__clang__)
#define STEMMA_TARGET_CRC [[gnu::target("crc")]]
#else
#define STEMMA_TARGET_CRC [[gnu::target("+crc")]]
#endif

STEMMA_TARGET_CRC std::uint32_t sum_words(std::span<const std::byte> bytes, std::uint32_t state) {
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    state = __crc32cd(state, word);
  }
  for (; at < bytes.size(); ++at) {
    state = __crc32cb(state, std::to_integer<std::uint8_t>(bytes[at]));
  }
  return state;
}

std::uint32_t copy_words(const CrcCopy& copy, std::uint32_t state) {
  constexpr std::size_t kPieceBytes = 4096;
  for (std::size_t at = 0; at < copy.from.size(); at += kPieceBytes) {
    const std::size_t bytes = std::min(kPieceBytes, copy.from.size() - at);
    std::memcpy(copy.to + at, copy.from.data() + at, bytes);
    state = sum_words({copy.to + at, bytes}, state);
  }
  return state;
}

constexpr std::array<Crc32cKernel, 1> kKernels = {
    {{"arm_crc", has_crc32, sum_words, copy_words, copy_words}}};

}  // namespace

std::span<const Crc32cKernel> crc32c_arm_kernels() {
  return kKernels;
}

#else

std::span<const Crc32cKernel> crc32c_arm_kernels() {
  return {};
}

#endif

}  // namespace stemma
