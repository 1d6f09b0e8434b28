// Row operations: each against its definition in double, at every length around the vectors' sizes,
// on every SIMD target; and I13: an element's bits depend on neither its place in the row nor the
// row's length.
#include "device/row_ops.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/prng.h"
#include "device/simd_target.h"

namespace stemma {
namespace {

constexpr std::uint64_t kSeed = 77;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::size_t kLengths[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 127, 130, 896};

class RowOpsTest : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { ASSERT_TRUE(try_select_simd_target(GetParam())); }
  void TearDown() override { select_best_simd_target(); }

  std::vector<float> row(std::size_t n, double range = 1) {
    std::vector<float> values(n);
    for (float& value : values) value = static_cast<float>((2 * prng_.unit() - 1) * range);
    return values;
  }

  Prng prng_{kSeed};
};

INSTANTIATE_TEST_SUITE_P(Targets, RowOpsTest, testing::ValuesIn(simd_target_names()),
                         [](const auto& target) { return std::string(target.param); });

std::uint32_t bits(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

double silu(double g) {
  return g / (1 + std::exp(-g));
}

TEST_P(RowOpsTest, RmsNormAgreesWithReference) {
  for (const std::size_t n : kLengths) {
    const std::vector<float> x = row(n, 3);
    const std::vector<float> weight = row(n);
    double squares = 0;
    for (const float value : x) squares += double{value} * double{value};
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + double{1e-5f});
    std::vector<float> out(n);
    rms_norm(x, weight, 1e-5f, out);
    std::vector<float> in_place = x;
    rms_norm(in_place, weight, 1e-5f, in_place);
    for (std::size_t i = 0; i < n; ++i) {
      const double expected = double{x[i]} * scale * double{weight[i]};
      ASSERT_NEAR(double{out[i]}, expected, 1e-6 * std::abs(expected) + 1e-30) << n << " " << i;
      ASSERT_EQ(bits(in_place[i]), bits(out[i]));
    }
  }
}

TEST_P(RowOpsTest, RmsNormOfZerosIsZero) {
  std::vector<float> x(19, 0.0f);
  rms_norm(x, std::vector<float>(19, 1.0f), 1e-6f, x);
  for (const float value : x) EXPECT_EQ(value, 0.0f);
}

TEST_P(RowOpsTest, RotateHalvesAgreesWithReference) {
  for (const std::size_t half : kLengths) {
    constexpr std::size_t kUntouched = 3;
    const std::vector<float> x = row(2 * half + kUntouched, 4);
    std::vector<float> cosines(half);
    std::vector<float> sines(half);
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = 100 * prng_.unit();
      cosines[i] = static_cast<float>(std::cos(angle));
      sines[i] = static_cast<float>(std::sin(angle));
    }
    std::vector<float> turned = x;
    rotate_halves(turned, cosines, sines);
    for (std::size_t i = 0; i < half; ++i) {
      const double a = double{x[i]};
      const double b = double{x[half + i]};
      ASSERT_NEAR(double{turned[i]}, a * double{cosines[i]} - b * double{sines[i]}, 1e-6);
      ASSERT_NEAR(double{turned[half + i]}, b * double{cosines[i]} + a * double{sines[i]}, 1e-6);
    }
    for (std::size_t i = 2 * half; i < x.size(); ++i) ASSERT_EQ(bits(turned[i]), bits(x[i]));
  }
}

TEST_P(RowOpsTest, SiluMultiplyAgreesWithReference) {
  for (const std::size_t n : kLengths) {
    const std::vector<float> gate = row(n, 87);
    const std::vector<float> up = row(n, 2);
    std::vector<float> out(n);
    silu_multiply(gate, up, out);
    for (std::size_t i = 0; i < n; ++i) {
      const double expected = silu(double{gate[i]}) * double{up[i]};
      ASSERT_NEAR(double{out[i]}, expected, 1e-6 * std::abs(expected)) << gate[i];
    }
  }
}

