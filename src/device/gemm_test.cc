// GEMM: against a reference in double on ragged shapes, and I13: the bits of a row are the same
// whatever the number of rows, its place among them, the stride and the threads. Every SIMD target
// of this processor is tested.
#include "device/gemm.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/float16.h"
#include "base/prng.h"
#include "device/gemm_fixture.h"
#include "device/simd_target.h"

namespace stemma {
namespace {

constexpr std::uint64_t kSeed = 20240607;

constexpr WeightType kTypes[] = {WeightType::kF32, WeightType::kF16, WeightType::kBf16};

// A weight matrix as a file holds it, and the same values in f32.
struct Matrix {
  WeightType type = WeightType::kF32;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::vector<std::byte> bytes;
  std::vector<float> values;  // [n, k]
};

float uniform(Prng& prng) {
  return static_cast<float>(2 * prng.unit() - 1);
}

template <typename T>
void append_bytes(std::vector<std::byte>& bytes, T value) {
  const auto raw = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

Matrix random_matrix(WeightType type, std::int64_t n, std::int64_t k, Prng& prng) {
  Matrix m{type, n, k, {}, {}};
  for (std::int64_t i = 0; i < n * k; ++i) {
    const float value = uniform(prng);
    if (type == WeightType::kF32) {
      append_bytes(m.bytes, value);
      m.values.push_back(value);
    } else if (type == WeightType::kF16) {
      append_bytes(m.bytes, to_float16(value));
      m.values.push_back(to_float(to_float16(value)));
    } else {
      append_bytes(m.bytes, to_bfloat16(value));
      m.values.push_back(to_float(to_bfloat16(value)));
    }
  }
  return m;
}

std::vector<float> random_values(std::int64_t count, Prng& prng) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = uniform(prng);
  return values;
}

PackedWeights packed(const Matrix& m, ThreadPool& pool) {
  Result<PackedWeights> weights = PackedWeights::pack(m.bytes.data(), m.type, m.n, m.k, pool);
  EXPECT_TRUE(weights.ok());
  return std::move(weights).value();
}

// Runs the test once with each SIMD target.
class GemmTest : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { ASSERT_TRUE(try_select_simd_target(GetParam())); }
  void TearDown() override { select_best_simd_target(); }
  Prng prng_{kSeed};
};

INSTANTIATE_TEST_SUITE_P(Targets, GemmTest, testing::ValuesIn(simd_target_names()),
                         [](const auto& target) { return std::string(target.param); });

// |c - exact| <= k rounding errors of the sum of magnitudes.
void expect_near_reference(const std::vector<float>& a, std::int64_t rows, const Matrix& m,
                           std::span<const float> bias, const std::vector<float>& c) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t n = 0; n < m.n; ++n) {
      double sum = bias.empty() ? 0.0 : double{bias[static_cast<std::size_t>(n)]};
      double magnitude = std::abs(sum);
      for (std::int64_t k = 0; k < m.k; ++k) {
        const double term = double{a[static_cast<std::size_t>(row * m.k + k)]} *
                            double{m.values[static_cast<std::size_t>(n * m.k + k)]};
        sum += term;
        magnitude += std::abs(term);
      }
      const double tolerance = static_cast<double>(m.k + 2) * 0x1.0p-23 * magnitude;
      ASSERT_NEAR(double{c[static_cast<std::size_t>(row * m.n + n)]}, sum, tolerance)
          << "seed " << kSeed << " row " << row << " n " << n << " k " << m.k;
    }
  }
}

TEST_P(GemmTest, AgreesWithReferenceOnRaggedShapes) {
  struct Shape {
    std::int64_t m, n, k;
  };
  ThreadPool pool(2);
  for (const WeightType type : kTypes) {
    for (const Shape& s : {Shape{1, 1, 1}, Shape{1, 65, 193}, Shape{2, 63, 2}, Shape{13, 130, 191},
                           Shape{25, 64, 192}, Shape{7, 200, 400}, Shape{12, 33, 17}}) {
      const Matrix m = random_matrix(type, s.n, s.k, prng_);
      const PackedWeights w = packed(m, pool);
      const std::vector<float> a = random_values(s.m * s.k, prng_);
      const std::vector<float> bias = random_values(s.n, prng_);
      expect_near_reference(a, s.m, m, {}, product(a, s.m, w, {}, pool));
      expect_near_reference(a, s.m, m, bias, product(a, s.m, w, bias, pool));
    }
  }
}

// I13.
TEST_P(GemmTest, RowBitsDoNotDependOnRowsOrThreads) {
  constexpr std::int64_t kN = 197;
  constexpr std::int64_t kK = 401;
  constexpr std::int64_t kRowsMax = 512;
  ThreadPool one(1);
  for (const WeightType type : kTypes) {
    const PackedWeights w = packed(random_matrix(type, kN, kK, prng_), one);
    const std::vector<float> a = random_values(kRowsMax * kK, prng_);
    const std::vector<float> bias = random_values(kN, prng_);
    std::vector<float> alone;  // each row by itself
    for (std::int64_t row = 0; row < kRowsMax; ++row) {
      const std::vector<float> x(a.begin() + row * kK, a.begin() + (row + 1) * kK);
      const std::vector<float> y = product(x, 1, w, bias, one);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      for (std::int64_t rows = 1; rows <= kRowsMax; rows = rows == 40 ? kRowsMax : rows + 1) {
        const std::span<const float> expected(alone.data(), static_cast<std::size_t>(rows * kN));
        ASSERT_TRUE(same_bits(product(a, rows, w, bias, pool), expected))
            << weight_type_name(type) << ", " << rows << " rows, " << threads << " threads";
      }
    }
  }
}

