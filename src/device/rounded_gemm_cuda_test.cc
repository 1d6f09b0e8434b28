// Products with rounded weights on a GPU: against sums in double of exactly the codes and scales,
// on ragged shapes, over poisoned outputs, and that a row's bits depend on that row alone.
#include "device/rounded_gemm_cuda.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "base/float16.h"
#include "base/prng.h"
#include "device/cuda_fixture.h"
#include "device/cuda_gemm.h"
#include "device/quantise_fixture.h"
#include "device/rounded_strips.h"

namespace stemma {
namespace {

struct Extents {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

// What a product is of.
struct Kind {
  WeightType type;  // of x
  WeightFormat format;
};

class RoundedGemmTest : public CudaFixture, public testing::WithParamInterface<Kind> {
 protected:
  void TearDown() override {
    strips_ = {};
    CudaFixture::TearDown();
  }

  // Numbers of 8 binary digits, which every type has as they are.
  std::vector<float> random_rows(std::int64_t count, std::uint64_t seed) {
    Prng random(seed + fresh_);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = static_cast<float>(random.below(511) - 255) / 64.0f;
    return values;
  }

  // A random matrix, rounded, on the host and in strips on the device.
  void round_matrix(std::int64_t n, std::int64_t k, std::uint64_t seed) {
    Prng random(seed + fresh_);
    std::vector<float> values(static_cast<std::size_t>(n * k));
    for (float& value : values) value = static_cast<float>(random.unit() - 0.5);
    matrix_ = quantised_matrix(values, n, k, GetParam().format, threads_);
    strips_ = upload(strips_of(matrix_, threads_));
  }

  CudaMemory upload_rows(const std::vector<float>& x) {
    if (GetParam().type == WeightType::kF32) return upload(x);
    std::vector<std::uint16_t> bits(x.size());
    std::transform(x.begin(), x.end(), bits.begin(), [&](float value) {
      return GetParam().type == WeightType::kBf16 ? to_bfloat16(value).bits
                                                  : to_float16(value).bits;
    });
    return upload(bits);
  }

  CudaGemmParams params_of(const CudaMemory& x, const CudaMemory& y, const Extents& extents) {
    return {.x = x.bytes(),
            .w = strips_.bytes(),
            .y = y.bytes(),
            .m = extents.m,
            .n = extents.n,
            .k = extents.k,
            .type = GetParam().type,
            .f32_out = true,
            .codes = code_form(GetParam().format)};
  }

  // y of rows of x and the matrix, in f32.
  std::vector<float> product(const std::vector<float>& x, const Extents& extents) {
    const CudaMemory device_x = upload_rows(x);
    const auto count = static_cast<std::size_t>(extents.m * extents.n);
    const CudaMemory y = allocate<float>(count);
    const Status queued = ordered_gemm(stream(), params_of(device_x, y, extents));
    EXPECT_TRUE(queued.ok()) << queued.error().detail;
    return download<float>(y.bytes(), count);
  }

  // Products with codes are exact. What is rounded are sums: of the 64 of a group, as much again
  // where tensor cores add several at once with fewer bits, then one for each group, and the
  // scale's product; each by at most the sum of magnitudes × 2^-24.
  void expect_product(const std::vector<float>& x, const Extents& extents,
                      const std::vector<float>& y) {
    const auto groups = static_cast<double>(RoundedStrips::groups(extents.k));
    std::vector<float> weights(static_cast<std::size_t>(extents.k));
    for (std::int64_t column = 0; column < extents.n; ++column) {
      matrix_.unpack_row(column, weights);
      for (std::int64_t row = 0; row < extents.m; ++row) {
        double sum = 0;
        double magnitude = 0;
        for (std::int64_t i = 0; i < extents.k; ++i) {
          const double product = double{x[static_cast<std::size_t>(row * extents.k + i)]} *
                                 weights[static_cast<std::size_t>(i)];
          sum += product;
          magnitude += std::abs(product);
        }
        const double bound = magnitude * (2 * 64 + groups + 1) * std::ldexp(1.0, -24);
        ASSERT_NEAR(y[static_cast<std::size_t>(row * extents.n + column)], sum, bound)
            << "row " << row << " column " << column;
      }
    }
  }

  ThreadPool& threads() { return threads_; }

