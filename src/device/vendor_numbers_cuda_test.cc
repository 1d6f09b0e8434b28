// Types of 8 and 16 bits, as base/ converts them and as the vendor's headers do on the host: what
// kernels round is what a CPU rounds. Needs no GPU, but CUDA's headers.
#ifndef STEMMA_SIMT
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/float16.h"
#include "base/float8.h"

namespace stemma {
namespace {

// Every sign, exponent and seven first digits, with digits behind them that lie on all sides of
// what 8 and 16 bits can say.
template <typename Visit>
void each_number(const Visit& visit) {
  constexpr std::array<std::uint32_t, 13> kLast = {0x0000, 0x0001, 0x0FFF, 0x1000, 0x1001,
                                                   0x3FFF, 0x7FFF, 0x8000, 0x8001, 0xB000,
                                                   0xC001, 0xEFFF, 0xFFFF};
  for (std::uint32_t first = 0; first < 0x10000; ++first) {
    for (const std::uint32_t last : kLast) {
      const auto value = std::bit_cast<float>(first << 16 | last);
      if (!std::isnan(value)) visit(value);
    }
  }
}

// Numbers alike, down to the sign of a zero.
void expect_alike(float ours, float theirs, std::uint32_t code) {
  if (std::isnan(ours) && std::isnan(theirs)) return;
  ASSERT_EQ(std::bit_cast<std::uint32_t>(ours), std::bit_cast<std::uint32_t>(theirs)) << code;
}

TEST(VendorNumbers, OfSixteenBitsAreRoundedAsOursAre) {
  each_number([](float value) {
    const auto bfloat = std::bit_cast<__nv_bfloat16_raw>(__float2bfloat16_rn(value));
    ASSERT_EQ(to_bfloat16(value).bits, bfloat.x) << value;
    const auto half = std::bit_cast<__half_raw>(__float2half_rn(value));
    ASSERT_EQ(to_float16(value).bits, half.x) << value;
  });
}

TEST(VendorNumbers, OfEightBitsAreRoundedAndLimitedAsOursAre) {
  each_number([](float value) {
    ASSERT_EQ(to_float8<Float8E4M3>(value).bits,
              __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3))
        << value;
    ASSERT_EQ(to_float8<Float8E5M2>(value).bits,
              __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E5M2))
        << value;
  });
}

TEST(VendorNumbers, AreWhatOursAre) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto bits = static_cast<std::uint16_t>(code);
    expect_alike(to_float(BFloat16{bits}), __bfloat162float(__nv_bfloat16_raw{bits}), code);
    expect_alike(to_float(Float16{bits}), __half2float(__half_raw{bits}), code);
  }
  for (std::uint32_t code = 0; code < 0x100; ++code) {
    const auto bits = static_cast<std::uint8_t>(code);
    expect_alike(to_float(Float8E4M3{bits}), __half2float(__nv_cvt_fp8_to_halfraw(bits, __NV_E4M3)),
                 code);
    expect_alike(to_float(Float8E5M2{bits}), __half2float(__nv_cvt_fp8_to_halfraw(bits, __NV_E5M2)),
                 code);
  }
}

}  // namespace
}  // namespace stemma
#endif
