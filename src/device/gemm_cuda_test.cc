// Products on a GPU: against sums in double, on ragged shapes, over poisoned outputs, and that a
// row's bits depend on that row alone.
#include "device/gemm_cuda.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/float16.h"
#include "base/math.h"
#include "base/prng.h"
#include "device/cuda_fixture.h"
#include "device/cuda_gemm.h"

namespace stemma {
namespace {

struct Extents {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

template <typename T>
struct Stored;
template <>
struct Stored<float> {
  static constexpr WeightType kType = WeightType::kF32;
  static float from(float value) { return value; }
};
template <>
struct Stored<BFloat16> {
  static constexpr WeightType kType = WeightType::kBf16;
  static BFloat16 from(float value) { return to_bfloat16(value); }
};
template <>
struct Stored<Float16> {
  static constexpr WeightType kType = WeightType::kF16;
  static Float16 from(float value) { return to_float16(value); }
};
float widened(float value) {
  return value;
}
template <typename T>
float widened(T value) {
  return to_float(value);
}

template <typename T>
std::vector<T> random_values(std::int64_t count, std::uint64_t seed) {
  Prng random(seed);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) {
    value = Stored<T>::from(static_cast<float>(random.below(2001) - 1000) / 1000.0f);
  }
  return values;
}

template <typename T>
class GemmCudaTest : public CudaFixture {
 protected:
  // y of these operands, in f32; in slices if they have columns.
  std::vector<float> product(const std::vector<T>& x, const std::vector<T>& w,
                             const Extents& extents, std::int64_t slice_columns = 0) {
    const CudaMemory device_x = this->upload(x);
    const CudaMemory device_w = this->upload(w);
    const std::int64_t slices = slice_columns == 0 ? 1 : ceil_div(extents.k, slice_columns);
    const auto count = static_cast<std::size_t>(slices * extents.m * extents.n);
    const CudaMemory y = this->template allocate<float>(count);
    const CudaGemmParams params = {.x = device_x.bytes(),
                                   .w = device_w.bytes(),
                                   .y = y.bytes(),
                                   .m = extents.m,
                                   .n = extents.n,
                                   .k = extents.k,
                                   .type = Stored<T>::kType,
                                   .f32_out = true};
    const Status queued = slice_columns == 0
                              ? ordered_gemm(this->stream(), params)
                              : ordered_gemm_slices(this->stream(), params, slice_columns);
    EXPECT_TRUE(queued.ok()) << queued.error().detail;
    return this->template download<float>(y.bytes(), count);
  }

  // Roundings of a sum of k products in f32, each at most the sum of magnitudes × 2^-24, and as
  // much again where tensor cores add several products at once with fewer bits.
  void expect_product(const std::vector<T>& x, const std::vector<T>& w, const Extents& extents,
                      const std::vector<float>& y) {
    for (std::int64_t row = 0; row < extents.m; ++row) {
      for (std::int64_t column = 0; column < extents.n; ++column) {
        double sum = 0;
        double magnitude = 0;
        for (std::int64_t i = 0; i < extents.k; ++i) {
          const double a = widened(x[static_cast<std::size_t>(row * extents.k + i)]);
          const double b = widened(w[static_cast<std::size_t>(column * extents.k + i)]);
          sum += a * b;
          magnitude += std::abs(a * b);
        }
        const double bound = magnitude * static_cast<double>(extents.k) * std::ldexp(1.0, -23);
        ASSERT_NEAR(y[static_cast<std::size_t>(row * extents.n + column)], sum, bound)
            << "row " << row << " column " << column;
      }
    }
  }
};
using Types = testing::Types<float, BFloat16, Float16>;
TYPED_TEST_SUITE(GemmCudaTest, Types);

TYPED_TEST(GemmCudaTest, RaggedProductsAreThoseOfDouble) {
  for (const Extents& extents : {Extents{1, 1, 8}, Extents{3, 33, 72}, Extents{16, 32, 64},
                                 Extents{17, 65, 136}, Extents{130, 67, 200}}) {
    SCOPED_TRACE(testing::Message() << extents.m << " x " << extents.n << " x " << extents.k);
    const auto x = random_values<TypeParam>(extents.m * extents.k, 1);
    const auto w = random_values<TypeParam>(extents.n * extents.k, 2);
    this->expect_product(x, w, extents, this->product(x, w, extents));
  }
}

TYPED_TEST(GemmCudaTest, ARowHasTheSameBitsInEveryBatch) {
  const Extents all = {131, 70, 152};
  const auto x = random_values<TypeParam>(all.m * all.k, 3);
  const auto w = random_values<TypeParam>(all.n * all.k, 4);
  const std::vector<float> together = this->product(x, w, all);
  for (const auto& [first, rows] : {std::pair{0, 1}, {5, 16}, {7, 40}, {130, 1}}) {
    const auto begin = x.begin() + first * all.k;
    const std::vector<TypeParam> part(begin, begin + rows * all.k);
    const std::vector<float> alone = this->product(part, w, {rows, all.n, all.k});
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + first * all.n,
                           [](float a, float b) {
                             return std::bit_cast<std::uint32_t>(a) ==
                                    std::bit_cast<std::uint32_t>(b);
                           }))
        << rows << " rows from " << first;
  }
}