 private:
  std::uint64_t fresh_ =
      100 * static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  ThreadPool threads_{2};
  PackedWeights matrix_;
  CudaMemory strips_;
};

// Every tile, with rows, outputs, strips and groups left over; more groups than any tile has room
// for at a time.
TEST_P(RoundedGemmTest, RaggedProductsAreThoseOfDouble) {
  for (const Extents& extents :
       {Extents{1, 1, 8}, Extents{3, 33, 72}, Extents{8, 32, 512}, Extents{9, 65, 136},
        Extents{16, 64, 64}, Extents{17, 70, 200}, Extents{64, 24, 448}, Extents{130, 67, 392},
        Extents{2, 17, 4168}, Extents{11, 9, 2120}}) {
    SCOPED_TRACE(testing::Message() << extents.m << " x " << extents.n << " x " << extents.k);
    round_matrix(extents.n, extents.k, 1);
    const auto x = random_rows(extents.m * extents.k, 2);
    expect_product(x, extents, product(x, extents));
  }
}

TEST_P(RoundedGemmTest, ARowHasTheSameBitsInEveryBatch) {
  const Extents all = {131, 70, 664};
  round_matrix(all.n, all.k, 3);
  const auto x = random_rows(all.m * all.k, 4);
  const std::vector<float> together = product(x, all);
  for (const auto& [first, rows] :
       {std::pair{0, 1}, {3, 8}, {60, 9}, {5, 16}, {7, 40}, {2, 128}, {130, 1}}) {
    const auto begin = x.begin() + first * all.k;
    const std::vector<float> alone = product({begin, begin + rows * all.k}, {rows, all.n, all.k});
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + first * all.n,
                           [](float a, float b) {
                             return std::bit_cast<std::uint32_t>(a) ==
                                    std::bit_cast<std::uint32_t>(b);
                           }))
        << rows << " rows from " << first;
  }
}

// Heads of rows that lie side by side: what is between them stays as it was.
TEST_P(RoundedGemmTest, ProductsAtOnceHaveTheBitsOfEachAlone) {
  constexpr std::int64_t kProducts = 3;
  const Extents extents = {18, 16, 72};
  constexpr std::int64_t kInputs = 80;  // from one product's columns to the next's
  constexpr std::int64_t kOutputs = 19;
  round_matrix(kProducts * extents.n, extents.k, 5);
  const auto x = random_rows(extents.m * kProducts * kInputs, 6);
  const CudaMemory device_x = upload_rows(x);
  const auto count = static_cast<std::size_t>(extents.m * kProducts * kOutputs);
  const CudaMemory y = allocate<float>(count);
  CudaGemmParams params = params_of(device_x, y, extents);
  params.x_stride = kProducts * kInputs;
  params.y_stride = kProducts * kOutputs;
  params.products = kProducts;
  params.x_step = kInputs;
  params.y_step = kOutputs;
  ASSERT_TRUE(ordered_gemm(stream(), params).ok());
  const auto together = download<float>(y.bytes(), count);
  for (std::int64_t index = 0; index < kProducts; ++index) {
    std::vector<float> own;
    for (std::int64_t row = 0; row < extents.m; ++row) {
      const auto begin = x.begin() + (row * kProducts + index) * kInputs;
      own.insert(own.end(), begin, begin + extents.k);
    }
    // The matrices of all, of whose outputs these are some.
    const Extents whole = {extents.m, kProducts * extents.n, extents.k};
    const auto alone = product(own, whole);
    for (std::int64_t row = 0; row < extents.m; ++row) {
      const float* const outputs =
          &together[static_cast<std::size_t>((row * kProducts + index) * kOutputs)];
      const float* const expected =
          &alone[static_cast<std::size_t>(row * whole.n + index * extents.n)];
      ASSERT_TRUE(std::equal(expected, expected + extents.n, outputs));
      for (std::int64_t i = extents.n; i < kOutputs; ++i) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(outputs[i]), 0xFFFFFFFFu);
      }
    }
  }
}

using RoundedGemmOfSmallTeams = OfSmallTeams<RoundedGemmTest>;

TEST_P(RoundedGemmOfSmallTeams, HasTilesForAnyNumberOfRows) {
  for (const Extents& extents : {Extents{1, 33, 72}, Extents{12, 33, 584}, Extents{130, 67, 136}}) {
    SCOPED_TRACE(testing::Message() << extents.m << " x " << extents.n << " x " << extents.k);
    round_matrix(extents.n, extents.k, 7);
    const auto x = random_rows(extents.m * extents.k, 8);
    expect_product(x, extents, product(x, extents));
  }
}

class RoundedGemm16BitTest : public RoundedGemmTest {};

