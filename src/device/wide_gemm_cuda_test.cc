// Wide products on a GPU: the bits of the f32 product of rows that were widened before, on ragged
// shapes, over poisoned outputs.
#include "device/wide_gemm_cuda.h"

#include <algorithm>
#include <cstring>
#include <string>

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

class WideGemmTest : public CudaFixture, public testing::WithParamInterface<WeightType> {
 protected:
  void SetUp() override {
    CudaFixture::SetUp();
    if (IsSkipped()) return;
    random_ = Prng(static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed()));
  }

  // Of x, in bits of its type, and widened.
  struct Rows {
    std::vector<std::uint16_t> bits;
    std::vector<float> values;
  };
  Rows random_rows(std::int64_t count) {
    Rows rows;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto drawn = static_cast<float>(2 * random_.unit() - 1);
      const bool bf16 = GetParam() == WeightType::kBf16;
      rows.bits.push_back(bf16 ? to_bfloat16(drawn).bits : to_float16(drawn).bits);
      rows.values.push_back(bf16 ? to_float(BFloat16{rows.bits.back()})
                                 : to_float(Float16{rows.bits.back()}));
    }
    return rows;
  }
  std::vector<float> random_matrix(std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = static_cast<float>(2 * random_.unit() - 1);
    return values;
  }

  // Of both ways the same: a wide product, and one of f32.
  CudaGemmParams wide(CudaGemmParams params) const {
    params.type = GetParam();
    params.f32_w = true;
    params.f32_out = true;
    return params;
  }
  static CudaGemmParams plain(CudaGemmParams params) {
    params.type = WeightType::kF32;
    params.f32_out = true;
    return params;
  }

  // The `count` values of y, of which those that are not written are poison.
  std::vector<float> product(CudaGemmParams params, const CudaMemory& x, const CudaMemory& w,
                             std::int64_t count, std::int64_t slice_columns = 0) {
    const CudaMemory y = allocate<float>(static_cast<std::size_t>(count));
    params.x = x.bytes();
    params.w = w.bytes();
    params.y = y.bytes();
    const Status queued = slice_columns == 0 ? ordered_gemm(stream(), params)
                                             : ordered_gemm_slices(stream(), params, slice_columns);
    EXPECT_TRUE(queued.ok()) << queued.error().detail;
    return download<float>(y.bytes(), static_cast<std::size_t>(count));
  }

  void expect_bits_of_f32(const CudaGemmParams& params, std::int64_t x_values,
                          std::int64_t w_values, std::int64_t y_values,
                          std::int64_t slice_columns = 0) {
    const Rows rows = random_rows(x_values);
    const CudaMemory w = upload(random_matrix(w_values));
    const CudaMemory narrow_x = upload(rows.bits);
    const CudaMemory wide_x = upload(rows.values);
    const auto expected = product(plain(params), wide_x, w, y_values, slice_columns);
    const auto got = product(wide(params), narrow_x, w, y_values, slice_columns);
    EXPECT_EQ(std::memcmp(expected.data(), got.data(), got.size() * sizeof(float)), 0);
  }

 private:
  Prng random_{0};
};

// Tiles of 16, 64 and 128 rows; pieces of 64 columns, more and fewer than are on their way at once.
TEST_P(WideGemmTest, HasTheBitsOfTheF32ProductOfWidenedRows) {
  for (const Extents& extents :
       {Extents{1, 1, 8}, Extents{3, 33, 72}, Extents{16, 32, 64}, Extents{2, 40, 520},
        Extents{17, 65, 136}, Extents{128, 30, 264}, Extents{140, 67, 200}}) {
    SCOPED_TRACE(testing::Message() << extents.m << " x " << extents.n << " x " << extents.k);
    const auto& [m, n, k] = extents;
    expect_bits_of_f32({.m = m, .n = n, .k = k}, m * k, n * k, m * n);
  }
}

// Heads of rows that lie side by side: what is between them stays as it was.
TEST_P(WideGemmTest, ProductsAtOnceDoToo) {
  constexpr Extents kExtents = {18, 34, 40};
  constexpr std::int64_t kProducts = 3;
  constexpr std::int64_t kInputs = kExtents.k + 8;  // from one product's columns to the next's
  constexpr std::int64_t kOutputs = kExtents.n + 3;
  expect_bits_of_f32({.m = kExtents.m,
                      .n = kExtents.n,
                      .k = kExtents.k,
                      .x_stride = kProducts * kInputs,
                      .y_stride = kProducts * kOutputs,
                      .products = kProducts,
                      .x_step = kInputs,
                      .w_step = kExtents.n * kExtents.k,
                      .y_step = kOutputs},
                     kExtents.m * kProducts * kInputs, kProducts * kExtents.n * kExtents.k,
                     kExtents.m * kProducts * kOutputs);
}

// 152 columns in slices of 64: two whole ones and a shorter one.
TEST_P(WideGemmTest, SlicesDoToo) {
  for (const std::int64_t m : {3, 19}) {
    expect_bits_of_f32({.m = m, .n = 35, .k = 152}, m * 152, 35 * 152, 3 * m * 35, 64);
  }
}

TEST_P(WideGemmTest, AnOutputOfTheTypeOfRowsIsTheRoundedSum) {
  constexpr Extents kExtents = {21, 37, 88};
  const CudaMemory x = upload(random_rows(kExtents.m * kExtents.k).bits);
  const CudaMemory w = upload(random_matrix(kExtents.n * kExtents.k));
  const CudaGemmParams params = {.m = kExtents.m, .n = kExtents.n, .k = kExtents.k};
  const auto sums = product(wide(params), x, w, kExtents.m * kExtents.n);
  const CudaMemory y = allocate<std::uint16_t>(sums.size());
  CudaGemmParams rounded = wide(params);
  rounded.x = x.bytes();
  rounded.w = w.bytes();
  rounded.y = y.bytes();
  rounded.f32_out = false;
  ASSERT_TRUE(ordered_gemm(stream(), rounded).ok());
  const auto bits = download<std::uint16_t>(y.bytes(), sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    ASSERT_EQ(bits[i], GetParam() == WeightType::kBf16 ? to_bfloat16(sums[i]).bits
                                                       : to_float16(sums[i]).bits);
  }
}

TEST_P(WideGemmTest, TheLibraryGivesTheSameBits) {
  constexpr Extents kExtents = {9, 40, 128};
  const CudaMemory x = upload(random_rows(kExtents.m * kExtents.k).bits);
  const CudaMemory w = upload(random_matrix(kExtents.n * kExtents.k));
  constexpr auto kValues = static_cast<std::size_t>(kExtents.m * kExtents.n);
  CudaGemmParams params = wide({.m = kExtents.m, .n = kExtents.n, .k = kExtents.k});
  const auto expected = product(params, x, w, std::int64_t{kValues});
  auto gemm = make_library_gemm(device(), stream());
  ASSERT_TRUE(gemm.ok()) << gemm.error().detail;
  const CudaMemory y = allocate<float>(kValues);
  params.x = x.bytes();
  params.w = w.bytes();
  params.y = y.bytes();
  ASSERT_TRUE((*gemm)->multiply(params).ok());
  EXPECT_EQ(download<float>(y.bytes(), kValues), expected);
}

INSTANTIATE_TEST_SUITE_P(Types, WideGemmTest, testing::Values(WeightType::kBf16, WeightType::kF16),
                         [](const auto& type) {
                           return std::string(weight_type_name(type.param));
                         });

}  // namespace
}  // namespace stemma
