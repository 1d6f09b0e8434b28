// Rounded weights: what rounding costs, and their product against a scalar twin, bit for bit: every
// SIMD target of this processor, ragged shapes, any number of rows at any place on any number of
// threads (I13). The twin knows the formats from gemm.h and packed_weights.h alone: it reads
// weights back through unpack_row, where a weight is code x scale, rounded once.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/float16.h"
#include "base/prng.h"
#include "device/gemm.h"
#include "device/gemm_fixture.h"
#include "device/quantise_fixture.h"
#include "device/simd_target.h"

namespace stemma {
namespace {

constexpr std::uint64_t kSeed = 20260719;
constexpr std::int64_t kGroup = PackedWeights::kGroupInputs;
constexpr WeightFormat kFormats[] = {WeightFormat::kInt8, WeightFormat::kInt4,
                                     WeightFormat::kInt4Shifted};
// Those that choose their codes themselves.
constexpr WeightFormat kRoundings[] = {WeightFormat::kInt8, WeightFormat::kInt4};

using Values = std::vector<float>;

struct Shape {
  std::int64_t n = 0;
  std::int64_t k = 0;
};

float normal(Prng& prng) {
  float sum = 0;
  for (int i = 0; i < 12; ++i) sum += static_cast<float>(prng.unit());
  return sum - 6;
}

Values random_values(std::int64_t count, Prng& prng) {
  Values values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(prng);
  return values;
}

PackedWeights quantised(const Values& weights, Shape shape, WeightFormat format, ThreadPool& pool) {
  return quantised_matrix(weights, shape.n, shape.k, format, pool);
}

Values unpacked(const PackedWeights& w) {
  Values values(static_cast<std::size_t>(w.n() * w.k()));
  for (std::int64_t row = 0; row < w.n(); ++row) {
    w.unpack_row(row, std::span(values).subspan(static_cast<std::size_t>(row * w.k()),
                                                static_cast<std::size_t>(w.k())));
  }
  return values;
}

// A row of activations as the product sees it.
struct TwinRow {
  std::vector<std::int64_t> codes;
  Values scales;  // of each group
};

TwinRow twin_row(std::span<const float> values) {
  TwinRow row;
  for (std::size_t first = 0; first < values.size(); first += kGroup) {
    const auto group = values.subspan(first, std::min<std::size_t>(kGroup, values.size() - first));
    float largest = 0;
    for (const float value : group) largest = std::max(largest, std::abs(value));
    row.scales.push_back(largest / 32767.0f);
    for (const float value : group) {
      row.codes.push_back(largest == 0 ? 0 : std::lrint(value * (32767.0f / largest)));
    }
  }
  return row;
}

// The scale of a group of one output, and its codes.
struct TwinGroup {
  float scale = 0;
  std::vector<std::int64_t> codes;
};

// Of weights that were read back: the largest code divides the group's values without a rest.
TwinGroup twin_group(std::span<const float> weights, float scale) {
  TwinGroup group;
  group.scale = scale;
  for (const float weight : weights) {
    group.codes.push_back(scale == 0 ? 0 : std::lrint(weight / scale));
  }
  return group;
}

class QuantisedGemmTest : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { ASSERT_TRUE(try_select_simd_target(GetParam())); }
  void TearDown() override { select_best_simd_target(); }

  // The portable targets have no fused multiply-add.
  static bool fused() { return GetParam() != "SCALAR" && GetParam() != "EMU128"; }
  static float multiply_add(float a, float b, float c) {
    return fused() ? std::fma(a, b, c) : a * b + c;
  }

  // Where scales lie is told in packed_weights.h.
  static float scale_of(const PackedWeights& w, std::int64_t n, std::int64_t group) {
    const std::byte* const panel = w.panel(n / PackedWeights::kPanelColumns);
    const auto column = static_cast<std::size_t>(n % PackedWeights::kPanelColumns);
    const std::byte* const scales = panel + QuantisedPanel::scales_at(w.format(), group);
    if (w.format() == WeightFormat::kInt8) {
      float scale = 0;
      std::memcpy(&scale, scales + column * sizeof(scale), sizeof(scale));
      return scale;
    }
    BFloat16 scale;
    std::memcpy(&scale, scales + column * sizeof(scale), sizeof(scale));
    return to_float(scale);
  }

