// Buffer: alignment, zeroing, refusal, moves, prefaulting that keeps contents.
#include "device/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace stemma {
namespace {

std::uintptr_t address(const Buffer& buffer) {
  return reinterpret_cast<std::uintptr_t>(buffer.bytes());
}

TEST(BufferTest, IsZeroedAndAlignedAtEverySize) {
  for (const std::size_t size_bytes :
       {std::size_t{1}, std::size_t{4096}, kHugePageBytes / 4 - 1, kHugePageBytes / 4,
        kHugePageBytes - 1, kHugePageBytes, kHugePageBytes + 1}) {
    Result<Buffer> buffer = Buffer::allocate(size_bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(buffer->size_bytes(), size_bytes);
    EXPECT_EQ(address(*buffer) % 4096, 0u);
    if (size_bytes >= kHugePageBytes / 4) {
      EXPECT_EQ(address(*buffer) % kHugePageBytes, 0u);
    }
    const auto bytes = buffer->as<std::uint8_t>();
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t b) { return b == 0; }));
    bytes.front() = 1;
    bytes.back() = 2;
  }
}

TEST(BufferTest, IsZeroedWhereOthersHadTheMemoryBefore) {
  constexpr std::size_t kSmallBytes = 3 * 4096 + 1;
  for (int round = 0; round < 3; ++round) {
    Result<Buffer> buffer = Buffer::allocate(kSmallBytes);
    ASSERT_TRUE(buffer.ok());
    const auto bytes = buffer->as<std::uint8_t>();
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t b) { return b == 0; }));
    std::fill(bytes.begin(), bytes.end(), std::uint8_t{0x5A});
  }
}

TEST(BufferTest, NothingIsAnEmptyBuffer) {
  Result<Buffer> buffer = Buffer::allocate(0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_TRUE(buffer->empty());
  EXPECT_TRUE(buffer->as<float>().empty());
  ThreadPool pool(2);
  buffer->prefault(pool);
}

TEST(BufferTest, RefusalIsAnErrorThatNamesTheSize) {
  constexpr std::size_t kTooManyBytes = std::size_t{1} << 60;
  for (const std::size_t size_bytes : {kTooManyBytes, std::numeric_limits<std::size_t>::max()}) {
    const Result<Buffer> buffer = Buffer::allocate(size_bytes);
    ASSERT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.error().code, ErrorCode::kOutOfMemory);
    EXPECT_NE(buffer.error().detail.find(std::to_string(size_bytes)), std::string::npos);
  }
}

TEST(BufferTest, MovesLeaveTheSourceEmpty) {
  Buffer first = std::move(Buffer::allocate(100)).value();
  first.as<std::uint8_t>()[99] = 7;
  Buffer second(std::move(first));
  EXPECT_TRUE(first.empty());  // NOLINT: the moved-from state is specified
  EXPECT_EQ(second.as<std::uint8_t>()[99], 7);
  Buffer third = std::move(Buffer::allocate(10)).value();
  third = std::move(second);
  EXPECT_EQ(third.size_bytes(), 100u);
  EXPECT_EQ(third.as<std::uint8_t>()[99], 7);
  third.release();
  EXPECT_TRUE(third.empty());
}

TEST(BufferTest, PrefaultKeepsContents) {
  ThreadPool pool(3);
  Buffer buffer = std::move(Buffer::allocate(9 * kHugePageBytes + 5)).value();
  auto bytes = buffer.as<std::uint8_t>();
  for (std::size_t i = 0; i < bytes.size(); i += 4096)
    bytes[i] = static_cast<std::uint8_t>(i / 4096);
  buffer.prefault(pool);
  for (std::size_t i = 0; i < bytes.size(); i += 4096) {
    ASSERT_EQ(bytes[i], static_cast<std::uint8_t>(i / 4096));
  }
}

}  // namespace
}  // namespace stemma
