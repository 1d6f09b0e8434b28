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
    sum ^= sum_product(state, tables[std::size_t{kSumAdvanceWords} + thread]);
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

TEST(SumTables, SumsOfPartsMakeThatOfTheWhole) {
  constexpr std::size_t kPartBytes = 2 * std::size_t{kSumStrideBytes};
  Prng prng(20261127);
  for (const std::size_t size : {std::size_t{1}, kPartBytes, kPartBytes + 5, 5 * kPartBytes - 3}) {
    std::vector<std::byte> bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng());
    std::span<const std::byte> left(bytes);
    std::uint32_t sum = 0;
    while (!left.empty()) {  // whole parts but for the first
      const auto part = left.first((left.size() - 1) % kPartBytes + 1);
      const std::uint32_t own = walked_sum(part) ^ sum_of_zeros(part.size());
      sum = sum_product(sum, sum_advance(kPartBytes)) ^ own;
      left = left.subspan(part.size());
    }
    EXPECT_EQ(sum ^ sum_of_zeros(size), crc32c(bytes)) << size << " bytes";
  }
}

}  // namespace
}  // namespace stemma