// Of many outputs tiles have other extents than of few.
using GemmOfManyOutputs = GemmCudaTest<BFloat16>;
TEST_F(GemmOfManyOutputs, HasTheBitsOfEachRowAlone) {
  const Extents all = {131, 17000, 24};
  const auto x = random_values<BFloat16>(all.m * all.k, 9);
  const auto w = random_values<BFloat16>(all.n * all.k, 10);
  const std::vector<float> together = product(x, w, all);
  for (const auto& [first, rows] : {std::pair{0, 1}, {7, 40}, {130, 1}}) {
    const auto begin = x.begin() + first * all.k;
    const std::vector<BFloat16> part(begin, begin + rows * all.k);
    const std::vector<float> alone = product(part, w, {rows, all.n, all.k});
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + first * all.n,
                           [](float a, float b) {
                             return std::bit_cast<std::uint32_t>(a) ==
                                    std::bit_cast<std::uint32_t>(b);
                           }))
        << rows << " rows from " << first;
  }
}

using GemmOfSmallTeams = OfSmallTeams<GemmCudaTest<BFloat16>>;

TEST_F(GemmOfSmallTeams, HasTilesForAnyNumberOfRows) {
  for (const Extents& extents :
       {Extents{3, 33, 72}, Extents{40, 33, 72}, Extents{130, 67, 136}, Extents{130, 17000, 8}}) {
    SCOPED_TRACE(testing::Message() << extents.m << " x " << extents.n << " x " << extents.k);
    const auto x = random_values<BFloat16>(extents.m * extents.k, 31);
    const auto w = random_values<BFloat16>(extents.n * extents.k, 32);
    expect_product(x, w, extents, product(x, w, extents));
  }
}

// Heads of rows that lie side by side: what is between them stays as it was.
TYPED_TEST(GemmCudaTest, ProductsAtOnceHaveTheBitsOfEachAlone) {
  constexpr Extents kExtents = {18, 34, 40};
  constexpr std::int64_t kProducts = 3;
  constexpr std::int64_t kInputs = kExtents.k + 8;  // from one product's columns to the next's
  constexpr std::int64_t kOutputs = kExtents.n + 3;
  const auto x = random_values<TypeParam>(kExtents.m * kProducts * kInputs, 5);
  const auto w = random_values<TypeParam>(kProducts * kExtents.n * kExtents.k, 6);
  const CudaMemory device_x = this->upload(x);
  const CudaMemory device_w = this->upload(w);
  const auto count = static_cast<std::size_t>(kExtents.m * kProducts * kOutputs);
  const CudaMemory y = this->template allocate<float>(count);
  ASSERT_TRUE(ordered_gemm(this->stream(), {.x = device_x.bytes(),
                                            .w = device_w.bytes(),
                                            .y = y.bytes(),
                                            .m = kExtents.m,
                                            .n = kExtents.n,
                                            .k = kExtents.k,
                                            .type = Stored<TypeParam>::kType,
                                            .f32_out = true,
                                            .x_stride = kProducts * kInputs,
                                            .y_stride = kProducts * kOutputs,
                                            .products = kProducts,
                                            .x_step = kInputs,
                                            .w_step = kExtents.n * kExtents.k,
                                            .y_step = kOutputs})
                  .ok());
  const auto together = this->template download<float>(y.bytes(), count);
  for (std::int64_t product = 0; product < kProducts; ++product) {
    std::vector<TypeParam> own_x;
    for (std::int64_t row = 0; row < kExtents.m; ++row) {
      const auto begin = x.begin() + (row * kProducts + product) * kInputs;
      own_x.insert(own_x.end(), begin, begin + kExtents.k);
    }
    const auto own_w = w.begin() + product * kExtents.n * kExtents.k;
    const auto alone = this->product(own_x, {own_w, own_w + kExtents.n * kExtents.k}, kExtents);
    for (std::int64_t row = 0; row < kExtents.m; ++row) {
      const float* const outputs =
          &together[static_cast<std::size_t>((row * kProducts + product) * kOutputs)];
      const float* const expected = &alone[static_cast<std::size_t>(row * kExtents.n)];
      ASSERT_TRUE(std::equal(expected, expected + kExtents.n, outputs));
      for (std::int64_t i = kExtents.n; i < kOutputs; ++i) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(outputs[i]), 0xFFFFFFFFu);
      }
    }
  }
}

