// SumTables: a team that walks over bytes as the tables say has the CRC32C of base/crc32c.
#include "pool/sum_tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "base/crc32c.h"
#include "base/prng.h"

namespace stemma {
namespace {

std::uint32_t product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum = 0;
  for (int bit = 31; bit >= 0; --bit) {
    if ((a >> bit & 1) != 0) sum ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kSumPolynomial : 0);
  }
  return sum;
}

// Thread after thread.
std::uint32_t walked_sum(std::span<const std::byte> bytes) {
  static const std::vector<std::uint32_t> tables = make_sum_tables();
  constexpr std::size_t kStrideBytes = kSumStrideBytes;
  constexpr std::size_t kWordBytes = kSumWordBytes;
  const std::size_t strides = (bytes.size() + kStrideBytes - 1) / kStrideBytes;
  std::vector<std::byte> filled(strides * kStrideBytes);
  std::copy(bytes.begin(), bytes.end(), filled.end() - std::ssize(bytes));
  std::uint32_t sum = sum_of_zeros(bytes.size());
  for (std::size_t thread = 0; thread < std::size_t{kSumThreads}; ++thread) {
    std::uint32_t state = 0;
    for (std::size_t stride = 0; stride < strides; ++stride) {
      std::array<std::uint8_t, kWordBytes> word;
      std::memcpy(word.data(), &filled[stride * kStrideBytes + thread * kWordBytes], kWordBytes);
      for (std::size_t i = 0; i < 4; ++i) word[i] ^= static_cast<std::uint8_t>(state >> (8 * i));
      state = 0;
      for (std::size_t i = 0; i < kWordBytes; ++i) state ^= tables[i * 256 + word[i]];
    }
    sum ^= product(state, tables[std::size_t{kSumAdvanceWords} + thread]);
  }
  return sum;
}

TEST(SumTables, ATeamHasTheSumOfTheHost) {
  Prng prng(20261123);
  constexpr std::size_t kSizes[] = {1, 15, 16, 17, 4095, 4096, 4097, 8192, 9000, 65536, 70001};
  for (const std::size_t size : kSizes) {
    std::vector<std::byte> bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng());
    EXPECT_EQ(walked_sum(bytes), crc32c(bytes)) << size << " bytes";
  }
}

TEST(SumTables, NoBytesAndOnlyZerosToo) {
  EXPECT_EQ(sum_of_zeros(0), crc32c({}));
  const std::vector<std::byte> zeros(5000);
  EXPECT_EQ(sum_of_zeros(5000), crc32c(zeros));
  EXPECT_EQ(walked_sum(zeros), crc32c(zeros));
}

}  // namespace
}  // namespace stemma