  static float twin(std::span<const float> a, const PackedWeights& w, std::int64_t n, float bias) {
    const TwinRow row = twin_row(a);
    Values weights(static_cast<std::size_t>(w.k()));
    w.unpack_row(n, weights);
    float sum = 0;
    for (std::size_t first = 0; first < weights.size(); first += kGroup) {
      const auto count = std::min<std::size_t>(kGroup, weights.size() - first);
      const std::size_t index = first / kGroup;
      const TwinGroup group = twin_group(std::span(weights).subspan(first, count),
                                         scale_of(w, n, static_cast<std::int64_t>(index)));
      std::int64_t dot = 0;
      for (std::size_t i = 0; i < count; ++i) dot += row.codes[first + i] * group.codes[i];
      sum = multiply_add(static_cast<float>(dot), group.scale * row.scales[index], sum);
    }
    return sum + bias;
  }

  Prng prng_{kSeed};
};

INSTANTIATE_TEST_SUITE_P(Targets, QuantisedGemmTest, testing::ValuesIn(simd_target_names()),
                         [](const auto& target) { return std::string(target.param); });

TEST_P(QuantisedGemmTest, HasTheBitsOfItsTwinOnRaggedShapes) {
  ThreadPool pool(2);
  for (const WeightFormat format : kFormats) {
    for (const Shape& shape : {Shape{1, 1}, Shape{65, 193}, Shape{63, 2}, Shape{130, 191},
                               Shape{64, 192}, Shape{200, 400}, Shape{33, 64}}) {
      const PackedWeights w =
          quantised(random_values(shape.n * shape.k, prng_), shape, format, pool);
      const Values bias = random_values(shape.n, prng_);
      for (const std::int64_t rows : {1, 2, 4, 7, 12, 25}) {
        const Values a = random_values(rows * shape.k, prng_);
        const Values c = product(a, rows, w, bias, pool);
        for (std::int64_t i = 0; i < rows * shape.n; ++i) {
          const auto row = std::span(a).subspan(static_cast<std::size_t>(i / shape.n * shape.k),
                                                static_cast<std::size_t>(shape.k));
          const float expected =
              twin(row, w, i % shape.n, bias[static_cast<std::size_t>(i % shape.n)]);
          ASSERT_EQ(c[static_cast<std::size_t>(i)], expected)
              << "seed " << kSeed << ' ' << weight_format_name(format) << ' ' << rows << " x "
              << shape.n << " x " << shape.k << " value " << i;
        }
      }
    }
  }
}

// Against the exact product with the weights as rounded: an activation is off by at most half of
// 1/32767 of its group's largest, and a chain of G groups rounds 2 G + 1 times.
TEST_P(QuantisedGemmTest, ActivationsCostSixteenBitsNotEight) {
  constexpr Shape kShape{70, 500};
  constexpr std::int64_t kRows = 9;
  ThreadPool pool(1);
  for (const WeightFormat format : kFormats) {
    const PackedWeights w =
        quantised(random_values(kShape.n * kShape.k, prng_), kShape, format, pool);
    const Values weights = unpacked(w);
    Values a = random_values(kRows * kShape.k, prng_);
    for (std::size_t i = 0; i < a.size(); i += 97) a[i] *= 300;  // channels that stand out
    const Values c = product(a, kRows, w, {}, pool);
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t n = 0; n < kShape.n; ++n) {
        double sum = 0;
        double magnitude = 0;
        double rounding = 0;
        for (std::int64_t first = 0; first < kShape.k; first += kGroup) {
          double largest = 0;
          double weight_sum = 0;
          for (std::int64_t k = first; k < std::min(first + kGroup, kShape.k); ++k) {
            const double x = double{a[static_cast<std::size_t>(row * kShape.k + k)]};
            const double y = double{weights[static_cast<std::size_t>(n * kShape.k + k)]};
            sum += x * y;
            magnitude += std::abs(x * y);
            largest = std::max(largest, std::abs(x));
            weight_sum += std::abs(y);
          }
          rounding += largest * weight_sum * 0.5001 / 32767;
        }
        const double tolerance = rounding + 32 * 0x1.0p-24 * magnitude;
        ASSERT_NEAR(double{c[static_cast<std::size_t>(row * kShape.n + n)]}, sum, tolerance)
            << "seed " << kSeed << ' ' << weight_format_name(format);
      }
    }
  }
}

