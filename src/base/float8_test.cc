// Float8: every pattern survives the trip through f32; rounding is to nearest, ties to even, and
// saturates.
#include "base/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace stemma {
namespace {

template <typename Float8>
class Float8Of : public testing::Test {};
using Formats = testing::Types<Float8E4M3, Float8E5M2>;
TYPED_TEST_SUITE(Float8Of, Formats);

// Finite values of a format, 0 first, ascending.
template <typename Float8>
std::vector<double> magnitudes() {
  std::vector<double> values;
  for (std::uint32_t bits = 0; bits < 0x80u; ++bits) {
    const float value = to_float(Float8{static_cast<std::uint8_t>(bits)});
    if (std::isfinite(value)) values.push_back(value);
  }
  return values;
}

TYPED_TEST(Float8Of, EveryFinitePatternSurvivesARoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x100u; ++bits) {
    const float wide = to_float(TypeParam{static_cast<std::uint8_t>(bits)});
    if (std::isfinite(wide)) {
      ASSERT_EQ(to_float8<TypeParam>(wide).bits, bits);
    }
  }
}

// As the definition says: (1 + mantissa / 2^m) × 2^(exponent − bias), or without the 1.
TYPED_TEST(Float8Of, ValuesAreThoseOfTheFormat) {
  constexpr int kMantissaBits = TypeParam::kMantissaBits;
  for (std::uint32_t bits = 0; bits < 0x80u; ++bits) {
    const float value = to_float(TypeParam{static_cast<std::uint8_t>(bits)});
    if (!std::isfinite(value)) continue;
    const int exponent = static_cast<int>(bits >> kMantissaBits);
    const double fraction = std::ldexp(bits & ((1u << kMantissaBits) - 1), -kMantissaBits);
    const double expected = exponent == 0 ? std::ldexp(fraction, 1 - TypeParam::kBias)
                                          : std::ldexp(1 + fraction, exponent - TypeParam::kBias);
    ASSERT_EQ(value, expected) << bits;
  }
  EXPECT_EQ(magnitudes<TypeParam>().back(), TypeParam::kMax);
}

// Around the middle between each two neighbours.
TYPED_TEST(Float8Of, RoundsToTheNearestAndHalfwayToEven) {
  const std::vector<double> values = magnitudes<TypeParam>();
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    const auto middle = static_cast<float>((values[i] + values[i + 1]) / 2);  // exact
    const std::size_t even = i % 2 == 0 ? i : i + 1;
    EXPECT_EQ(to_float8<TypeParam>(middle).bits, even);
    EXPECT_EQ(to_float8<TypeParam>(std::nextafter(middle, 0.0f)).bits, i);
    EXPECT_EQ(to_float8<TypeParam>(std::nextafter(middle, 1e9f)).bits, i + 1);
    EXPECT_EQ(to_float8<TypeParam>(-middle).bits, 0x80u | even);
  }
}

TYPED_TEST(Float8Of, SaturatesAtTheLargestValue) {
  const std::uint8_t largest = to_float8<TypeParam>(TypeParam::kMax).bits;
  for (const float value : {TypeParam::kMax * 1.01f, 1e30f, HUGE_VALF}) {
    EXPECT_EQ(to_float8<TypeParam>(value).bits, largest);
    EXPECT_EQ(to_float8<TypeParam>(-value).bits, 0x80u | largest);
  }
}

TEST(Float8, InfinityAndNanOfStoredPatternsAreKept) {
  EXPECT_TRUE(std::isnan(to_float(Float8E4M3{0x7F})));
  EXPECT_TRUE(std::isnan(to_float(Float8E4M3{0xFF})));
  EXPECT_EQ(to_float(Float8E5M2{0x7C}), HUGE_VALF);
  EXPECT_TRUE(std::isnan(to_float(Float8E5M2{0x7D})));
}

}  // namespace
}  // namespace stemma
