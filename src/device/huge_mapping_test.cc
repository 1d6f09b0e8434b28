// Mappings of huge pages: where they lie, and that they are refused in words of the system.
#include "device/huge_mapping.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

namespace stemma {
namespace {

TEST(HugeMapping, BeginsAtAMultipleOfAHugePageAndIsZeroed) {
  constexpr std::size_t kBytes = 2 * kHugePageBytes;
  std::byte* const bytes = try_map_huge(kBytes, PROT_READ | PROT_WRITE);
  ASSERT_NE(bytes, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes) % kHugePageBytes, 0u);
  EXPECT_EQ(bytes[0], std::byte{0});
  EXPECT_EQ(bytes[kBytes - 1], std::byte{0});
  bytes[kBytes - 1] = std::byte{1};
  unmap(bytes, kBytes);
}

TEST(HugeMapping, IsRefusedAsTheSystemRefusesIt) {
  EXPECT_EQ(try_map_huge(std::size_t{1} << 60, PROT_NONE), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

TEST(HugeMapping, OfNoBytesNothingIsUnmapped) {
  unmap(nullptr, 0);
}

}  // namespace
}  // namespace stemma