// I13.
TEST_P(QuantisedGemmTest, RowBitsDoNotDependOnRowsOrThreads) {
  constexpr Shape kShape{197, 401};
  constexpr std::int64_t kRowsMax = 400;
  ThreadPool one(1);
  for (const WeightFormat format : kFormats) {
    const PackedWeights w =
        quantised(random_values(kShape.n * kShape.k, prng_), kShape, format, one);
    const Values a = random_values(kRowsMax * kShape.k, prng_);
    const Values bias = random_values(kShape.n, prng_);
    Values alone;  // each row by itself
    for (std::int64_t row = 0; row < kRowsMax; ++row) {
      const Values x(a.begin() + row * kShape.k, a.begin() + (row + 1) * kShape.k);
      const Values y = product(x, 1, w, bias, one);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      for (std::int64_t rows = 1; rows <= kRowsMax; rows = rows == 40 ? kRowsMax : rows + 1) {
        const std::span<const float> expected(alone.data(),
                                              static_cast<std::size_t>(rows * kShape.n));
        ASSERT_TRUE(same_bits(product(a, rows, w, bias, pool), expected))
            << weight_format_name(format) << ", " << rows << " rows, " << threads << " threads";
      }
    }
  }
}

// More groups than fit a task's room at once.
TEST_P(QuantisedGemmTest, RowBitsDoNotDependOnHowInputsAreCut) {
  constexpr Shape kShape{20, 64 * 40};
  constexpr std::int64_t kRows = 180;
  ThreadPool pool(1);
  for (const WeightFormat format : kFormats) {
    const PackedWeights w =
        quantised(random_values(kShape.n * kShape.k, prng_), kShape, format, pool);
    const Values a = random_values(kRows * kShape.k, prng_);
    const Values c = product(a, kRows, w, {}, pool);
    const Values last(a.end() - kShape.k, a.end());
    EXPECT_TRUE(same_bits(std::span(c).last(kShape.n), product(last, 1, w, {}, pool)));
  }
}

// NaN guards: nothing outside the views is read into a result, nothing outside C is written.
TEST_P(QuantisedGemmTest, StaysInsideItsViews) {
  constexpr Shape kShape{70, 195};
  constexpr std::int64_t kPad = 5;
  ThreadPool pool(2);
  for (const WeightFormat format : kFormats) {
    const PackedWeights w =
        quantised(random_values(kShape.n * kShape.k, prng_), kShape, format, pool);
    for (const std::int64_t rows : {1, 5, 14}) {
      const Values dense = random_values(rows * kShape.k, prng_);
      Values a(static_cast<std::size_t>(rows * (kShape.k + kPad)),
               std::numeric_limits<float>::quiet_NaN());
      for (std::int64_t row = 0; row < rows; ++row) {
        std::copy_n(dense.begin() + row * kShape.k, kShape.k, a.begin() + row * (kShape.k + kPad));
      }
      Values c(static_cast<std::size_t>(rows * (kShape.n + kPad)), kGuard);
      gemm(ConstMatrixView{a.data(), rows, kShape.k, kShape.k + kPad}, w, {},
           MatrixView{c.data(), rows, kShape.n, kShape.n + kPad}, pool);
      const Values expected = product(dense, rows, w, {}, pool);
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::span<const float> line(c.data() + row * (kShape.n + kPad), kShape.n + kPad);
        ASSERT_TRUE(same_bits(
            line.first(kShape.n),
            std::span(expected).subspan(static_cast<std::size_t>(row * kShape.n), kShape.n)));
        for (const float guard : line.last(kPad)) ASSERT_EQ(guard, kGuard);
      }
    }
  }
}

