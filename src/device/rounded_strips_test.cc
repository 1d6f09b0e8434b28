// RoundedStrips: the codes and scales of packed weights, each where the layout says.
#include "device/rounded_strips.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/float16.h"
#include "base/prng.h"
#include "device/quantise_fixture.h"

namespace stemma {
namespace {

PackedWeights random_matrix(WeightFormat format, std::int64_t n, std::int64_t k,
                            ThreadPool& threads) {
  Prng random(7);
  std::vector<float> values(static_cast<std::size_t>(n * k));
  for (float& value : values) value = static_cast<float>(random.unit() - 0.5);
  return quantised_matrix(values, n, k, format, threads);
}

// Code × scale of one weight, as it lies in strips.
float weight_in(const std::vector<std::byte>& strips, CodeForm form, std::int64_t k,
                std::int64_t output, std::int64_t input) {
  const std::byte* const strip = strips.data() + output / 8 * RoundedStrips::strip_bytes(form, k);
  const std::byte* const group =
      strip + RoundedStrips::begin_bytes(form) + input / 64 * RoundedStrips::group_bytes(form);
  const auto own = static_cast<int>(output % 8);
  const auto within = static_cast<int>(input % 64);
  if (form == CodeForm::kInt8) {
    float scale = 0;
    std::memcpy(&scale, strip + own * 4, sizeof(scale));
    const auto code = static_cast<std::int8_t>(group[own * 64 + RoundedStrips::int8_place(within)]);
    return static_cast<float>(code) * scale;
  }
  BFloat16 scale;
  std::memcpy(&scale, group + 256 + own * 2, sizeof(scale));
  const int place = RoundedStrips::int4_place(within);
  const int code = static_cast<int>(group[own * 32 + place / 2]) >> (place % 2 * 4) & 0xF;
  const int zero = form == CodeForm::kInt4Shifted ? static_cast<int>(group[256 + 16 + own]) : 8;
  return static_cast<float>(code - zero) * to_float(scale);
}

class RoundedStripsTest : public testing::TestWithParam<WeightFormat> {};

TEST_P(RoundedStripsTest, EveryWeightIsThatOfThePackedMatrix) {
  constexpr std::int64_t kN = 75;  // two panels, the last strip has three outputs
  constexpr std::int64_t kK = 130;
  ThreadPool threads(2);
  const CodeForm form = code_form(GetParam());
  const PackedWeights matrix = random_matrix(GetParam(), kN, kK, threads);
  const std::vector<std::byte> strips = strips_of(matrix, threads);
  ASSERT_EQ(std::ssize(strips), RoundedStrips::matrix_bytes(form, kN, kK));
  std::vector<float> row(kK);
  for (std::int64_t output = 0; output < kN; ++output) {
    matrix.unpack_row(output, row);
    for (std::int64_t input = 0; input < kK; ++input) {
      ASSERT_EQ(weight_in(strips, form, kK, output, input), row[static_cast<std::size_t>(input)])
          << output << " " << input;
    }
  }
}

// So tensor cores may read it: zeros count for nothing.
TEST_P(RoundedStripsTest, InputsBehindTheLastOneStandForZero) {
  ThreadPool threads(1);
  const CodeForm form = code_form(GetParam());
  const PackedWeights matrix = random_matrix(GetParam(), 8, 72, threads);
  const std::vector<std::byte> strips = strips_of(matrix, threads);
  for (std::int64_t output = 0; output < 8; ++output) {
    for (std::int64_t input = 72; input < 128; ++input) {
      ASSERT_EQ(weight_in(strips, form, 72, output, input), 0) << output << " " << input;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, RoundedStripsTest,
                         testing::Values(WeightFormat::kInt8, WeightFormat::kInt4,
                                         WeightFormat::kInt4Shifted),
                         [](const auto& format) {
                           return std::string(weight_format_name(format.param));
                         });

TEST(RoundedStrips, TheirBytesAreHalfAndAQuarterOfBf16) {
  constexpr std::int64_t kN = 4096;
  constexpr std::int64_t kK = 14336;
  constexpr double kBf16 = 2.0 * kN * kK;
  EXPECT_NEAR(static_cast<double>(RoundedStrips::matrix_bytes(CodeForm::kInt8, kN, kK)) / kBf16,
              0.5, 1e-3);
  EXPECT_EQ(static_cast<double>(RoundedStrips::matrix_bytes(CodeForm::kInt4, kN, kK)) / kBf16,
            4.25 / 16);
  EXPECT_EQ(
      static_cast<double>(RoundedStrips::matrix_bytes(CodeForm::kInt4Shifted, kN, kK)) / kBf16,
      4.5 / 16);
}

}  // namespace
}  // namespace stemma
