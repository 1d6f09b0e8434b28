// Float16: every f16 pattern survives the trip through f32; rounding is to nearest, ties to even.
#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace stemma {
namespace {

TEST(Float16, EveryPatternSurvivesARoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const Float16 value{static_cast<std::uint16_t>(bits)};
    const float wide = to_float(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(to_float(to_float16(wide))));
    } else {
      ASSERT_EQ(to_float16(wide).bits, bits);
    }
  }
}

TEST(Float16, RoundsHalfwayToEven) {
  EXPECT_EQ(to_float16(1.0f + 0x1.0p-11f).bits, 0x3C00);  // halfway to the next: even is below
  EXPECT_EQ(to_float16(1.0f + 0x1.8p-10f).bits, 0x3C02);  // halfway again: even is above
  EXPECT_EQ(to_float16(0x1.0p-25f).bits, 0x0000);         // half of the least subnormal
  EXPECT_EQ(to_float16(0x1.8p-24f).bits, 0x0002);         // between subnormals
  EXPECT_EQ(to_float16(65519.0f).bits, 0x7BFF);
  EXPECT_EQ(to_float16(65520.0f).bits, 0x7C00);
}

TEST(BFloat16, EveryPatternSurvivesARoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const BFloat16 value{static_cast<std::uint16_t>(bits)};
    if (std::isnan(to_float(value))) {
      EXPECT_TRUE(std::isnan(to_float(to_bfloat16(to_float(value)))));
    } else {
      ASSERT_EQ(to_bfloat16(to_float(value)).bits, bits);
    }
  }
}

TEST(BFloat16, RoundsHalfwayToEven) {
  EXPECT_EQ(to_bfloat16(1.0f + 0x1.0p-8f).bits, 0x3F80);
  EXPECT_EQ(to_bfloat16(1.0f + 0x1.8p-7f).bits, 0x3F82);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7F80);
}

}  // namespace
}  // namespace stemma