TEST_P(QuantisedGemmTest, ARowThatIsNotFiniteIsNanAndKeepsToItself) {
  constexpr Shape kShape{66, 150};
  ThreadPool pool(1);
  for (const WeightFormat format : kFormats) {
    const PackedWeights w =
        quantised(random_values(kShape.n * kShape.k, prng_), kShape, format, pool);
    Values a = random_values(13 * kShape.k, prng_);
    const Values clean = product(a, 13, w, {}, pool);
    a[6 * kShape.k + 3] = std::numeric_limits<float>::quiet_NaN();
    a[7 * kShape.k + 140] = -std::numeric_limits<float>::infinity();
    const Values c = product(a, 13, w, {}, pool);
    for (std::size_t i = 0; i < c.size(); ++i) {
      const bool touched = i / kShape.n == 6 || i / kShape.n == 7;
      ASSERT_TRUE(touched ? std::isnan(c[i]) : c[i] == clean[i]) << i;
    }
  }
}

TEST_P(QuantisedGemmTest, GroupsOfZerosAndOfAlmostZerosAreZero) {
  constexpr Shape kShape{3, 128};
  ThreadPool pool(1);
  for (const WeightFormat format : kFormats) {
    Values weights = random_values(kShape.n * kShape.k, prng_);
    std::fill_n(weights.begin(), kShape.k, 0.0f);
    std::fill_n(weights.begin() + kShape.k, kShape.k, 1e-40f);
    const PackedWeights w = quantised(weights, kShape, format, pool);
    Values a(kShape.k, 1.0f);
    EXPECT_EQ(product(a, 1, w, {}, pool)[0], 0.0f);
    EXPECT_EQ(product(a, 1, w, {}, pool)[1], 0.0f);
    EXPECT_NE(product(a, 1, w, {}, pool)[2], 0.0f);
    std::fill(a.begin(), a.end(), 1e-42f);
    EXPECT_EQ(product(a, 1, w, {}, pool)[2], 0.0f);
  }
}

TEST_P(QuantisedGemmTest, EachHasTheBitsOfItsOwnProduct) {
  constexpr std::int64_t kHeads = 5;
  constexpr Shape kShape{20, 48};
  ThreadPool one(1);
  std::vector<PackedWeights> w;
  for (std::int64_t head = 0; head < kHeads; ++head) {
    w.push_back(
        quantised(random_values(kShape.n * kShape.k, prng_), kShape, WeightFormat::kInt8, one));
  }
  constexpr std::int64_t kRows = 40;
  const Values a = random_values(kRows * kHeads * kShape.k, prng_);
  const auto of_head = [&](std::int64_t head, Values& c) {
    return Product{{a.data() + head * kShape.k, kRows, kShape.k, kHeads * kShape.k},
                   w[static_cast<std::size_t>(head)],
                   {c.data() + head * kShape.n, kRows, kShape.n, kHeads * kShape.n}};
  };
  Values expected(kRows * kHeads * kShape.n, kGuard);
  for (std::int64_t head = 0; head < kHeads; ++head) {
    const Product alone = of_head(head, expected);
    gemm(alone.a, alone.w, {}, alone.c, one);
  }
  ThreadPool pool(3);
  Values c(expected.size(), kGuard);
  gemm_each(
      kHeads, [&](std::int64_t head) { return of_head(head, c); }, pool);
  EXPECT_TRUE(same_bits(c, expected));
}

// Every weight is the nearest multiple of its scale, from every type, and the error is told.
TEST_P(QuantisedGemmTest, Int8IsNearestAndTellsItsError) {
  constexpr Shape kShape{131, 200};
  ThreadPool pool(2);
  const Values weights = random_values(kShape.n * kShape.k, prng_);
  RoundingError error;
  const auto w = PackedWeights::quantise({weights.data(), WeightType::kF32, kShape.n, kShape.k},
                                         WeightFormat::kInt8, pool, error);
  ASSERT_TRUE(w.ok());
  const Values rounded = unpacked(*w);
  double error_squares = 0;
  double weight_squares = 0;
  for (std::int64_t i = 0; i < std::ssize(weights); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double scale = double{scale_of(*w, i / kShape.k, 0)};
    const double off = double{rounded[at]} - double{weights[at]};
    ASSERT_LE(std::abs(off), scale * 0.50001) << i;
    error_squares += off * off;
    weight_squares += double{weights[at]} * double{weights[at]};
  }
  EXPECT_NEAR(error.relative(), std::sqrt(error_squares / weight_squares), 1e-6);
  EXPECT_LT(error.relative(), 0.01);  // of normal values
}

