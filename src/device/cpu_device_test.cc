// CpuDevice: allocation, refusal, and copies that are exact at every size around the piece they are
// split into.
#include "device/cpu_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/prng.h"

namespace stemma {
namespace {

TEST(CpuDeviceTest, AllocatesZeroedMemoryOrSaysWhyNot) {
  ThreadPool pool(2);
  CpuDevice device(pool);
  EXPECT_EQ(device_kind_name(device.kind()), "cpu");
  const Result<Buffer> buffer = device.allocate(10000);
  ASSERT_TRUE(buffer.ok());
  const auto values = buffer->as<std::uint8_t>();
  EXPECT_EQ(std::count(values.begin(), values.end(), 0), 10000);
  EXPECT_EQ(device.allocate(std::size_t{1} << 60).error().code, ErrorCode::kOutOfMemory);
}

TEST(CpuDeviceTest, CopiesExactlyAtEverySize) {
  ThreadPool pool(3);
  CpuDevice device(pool);
  Prng prng(1);
  for (const std::size_t size_bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{4097}, (std::size_t{4} << 20) - 1,
        std::size_t{4} << 20, (std::size_t{8} << 20) + 3}) {
    std::vector<std::byte> source(size_bytes);
    for (std::byte& b : source) b = static_cast<std::byte>(prng());
    std::vector<std::byte> target(size_bytes + 1, std::byte{0x5A});
    device.copy(std::span(target).first(size_bytes), source);
    EXPECT_TRUE(std::equal(source.begin(), source.end(), target.begin()));
    EXPECT_EQ(target.back(), std::byte{0x5A});
  }
}

}  // namespace
}  // namespace stemma
