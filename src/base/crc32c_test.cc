// Crc32c: published values; every kernel of this build that works on this processor gives what a
// bit-by-bit sum gives, for lengths around all its steps, at every alignment, in parts and while
// copying, and copies touch nothing but their target.
#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/crc32c_kernel.h"
#include "base/prng.h"

namespace stemma {
namespace {

constexpr std::uint64_t kSeed = 20260301;

std::vector<Crc32cKernel> working_kernels() {
  std::vector<Crc32cKernel> kernels;
  for (const Crc32cKernel& kernel : crc32c_kernels()) {
    if (kernel.works_here()) kernels.push_back(kernel);
  }
  return kernels;
}

// The reference twin: one bit at a time, from the definition.
std::uint32_t sum_by_bits(std::span<const std::byte> bytes, std::uint32_t crc = 0) {
  std::uint32_t state = ~crc;
  for (const std::byte byte : bytes) {
    state ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      state = (state & 1) != 0 ? (state >> 1) ^ 0x82F63B78u : state >> 1;
    }
  }
  return ~state;
}

std::vector<std::byte> random_bytes(std::size_t size_bytes, Prng& prng) {
  std::vector<std::byte> bytes(size_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng());
  return bytes;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(Crc32c, PublishedValues) {
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283u);
  // RFC 3720, B.4.
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8A9136AAu);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xFF'))), 0x62A8AB43u);
  std::array<std::byte, 32> ascending;
  for (std::size_t i = 0; i < 32; ++i) ascending[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(ascending), 0x46DD794Eu);
}

TEST(Crc32c, EveryKernelSumsEveryLength) {
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  const std::vector<std::byte> bytes = random_bytes(9000, prng);
  std::vector<std::size_t> lengths(700);
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = i;
  for (const std::size_t near : {1024u, 2048u, 4032u, 4096u, 8064u, 8192u}) {
    for (std::size_t length = near - 9; length <= near + 9; ++length) lengths.push_back(length);
  }
  for (const std::size_t length : lengths) {
    const auto offset = static_cast<std::size_t>(prng.below(70));
    const auto before = static_cast<std::uint32_t>(prng());
    const std::span<const std::byte> part(bytes.data() + offset, length);
    const std::uint32_t expected = sum_by_bits(part, before);
    ASSERT_EQ(crc32c(part, before), expected) << length;
    for (const Crc32cKernel& kernel : working_kernels()) {
      ASSERT_EQ(~kernel.sum(part, ~before), expected) << kernel.name << " " << length;
    }
  }
}

TEST(Crc32c, PartsGiveTheSumOfTheWhole) {
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  const std::vector<std::byte> bytes = random_bytes(6000, prng);
  const std::uint32_t whole = crc32c(bytes);
  for (int trial = 0; trial < 200; ++trial) {
    const auto cut = static_cast<std::size_t>(prng.below(6001));
    const std::span<const std::byte> all(bytes);
    ASSERT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), whole) << cut;
  }
}

// A target between guards.
class Target {
 public:
  Target(std::size_t offset, std::size_t size_bytes)
      : offset_(offset), size_bytes_(size_bytes), bytes_(64 + offset + size_bytes + 64, kGuard) {
    const auto misaligned = reinterpret_cast<std::uintptr_t>(bytes_.data()) % 64;
    offset_ += misaligned == 0 ? 0 : 64 - misaligned;
  }
  std::byte* begin() { return bytes_.data() + offset_; }

  void expect(std::span<const std::byte> wanted) {
    ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), begin()));
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if (i >= offset_ && i < offset_ + size_bytes_) continue;
      ASSERT_EQ(bytes_[i], kGuard) << i;
    }
  }

 private:
  static constexpr std::byte kGuard{0xA5};
  std::size_t offset_;
  std::size_t size_bytes_;
  std::vector<std::byte> bytes_;
};

TEST(Crc32c, EveryKernelCopiesWhatItSums) {
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  const std::vector<std::byte> bytes = random_bytes(20000, prng);
  for (int trial = 0; trial < 1500; ++trial) {
    const std::int64_t length_max = trial % 3 == 0 ? 9000 : 600;
    const auto length = static_cast<std::size_t>(prng.below(length_max));
    const auto offset = static_cast<std::size_t>(prng.below(70));
    const auto target_offset = static_cast<std::size_t>(prng.below(64));
    const std::byte* const next = trial % 2 == 0 ? nullptr : bytes.data() + 10000;
    const std::span<const std::byte> from(bytes.data() + offset, length);
    const auto before = static_cast<std::uint32_t>(prng());
    const std::uint32_t expected = sum_by_bits(from, before);
    for (const Crc32cKernel& kernel : working_kernels()) {
      SCOPED_TRACE(kernel.name);
      Target cached(target_offset, length);
      ASSERT_EQ(~kernel.copy({from, cached.begin(), next}, ~before), expected);
      cached.expect(from);
      Target aligned(0, length);
      ASSERT_EQ(~kernel.copy_past_caches({from, aligned.begin(), next}, ~before), expected);
      end_past_caches();
      aligned.expect(from);
    }
    Target any(target_offset, length);
    ASSERT_EQ(copy_crc32c(from, any.begin(), before), expected);
    any.expect(from);
    ASSERT_EQ(copy_crc32c({from, any.begin(), next, true}, before), expected);
    end_past_caches();
    any.expect(from);
  }
}

TEST(Crc32c, AFlippedBitChangesTheSum) {
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  std::vector<std::byte> bytes = random_bytes(8192, prng);
  const std::uint32_t whole = crc32c(bytes);
  for (int trial = 0; trial < 20000; ++trial) {
    const auto bit = static_cast<std::size_t>(prng.below(8192 * 8));
    const auto mask = static_cast<std::byte>(1 << (bit % 8));
    bytes[bit / 8] ^= mask;
    ASSERT_NE(crc32c(bytes), whole) << bit;
    bytes[bit / 8] ^= mask;
  }
}

}  // namespace
}  // namespace stemma