TEST_P(QuantisedGemmTest, Int4LosesATenthOfNormalValues) {
  constexpr Shape kShape{131, 200};
  ThreadPool pool(2);
  const Values weights = random_values(kShape.n * kShape.k, prng_);
  RoundingError error;
  const auto w = PackedWeights::quantise({weights.data(), WeightType::kF32, kShape.n, kShape.k},
                                         WeightFormat::kInt4, pool, error);
  ASSERT_TRUE(w.ok());
  const Values rounded = unpacked(*w);
  double error_squares = 0;
  double weight_squares = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double off = double{rounded[i]} - double{weights[i]};
    error_squares += off * off;
    weight_squares += double{weights[i]} * double{weights[i]};
  }
  EXPECT_NEAR(error.relative(), std::sqrt(error_squares / weight_squares), 1e-5);
  EXPECT_LT(error.relative(), 0.095);
}

// Multiples of chosen scales, rounded to the type of a file: the codes are those that were chosen,
// with the ends of their range.
TEST_P(QuantisedGemmTest, CodesOfChosenScalesAreKept) {
  constexpr Shape kShape{67, 200};
  constexpr std::int64_t kGroups = 4;
  ThreadPool pool(2);
  for (const WeightFormat format : {WeightFormat::kInt4, WeightFormat::kInt4Shifted}) {
    const bool is_shifted = format == WeightFormat::kInt4Shifted;
    ChosenCodes chosen;
    for (std::int64_t i = 0; i < kShape.n * kGroups; ++i) {
      chosen.scales.push_back(to_bfloat16(static_cast<float>(0.001 + prng_.unit())));
      chosen.shifts.push_back(static_cast<std::int8_t>(prng_.below(16)) - 7);
    }
    Values exact;
    std::vector<Float16> stored;
    for (std::int64_t i = 0; i < kShape.n * kShape.k; ++i) {
      const auto at = static_cast<std::size_t>(i / kShape.k * kGroups + i % kShape.k / kGroup);
      const int code = static_cast<int>(prng_.below(16)) - 8;
      const int steps = code + (is_shifted ? chosen.shifts[at] : 0);
      exact.push_back(static_cast<float>(steps) * to_float(chosen.scales[at]));
      stored.push_back(to_float16(exact.back()));
    }
    RoundingError error;
    const auto w =
        PackedWeights::quantise({stored.data(), WeightType::kF16, kShape.n, kShape.k,
                                 chosen.scales.data(), is_shifted ? chosen.shifts.data() : nullptr},
                                format, pool, error);
    ASSERT_TRUE(w.ok());
    EXPECT_EQ(unpacked(*w), exact);
    EXPECT_LT(error.relative(), 0x1.0p-11);
  }
}

TEST_P(QuantisedGemmTest, CodesOfAChosenScaleOfAnOutputAreKept) {
  constexpr Shape kShape{67, 200};
  ThreadPool pool(2);
  Values scales;
  for (std::int64_t i = 0; i < kShape.n; ++i) {
    scales.push_back(static_cast<float>(0.001 + prng_.unit()));
  }
  Values exact;
  std::vector<BFloat16> stored;
  for (std::int64_t i = 0; i < kShape.n * kShape.k; ++i) {
    const int code = static_cast<int>(prng_.below(256)) - 128;
    exact.push_back(static_cast<float>(code) * scales[static_cast<std::size_t>(i / kShape.k)]);
    stored.push_back(to_bfloat16(exact.back()));
  }
  RoundingError error;
  const auto w = PackedWeights::quantise({.weights = stored.data(),
                                          .type = WeightType::kBf16,
                                          .n = kShape.n,
                                          .k = kShape.k,
                                          .output_scales_or_null = scales.data()},
                                         WeightFormat::kInt8, pool, error);
  ASSERT_TRUE(w.ok());
  EXPECT_EQ(unpacked(*w), exact);
  const Values a = random_values(3 * kShape.k, prng_);
  const Values c = product(a, 3, *w, {}, pool);
  for (std::int64_t i = 0; i < 3 * kShape.n; ++i) {
    const auto row = std::span(a).subspan(static_cast<std::size_t>(i / kShape.n * kShape.k),
                                          static_cast<std::size_t>(kShape.k));
    ASSERT_EQ(c[static_cast<std::size_t>(i)], twin(row, *w, i % kShape.n, 0)) << i;
  }
}