// I13: the same row at every place of a tile.
TEST_P(GemmTest, RowBitsDoNotDependOnTheirPlace) {
  constexpr std::int64_t kN = 64;
  constexpr std::int64_t kK = 200;
  ThreadPool pool(1);
  const PackedWeights w = packed(random_matrix(WeightType::kBf16, kN, kK, prng_), pool);
  const std::vector<float> x = random_values(kK, prng_);
  const std::vector<float> expected = product(x, 1, w, {}, pool);
  std::vector<float> a = random_values(26 * kK, prng_);
  for (std::int64_t row = 0; row < 26; ++row) {
    std::vector<float> moved = a;
    std::copy(x.begin(), x.end(), moved.begin() + row * kK);
    const std::vector<float> c = product(moved, 26, w, {}, pool);
    ASSERT_TRUE(same_bits(std::span(c).subspan(static_cast<std::size_t>(row * kN), kN), expected));
  }
}

// NaN guards: nothing outside the views is read into a result, nothing outside C is written.
TEST_P(GemmTest, StaysInsideItsViews) {
  constexpr std::int64_t kN = 70;
  constexpr std::int64_t kK = 195;
  constexpr std::int64_t kPad = 5;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ThreadPool pool(2);
  const Matrix m = random_matrix(WeightType::kF16, kN, kK, prng_);
  const PackedWeights w = packed(m, pool);
  for (const std::int64_t rows : {1, 3, 14}) {
    const std::vector<float> dense = random_values(rows * kK, prng_);
    std::vector<float> a(static_cast<std::size_t>(rows * (kK + kPad)), nan);
    for (std::int64_t row = 0; row < rows; ++row) {
      std::copy_n(dense.begin() + row * kK, kK, a.begin() + row * (kK + kPad));
    }
    std::vector<float> c(static_cast<std::size_t>(rows * (kN + kPad)), kGuard);
    gemm(ConstMatrixView{a.data(), rows, kK, kK + kPad}, w, {},
         MatrixView{c.data(), rows, kN, kN + kPad}, pool);
    const std::vector<float> expected = product(dense, rows, w, {}, pool);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::span<const float> line(c.data() + row * (kN + kPad), kN + kPad);
      ASSERT_TRUE(same_bits(line.first(kN),
                            std::span(expected).subspan(static_cast<std::size_t>(row * kN), kN)));
      for (const float guard : line.last(kPad)) ASSERT_EQ(guard, kGuard);
    }
  }
}

// Products side by side in one matrix, as heads lie, are those that gemm computes one by one.
TEST_P(GemmTest, EachHasTheBitsOfItsOwnProduct) {
  constexpr std::int64_t kHeads = 5;
  for (const auto& [n, k] : {std::pair{20, 48}, std::pair{200, 24}}) {
    ThreadPool one(1);
    std::vector<PackedWeights> w;
    for (std::int64_t head = 0; head < kHeads; ++head) {
      w.push_back(packed(random_matrix(WeightType::kBf16, n, k, prng_), one));
    }
    for (const std::int64_t rows : {0, 1, 3, 40, 400}) {
      const std::vector<float> a = random_values(rows * kHeads * k, prng_);
      std::vector<float> expected(static_cast<std::size_t>(rows * kHeads * n), kGuard);
      const auto of_head = [&](std::int64_t head, std::vector<float>& c) {
        return Product{{a.data() + head * k, rows, k, kHeads * k},
                       w[static_cast<std::size_t>(head)],
                       {c.data() + head * n, rows, n, kHeads * n}};
      };
      for (std::int64_t head = 0; head < kHeads; ++head) {
        const Product alone = of_head(head, expected);
        gemm(alone.a, alone.w, {}, alone.c, one);
      }
      for (const int threads : {1, 3}) {
        ThreadPool pool(threads);
        std::vector<float> c(expected.size(), kGuard);
        gemm_each(
            kHeads, [&](std::int64_t head) { return of_head(head, c); }, pool);
        ASSERT_TRUE(same_bits(c, expected)) << rows << " rows, " << threads << " threads";
      }
    }
  }
}