// 152 columns in slices of 64: two whole ones and a shorter one.
TYPED_TEST(GemmCudaTest, ASliceIsTheProductOfItsColumns) {
  const Extents all = {19, 35, 152};
  constexpr std::int64_t kSlice = 64;
  const auto x = random_values<TypeParam>(all.m * all.k, 9);
  const auto w = random_values<TypeParam>(all.n * all.k, 10);
  const std::vector<float> slices = this->product(x, w, all, kSlice);
  for (std::int64_t slice = 0; slice < 3; ++slice) {
    const std::int64_t begin = slice * kSlice;
    const std::int64_t columns = std::min(kSlice, all.k - begin);
    const auto columns_of = [&](const std::vector<TypeParam>& matrix) {
      std::vector<TypeParam> part;
      for (auto row = matrix.begin() + begin; row < matrix.end(); row += all.k) {
        part.insert(part.end(), row, row + columns);
        if (matrix.end() - row <= all.k) break;
      }
      return part;
    };
    const auto expected = this->product(columns_of(x), columns_of(w), {all.m, all.n, columns});
    EXPECT_EQ(std::vector<float>(slices.begin() + slice * all.m * all.n,
                                 slices.begin() + (slice + 1) * all.m * all.n),
              expected)
        << "slice " << slice;
  }
}

class GemmCudaTypesTest : public CudaFixture {};

TEST_F(GemmCudaTypesTest, AnOutputOfTheWeightsTypeIsTheRoundedSum) {
  const Extents extents = {5, 19, 64};
  const CudaMemory x = upload(random_values<BFloat16>(extents.m * extents.k, 5));
  const CudaMemory w = upload(random_values<BFloat16>(extents.n * extents.k, 6));
  const auto count = static_cast<std::size_t>(extents.m * extents.n);
  const CudaMemory exact = allocate<float>(count);
  const CudaMemory rounded = allocate<BFloat16>(count);
  CudaGemmParams params = {.x = x.bytes(),
                           .w = w.bytes(),
                           .y = exact.bytes(),
                           .m = extents.m,
                           .n = extents.n,
                           .k = extents.k,
                           .type = WeightType::kBf16,
                           .f32_out = true};
  ASSERT_TRUE(ordered_gemm(stream(), params).ok());
  params.y = rounded.bytes();
  params.f32_out = false;
  ASSERT_TRUE(ordered_gemm(stream(), params).ok());
  const auto sums = download<float>(exact.bytes(), count);
  const auto values = download<BFloat16>(rounded.bytes(), count);
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(values[i].bits, to_bfloat16(sums[i]).bits) << i;
  }
}

// Of 16-bit types an operand's roundings, of all of them a different order of f32 sums.
TEST_F(GemmCudaTypesTest, TheLibraryComputesTheSameProducts) {
  const Extents extents = {9, 40, 128};
  const CudaMemory x = upload(random_values<Float16>(extents.m * extents.k, 7));
  const CudaMemory w = upload(random_values<Float16>(extents.n * extents.k, 8));
  const auto count = static_cast<std::size_t>(extents.m * extents.n);
  const CudaMemory ordered = allocate<float>(count);
  const CudaMemory library = allocate<float>(count);
  CudaGemmParams params = {.x = x.bytes(),
                           .w = w.bytes(),
                           .y = ordered.bytes(),
                           .m = extents.m,
                           .n = extents.n,
                           .k = extents.k,
                           .type = WeightType::kF16,
                           .f32_out = true};
  ASSERT_TRUE(make_ordered_gemm(stream())->multiply(params).ok());
  auto gemm = make_library_gemm(device(), stream());
  ASSERT_TRUE(gemm.ok()) << gemm.error().detail;
  params.y = library.bytes();
  ASSERT_TRUE((*gemm)->multiply(params).ok());
  const auto a = download<float>(ordered.bytes(), count);
  const auto b = download<float>(library.bytes(), count);
  for (std::size_t i = 0; i < count; ++i) EXPECT_NEAR(a[i], b[i], 1e-3) << i;
}

TEST_F(GemmCudaTypesTest, WhatTensorCoresCannotReadIsRefused) {
  CudaGemmParams params = {.m = 1, .n = 1, .k = 12, .type = WeightType::kBf16};
  EXPECT_EQ(ordered_gemm(stream(), params).error().code, ErrorCode::kInvalidArgument);
  params.k = 16;
  params.x = reinterpret_cast<const void*>(std::uintptr_t{8});
  EXPECT_EQ(ordered_gemm(stream(), params).error().code, ErrorCode::kInvalidArgument);
  params.x = nullptr;
  params.x_step = 20;
  EXPECT_EQ(ordered_gemm(stream(), params).error().code, ErrorCode::kInvalidArgument);
  params.x_step = 0;
  params.x_stride = 8;  // rows of 16 overlap
  EXPECT_EQ(ordered_gemm(stream(), params).error().code, ErrorCode::kInvalidArgument);
  params.x_stride = 0;
  EXPECT_EQ(ordered_gemm_slices(stream(), params, 16).error().code, ErrorCode::kInvalidArgument);
  params.f32_out = true;
  EXPECT_EQ(ordered_gemm_slices(stream(), params, 12).error().code, ErrorCode::kInvalidArgument);
  params.n = 0;
  EXPECT_EQ(ordered_gemm(stream(), params).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace stemma