TEST_P(RowOpsTest, GeluMultiplyAgreesWithReference) {
  for (const std::size_t n : kLengths) {
    const std::vector<float> gate = row(n, 10);
    const std::vector<float> up = row(n);
    std::vector<float> out(n);
    gelu_multiply(gate, up, out);
    for (std::size_t i = 0; i < n; ++i) {
      const double g = double{gate[i]};
      const double root = std::sqrt(2.0 / std::acos(-1.0));
      const double expected =
          g / 2 * (1 + std::tanh(root * (g + 0.044715 * g * g * g))) * double{up[i]};
      ASSERT_NEAR(double{out[i]}, expected, 1e-6 * std::abs(g * double{up[i]})) << gate[i];
    }
  }
}

TEST_P(RowOpsTest, GeluOfExtremes) {
  const std::vector<float> gate = {0.0f, 50.0f, 3e38f, -50.0f, -3e38f, kInfinity, kNan};
  std::vector<float> out(gate.size());
  gelu_multiply(gate, std::vector<float>(gate.size(), 1.0f), out);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[1], 50.0f);
  EXPECT_EQ(out[2], 3e38f);
  EXPECT_EQ(std::abs(out[3]), 0.0f);
  EXPECT_EQ(std::abs(out[4]), 0.0f);
  EXPECT_EQ(out[5], kInfinity);
  EXPECT_TRUE(std::isnan(out[6]));
}

TEST_P(RowOpsTest, CapsByTanh) {
  for (const std::size_t n : kLengths) {
    std::vector<float> x = row(n, 40);
    const std::vector<float> before = x;
    cap_by_tanh(x, 30.0f);
    for (std::size_t i = 0; i < n; ++i) {
      const double expected = 30 * std::tanh(double{before[i]} / 30);
      ASSERT_NEAR(double{x[i]}, expected, 1e-6 * std::abs(expected) + 1e-30);
    }
  }
}

TEST_P(RowOpsTest, SiluOfExtremes) {
  const std::vector<float> gate = {0.0f, -0.0f, 100.0f, 3e38f, -100.0f, -3e38f, kInfinity, kNan};
  std::vector<float> out(gate.size());
  silu_multiply(gate, std::vector<float>(gate.size(), 1.0f), out);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[1], 0.0f);
  EXPECT_EQ(out[2], 100.0f);
  EXPECT_EQ(out[3], 3e38f);
  EXPECT_LT(std::abs(out[4]), 1e-36f);
  EXPECT_LT(std::abs(out[5]), 1e-36f);
  EXPECT_EQ(out[6], kInfinity);
  EXPECT_TRUE(std::isnan(out[7]));
}

TEST_P(RowOpsTest, AddsExactlyAsScalarsDo) {
  for (const std::size_t n : kLengths) {
    const std::vector<float> x = row(n, 5);
    const std::vector<float> y = row(n, 5);
    std::vector<float> sum = x;
    add_to(sum, y);
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(bits(sum[i]), bits(x[i] + y[i]));
  }
}

TEST_P(RowOpsTest, ConvertsEveryValueExactly) {
  std::vector<std::uint16_t> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> out(all.size());
  for (const WeightType type : {WeightType::kF16, WeightType::kBf16}) {
    convert_to_f32(all.data(), type, out);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const float expected =
          type == WeightType::kF16 ? to_float(Float16{all[i]}) : to_float(BFloat16{all[i]});
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(out[i])) << i;
      } else {
        ASSERT_EQ(bits(out[i]), bits(expected)) << i;
      }
    }
  }
}

TEST_P(RowOpsTest, ConvertsRaggedUnalignedRows) {
  for (const std::size_t n : kLengths) {
    const std::vector<float> values = row(n);
    std::vector<std::byte> unaligned(1 + n * sizeof(float));
    std::memcpy(unaligned.data() + 1, values.data(), n * sizeof(float));
    std::vector<float> out(n + 1, kNan);
    convert_to_f32(unaligned.data() + 1, WeightType::kF32, std::span(out).first(n));
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(bits(out[i]), bits(values[i]));
    ASSERT_TRUE(std::isnan(out[n]));
  }
}