// Products of the same rows, of any shapes and formats, are those that gemm computes one by one.
TEST_P(GemmTest, AllHaveTheBitsOfTheirOwnProduct) {
  constexpr std::int64_t kK = 130;
  ThreadPool one(1);
  std::vector<PackedWeights> w;
  for (const std::int64_t n : {70, 20, 200}) {
    w.push_back(packed(random_matrix(WeightType::kBf16, n, kK, prng_), one));
  }
  RoundingError error;
  const std::vector<float> rounded = random_values(90 * kK, prng_);
  w.push_back(std::move(PackedWeights::quantise({rounded.data(), WeightType::kF32, 90, kK},
                                                WeightFormat::kInt4, one, error))
                  .value());
  const std::vector<float> bias = random_values(20, prng_);
  for (const std::int64_t rows : {0, 1, 3, 40, 400}) {
    const std::vector<float> a = random_values(rows * kK, prng_);
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      std::vector<std::vector<float>> c;
      for (const PackedWeights& each : w) {
        c.emplace_back(static_cast<std::size_t>(rows * each.n()), kGuard);
      }
      std::vector<GemmOutput> outputs;
      for (std::size_t i = 0; i < w.size(); ++i) {
        const auto own_bias = std::span(bias).first(i == 1 ? bias.size() : 0);
        outputs.push_back({w[i], own_bias, {c[i].data(), rows, w[i].n(), w[i].n()}});
      }
      gemm_all(ConstMatrixView{a.data(), rows, kK, kK}, outputs, pool);
      for (std::size_t i = 0; i < w.size(); ++i) {
        ASSERT_TRUE(same_bits(c[i], product(a, rows, w[i], outputs[i].bias, one)))
            << rows << " rows, " << threads << " threads, product " << i;
      }
    }
  }
}

// A row with NaN or infinity keeps to itself.
TEST_P(GemmTest, RowsDoNotMix) {
  constexpr std::int64_t kN = 66;
  constexpr std::int64_t kK = 50;
  ThreadPool pool(1);
  const PackedWeights w = packed(random_matrix(WeightType::kBf16, kN, kK, prng_), pool);
  std::vector<float> a = random_values(13 * kK, prng_);
  const std::vector<float> clean = product(a, 13, w, {}, pool);
  a[6 * kK + 3] = std::numeric_limits<float>::quiet_NaN();
  a[7 * kK + 9] = std::numeric_limits<float>::infinity();
  const std::vector<float> c = product(a, 13, w, {}, pool);
  for (std::int64_t row = 0; row < 13; ++row) {
    const auto begin = static_cast<std::size_t>(row * kN);
    if (row == 6 || row == 7) {
      EXPECT_FALSE(std::isfinite(c[begin]));
    } else {
      EXPECT_TRUE(same_bits(std::span(c).subspan(begin, kN), std::span(clean).subspan(begin, kN)));
    }
  }
}

// Every value of the two-byte types reaches the product exactly, by both paths.
TEST_P(GemmTest, ExpandsEveryStoredValueExactly) {
  constexpr std::int64_t kValues = 1 << 16;
  ThreadPool pool(1);
  std::vector<std::uint16_t> bits(kValues);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  for (const WeightType type : {WeightType::kF16, WeightType::kBf16}) {
    const PackedWeights w =
        std::move(PackedWeights::pack(bits.data(), type, kValues, 1, pool)).value();
    for (const std::int64_t rows : {1, 2}) {
      const std::vector<float> c = product({1.0f, 1.0f}, rows, w, {}, pool);
      for (std::size_t i = 0; i < bits.size(); ++i) {
        const float expected =
            type == WeightType::kF16 ? to_float(Float16{bits[i]}) : to_float(BFloat16{bits[i]});
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(c[i])) << i;
        } else {
          ASSERT_EQ(c[i], expected) << i;
        }
      }
    }
  }
}

TEST(PackedWeightsTest, UnpacksItsRows) {
  Prng prng(kSeed);
  ThreadPool pool(2);
  for (const WeightType type : kTypes) {
    const Matrix m = random_matrix(type, 131, 37, prng);
    const PackedWeights w = packed(m, pool);
    EXPECT_EQ(w.panels(), 3);
    std::vector<float> row(37);
    for (std::int64_t n = 0; n < m.n; ++n) {
      w.unpack_row(n, row);
      ASSERT_TRUE(
          same_bits(row, std::span(m.values).subspan(static_cast<std::size_t>(n * m.k), 37)));
    }
  }
}

TEST(PackedWeightsTest, RefusesWhatCannotBeAddressedOrMapped) {
  ThreadPool pool(1);
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  EXPECT_EQ(PackedWeights::pack(nullptr, WeightType::kF32, kHuge, kHuge, pool).error().code,
            ErrorCode::kTooLarge);
  EXPECT_EQ(PackedWeights::pack(nullptr, WeightType::kF32, kHuge, 1 << 18, pool).error().code,
            ErrorCode::kOutOfMemory);
}

TEST(GemmEdgeTest, NoRowsIsNothingToDo) {
  ThreadPool pool(1);
  const std::vector<float> weights(6, 1.0f);
  const PackedWeights w =
      std::move(PackedWeights::pack(weights.data(), WeightType::kF32, 2, 3, pool)).value();
  gemm(ConstMatrixView{nullptr, 0, 3, 3}, w, {}, MatrixView{nullptr, 0, 2, 2}, pool);
  gemm_each(
      0,
      [&](std::int64_t) {
        return Product{{nullptr, 0, 3, 3}, w, {nullptr, 0, 2, 2}};
      },
      pool);
}

}  // namespace
}  // namespace stemma