TEST_P(RoundedGemm16BitTest, AnOutputOfTheRowsTypeIsTheRoundedSum) {
  for (const std::int64_t rows : {5, 12, 20}) {
    const Extents extents = {rows, 19, 136};
    round_matrix(extents.n, extents.k, 7);
    const auto x = random_rows(extents.m * extents.k, 8);
    const auto sums = product(x, extents);
    const CudaMemory device_x = upload_rows(x);
    const CudaMemory y = allocate<std::uint16_t>(sums.size());
    CudaGemmParams params = params_of(device_x, y, extents);
    params.f32_out = false;
    ASSERT_TRUE(ordered_gemm(stream(), params).ok());
    const auto values = download<std::uint16_t>(y.bytes(), sums.size());
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const std::uint16_t expected = GetParam().type == WeightType::kBf16
                                         ? to_bfloat16(sums[i]).bits
                                         : to_float16(sums[i]).bits;
      ASSERT_EQ(values[i], expected) << rows << " rows, value " << i;
    }
  }
}

// The vendor's library has no such product.
TEST_P(RoundedGemmTest, BesideTheLibraryTheyHaveTheSameBits) {
  const Extents extents = {9, 40, 128};
  round_matrix(extents.n, extents.k, 9);
  const auto x = random_rows(extents.m * extents.k, 10);
  const auto expected = product(x, extents);
  auto gemm = make_library_gemm(device(), stream());
  ASSERT_TRUE(gemm.ok()) << gemm.error().detail;
  const CudaMemory device_x = upload_rows(x);
  const CudaMemory y = allocate<float>(expected.size());
  ASSERT_TRUE((*gemm)->multiply(params_of(device_x, y, extents)).ok());
  EXPECT_EQ(download<float>(y.bytes(), expected.size()), expected);
}

// A row's infinity is that row's alone.
TEST_P(RoundedGemmTest, WhatIsNoNumberStaysInItsRow) {
  const Extents extents = {12, 20, 72};
  round_matrix(extents.n, extents.k, 11);
  auto x = random_rows(extents.m * extents.k, 12);
  const auto before = product(x, extents);
  x[static_cast<std::size_t>(3 * extents.k + 70)] = std::numeric_limits<float>::quiet_NaN();
  const auto after = product(x, extents);
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (i / 20 == 3) {
      EXPECT_TRUE(std::isnan(after[i])) << i;
    } else {
      EXPECT_EQ(after[i], before[i]) << i;
    }
  }
}

std::string kind_name(const testing::TestParamInfo<Kind>& kind) {
  return std::string(weight_type_name(kind.param.type)) + "_" +
         std::string(weight_format_name(kind.param.format));
}

constexpr Kind kKinds[] = {
    {WeightType::kBf16, WeightFormat::kInt8},        {WeightType::kBf16, WeightFormat::kInt4},
    {WeightType::kBf16, WeightFormat::kInt4Shifted}, {WeightType::kF16, WeightFormat::kInt8},
    {WeightType::kF16, WeightFormat::kInt4},         {WeightType::kF16, WeightFormat::kInt4Shifted},
    {WeightType::kF32, WeightFormat::kInt8},         {WeightType::kF32, WeightFormat::kInt4},
    {WeightType::kF32, WeightFormat::kInt4Shifted}};
INSTANTIATE_TEST_SUITE_P(Kinds, RoundedGemmTest, testing::ValuesIn(kKinds), kind_name);
INSTANTIATE_TEST_SUITE_P(Kinds, RoundedGemmOfSmallTeams, testing::ValuesIn(kKinds), kind_name);
INSTANTIATE_TEST_SUITE_P(Kinds, RoundedGemm16BitTest, testing::ValuesIn(std::span(kKinds).first(6)),
                         kind_name);

class RoundedGemmErrors : public CudaFixture {};

TEST_F(RoundedGemmErrors, WhatThereIsNoProductForIsRefused) {
  CudaGemmParams params = {.m = 1, .n = 1, .k = 16};
  EXPECT_EQ(rounded_gemm(stream(), params).error().code, ErrorCode::kInvalidArgument);
  params.codes = CodeForm::kInt8;
  params.k = 12;
  EXPECT_EQ(ordered_gemm(stream(), params).error().code, ErrorCode::kInvalidArgument);
  params.k = 16;
  params.f32_out = true;
  EXPECT_EQ(ordered_gemm_slices(stream(), params, 8).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace stemma