TEST_P(RowOpsTest, ArgmaxIsTheFirstLargest) {
  for (const std::size_t n : kLengths) {
    for (std::size_t best = 0; best < n; ++best) {
      std::vector<float> x = row(n);
      x[best] = 2.0f;
      for (std::size_t later = best + 1; later < n; later += 5) x[later] = 2.0f;
      if (best > 0) x[best - 1] = kNan;
      ASSERT_EQ(argmax(x), static_cast<std::int64_t>(best)) << n;
    }
  }
  EXPECT_EQ(argmax(std::vector<float>(20, kNan)), 0);
  EXPECT_EQ(argmax(std::vector<float>{kNan, -kInfinity, -kInfinity}), 1);
}

TEST_P(RowOpsTest, ExpOfScaledIsThatOfALibrary) {
  for (const std::size_t n : kLengths) {
    std::vector<float> x = row(n);
    for (float& value : x) value *= 100;
    x[n / 2] = kNan;
    x[n - 1] = -kInfinity;
    const double zero = 400.5;
    std::vector<double> out(n);
    for (const double unit : {0.01, 0.7, 1.0, 30.0}) {
      exp_of_scaled(x, zero, unit, out);
      for (std::size_t i = 0; i < n; ++i) {
        const double exponent = (static_cast<double>(x[i]) - zero) / unit;
        const double wanted = exponent >= -690 ? std::exp(exponent) : 0;
        ASSERT_NEAR(out[i], wanted, 1e-14 * wanted) << exponent;
      }
    }
  }
  std::vector<double> one(1);
  exp_of_scaled(std::vector<float>{2.5F}, 2.5, 0.3, one);
  EXPECT_EQ(one[0], 1);
}

// I13: an element-wise operation on a row equals the same on each element alone.
TEST_P(RowOpsTest, ElementBitsDoNotDependOnPlaceOrLength) {
  constexpr std::size_t kN = 77;
  const std::vector<float> gate = row(kN, 20);
  const std::vector<float> up = row(kN, 2);
  std::vector<float> together(kN);
  silu_multiply(gate, up, together);
  std::vector<float> turned = gate;
  turned.insert(turned.end(), up.begin(), up.end());
  rotate_halves(turned, up, gate);
  for (std::size_t i = 0; i < kN; ++i) {
    float alone = 0;
    silu_multiply(std::span(gate).subspan(i, 1), std::span(up).subspan(i, 1), std::span(&alone, 1));
    ASSERT_EQ(bits(alone), bits(together[i])) << i;
    float pair[] = {gate[i], up[i]};
    rotate_halves(pair, std::span(up).subspan(i, 1), std::span(gate).subspan(i, 1));
    ASSERT_EQ(bits(pair[0]), bits(turned[i])) << i;
    ASSERT_EQ(bits(pair[1]), bits(turned[kN + i])) << i;
  }
}

// I13: a row's norm does not depend on the alignment of its memory.
TEST_P(RowOpsTest, NormBitsDoNotDependOnAlignment) {
  constexpr std::size_t kN = 203;
  const std::vector<float> x = row(kN);
  const std::vector<float> weight = row(kN);
  std::vector<float> expected(kN);
  rms_norm(x, weight, 1e-6f, expected);
  for (std::size_t shift = 0; shift < 17; ++shift) {
    std::vector<float> room(kN + shift);
    std::copy(x.begin(), x.end(), room.begin() + static_cast<std::ptrdiff_t>(shift));
    const std::span<float> moved = std::span(room).subspan(shift);
    rms_norm(moved, weight, 1e-6f, moved);
    for (std::size_t i = 0; i < kN; ++i) ASSERT_EQ(bits(moved[i]), bits(expected[i])) << shift;
  }
}

}  // namespace
}  // namespace stemma