TEST_P(QuantisedGemmTest, ChosenScalesThatAreNoneAreRefused) {
  ThreadPool pool(1);
  const Values weights(64, 1.0f);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 0.0f}) {
    const BFloat16 scale = to_bfloat16(bad);
    RoundingError error;
    EXPECT_FALSE(PackedWeights::quantise({weights.data(), WeightType::kF32, 1, 64, &scale},
                                         WeightFormat::kInt4, pool, error)
                     .ok());
    EXPECT_FALSE(PackedWeights::quantise({.weights = weights.data(),
                                          .type = WeightType::kF32,
                                          .n = 1,
                                          .k = 64,
                                          .output_scales_or_null = &bad},
                                         WeightFormat::kInt8, pool, error)
                     .ok());
  }
}

TEST_P(QuantisedGemmTest, StoredTypesAreRoundedAlike) {
  constexpr Shape kShape{67, 130};
  ThreadPool pool(1);
  Values weights = random_values(kShape.n * kShape.k, prng_);
  std::vector<BFloat16> stored;
  for (float& weight : weights) {
    stored.push_back(to_bfloat16(weight));
    weight = to_float(stored.back());
  }
  for (const WeightFormat format : kRoundings) {
    RoundingError error;
    const auto narrow = PackedWeights::quantise(
        {stored.data(), WeightType::kBf16, kShape.n, kShape.k}, format, pool, error);
    ASSERT_TRUE(narrow.ok());
    EXPECT_EQ(narrow->type(), WeightType::kBf16);
    EXPECT_EQ(narrow->format(), format);
    EXPECT_TRUE(same_bits(unpacked(*narrow), unpacked(quantised(weights, kShape, format, pool))));
  }
}

TEST_P(QuantisedGemmTest, WeightsThatAreNotFiniteAreRefused) {
  constexpr Shape kShape{70, 100};
  ThreadPool pool(1);
  for (const WeightFormat format : kRoundings) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Values weights = random_values(kShape.n * kShape.k, prng_);
      weights[6900] = bad;
      RoundingError error;
      const auto w = PackedWeights::quantise({weights.data(), WeightType::kF32, kShape.n, kShape.k},
                                             format, pool, error);
      ASSERT_FALSE(w.ok());
      EXPECT_EQ(w.error().code, ErrorCode::kUnsupported);
    }
  }
}

// The codes themselves do not depend on the processor.
TEST(QuantisedWeightsTest, EveryTargetRoundsWeightsAlike) {
  constexpr Shape kShape{70, 130};
  ThreadPool pool(1);
  Prng prng(kSeed);
  const Values weights = random_values(kShape.n * kShape.k, prng);
  const Values expected = unpacked(quantised(weights, kShape, WeightFormat::kInt8, pool));
  for (const std::string_view target : simd_target_names()) {
    ASSERT_TRUE(try_select_simd_target(target));
    EXPECT_TRUE(
        same_bits(unpacked(quantised(weights, kShape, WeightFormat::kInt8, pool)), expected));
  }
  select_best_simd_target();
}

TEST(QuantisedWeightsTest, TakeTheBytesTheyStateAndNoMore) {
  ThreadPool pool(1);
  const Values weights(128 * 640, 1.0f);
  EXPECT_EQ(quantised(weights, {128, 640}, WeightFormat::kInt8, pool).size_bytes(),
            128u * 640 + 128 * 4);
  EXPECT_EQ(quantised(weights, {128, 640}, WeightFormat::kInt4, pool).size_bytes(),
            128u * 640 * 17 / 32);
  EXPECT_EQ(quantised(weights, {128, 640}, WeightFormat::kInt4Shifted, pool).size_bytes(),
            128u * 640 * 35 / 64);
}

}  // namespace
}  // namespace stemma
