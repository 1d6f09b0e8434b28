// Adapted rows: against the same in double, over ragged ranks and widths; rows without an adapter
// stay bit for bit, and others do not depend on who shares the batch. Tolerances: f32 sums over at
// most 272 + 24 products of numbers below 1 differ by 2e-6 of the sum of magnitudes; a result of 16
// bits by one rounding more.
#include "cuda/adapted_rows_cuda.h"

#include <cmath>

#include "base/float16.h"
#include "base/prng.h"
#include "cuda/rows_fixture.h"
#include "device/cuda_fixture.h"

namespace stemma {
namespace {

// What an adapter has for a matrix, on the host and on the device.
struct Change {
  std::vector<float> down;
  std::vector<float> up;
  std::int64_t rank = 0;
  float scale = 1;
};

class AdaptedRowsTest : public CudaFixture {
 protected:
  static constexpr std::int64_t kInputs = 272;
  static constexpr std::int64_t kStride = 400;
  static constexpr std::int64_t kOutputs[] = {136, 40, 200};
  static constexpr std::int64_t kFirst[] = {0, 136,
                                            184};  // of a row of y; 176 ... 183 are nobody's

  // Adapters of ranks 5 and 24; the second leaves the second matrix as it is.
  AdaptedRowsTest() {
    for (int matrix = 0; matrix < 3; ++matrix) {
      changes_.push_back({drawn_change(5, kOutputs[matrix], 0.5f),
                          matrix == 1 ? Change() : drawn_change(24, kOutputs[matrix], 2)});
    }
  }

  Change drawn_change(std::int64_t rank, std::int64_t outputs, float scale) {
    return {random_floats(rank * kInputs, prng_), random_floats(outputs * rank, prng_), rank,
            scale};
  }

  // y after the adapters of its rows were added.
  template <typename T, typename Y>
  std::vector<Y> adapted(const std::vector<T>& x, const std::vector<Y>& y,
                         const std::vector<std::int32_t>& adapters, WeightType type) {
    const CudaMemory device_x = upload(x);
    const CudaMemory device_y = upload(y);
    const CudaMemory device_adapters = upload(adapters);
    const auto rows = static_cast<std::int64_t>(adapters.size());
    const CudaMemory inner = allocate<float>(adapters.size() * 3 * 24);
    std::vector<CudaMemory> kept;
    AdaptRows call = {.adapters = device_adapters.as<std::int32_t>(),
                      .x = device_x.bytes(),
                      .matrices_count = 3,
                      .inner = inner.as<float>(),
                      .rows = rows,
                      .inputs = kInputs,
                      .rank_max = 24,
                      .y_stride = kStride,
                      .type = type,
                      .f32_out = sizeof(Y) == 4};
    for (std::size_t matrix = 0; matrix < 3; ++matrix) {
      std::vector<DeviceLowRank> there;
      for (const Change& change : changes_[matrix]) {
        if (change.rank == 0) {
          there.emplace_back();
          continue;
        }
        kept.push_back(upload(change.down));
        kept.push_back(upload(change.up));
        there.push_back({kept[kept.size() - 2].as<float>(), kept.back().as<float>(),
                         static_cast<std::int32_t>(change.rank), change.scale});
      }
      kept.push_back(upload(there));
      call.matrices[matrix] = {kept.back().as<DeviceLowRank>(), device_y.as<Y>() + kFirst[matrix],
                               kOutputs[matrix]};
    }
    EXPECT_TRUE(adapt_rows(stream(), call).ok());
    return download<Y>(device_y.bytes(), y.size());
  }

  // What is added to output `output` of matrix `matrix`, and the magnitudes that it is a sum of.
  template <typename T>
  std::pair<double, double> change_of(const Change& change, std::span<const T> x,
                                      std::int64_t output) const {
    double sum = 0;
    double magnitude = 0;
    for (std::int64_t r = 0; r < change.rank; ++r) {
      double inner = 0;
      double inner_magnitude = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double down = change.down[static_cast<std::size_t>(r * kInputs) + i];
        inner += down * to_float(x[i]);
        inner_magnitude += std::abs(down * to_float(x[i]));
      }
      const double up = change.up[static_cast<std::size_t>(output * change.rank + r)];
      sum += change.scale * up * inner;
      magnitude += std::abs(change.scale * up) * inner_magnitude;
    }
    return {sum, magnitude};
  }

  static float to_float(float value) { return value; }
  static float to_float(BFloat16 value) { return stemma::to_float(value); }

  Prng prng_{20261123};
  std::vector<std::vector<Change>> changes_;  // [matrices][adapters]
};

const std::vector<std::int32_t> kAdapters = {1, -1, 0, 0, 1, -1};

TEST_F(AdaptedRowsTest, RowsGetWhatTheirAdapterMakesOfTheirInput) {
  const std::int64_t rows = std::ssize(kAdapters);
  const std::vector<float> x = random_floats(rows * kInputs, prng_);
  const std::vector<float> y = random_floats(rows * kStride, prng_);
  const std::vector<float> got = adapted(x, y, kAdapters, WeightType::kF32);
  std::vector<float> expected = y;
  std::vector<double> tolerances(y.size(), 0);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int32_t adapter = kAdapters[static_cast<std::size_t>(row)];
    if (adapter < 0) continue;
    const auto own = std::span(x).subspan(static_cast<std::size_t>(row * kInputs), kInputs);
    for (std::size_t matrix = 0; matrix < 3; ++matrix) {
      const Change& change = changes_[matrix][static_cast<std::size_t>(adapter)];
      for (std::int64_t output = 0; output < kOutputs[matrix]; ++output) {
        const auto at = static_cast<std::size_t>(row * kStride + kFirst[matrix] + output);
        const auto [sum, magnitude] = change_of<float>(change, own, output);
        expected[at] = static_cast<float>(y[at] + sum);
        tolerances[at] = 2e-6 * (magnitude + 1);
      }
    }
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], tolerances[i]) << "value " << i;
  }
}

TEST_F(AdaptedRowsTest, ProductsOfSixteenBitsAreRoundedOnceMore) {
  const std::int64_t rows = std::ssize(kAdapters);
  std::vector<BFloat16> x;
  std::vector<BFloat16> y;
  for (const float value : random_floats(rows * kInputs, prng_)) x.push_back(to_bfloat16(value));
  for (const float value : random_floats(rows * kStride, prng_)) y.push_back(to_bfloat16(value));
  const std::vector<BFloat16> got = adapted(x, y, kAdapters, WeightType::kBf16);
  const auto own = std::span<const BFloat16>(x).first(kInputs);
  for (std::int64_t output = 0; output < kOutputs[0]; ++output) {
    const auto at = static_cast<std::size_t>(output);
    const auto [sum, magnitude] = change_of(changes_[0][1], own, output);
    const double expected = to_float(y[at]) + sum;
    ASSERT_NEAR(to_float(got[at]), expected, std::abs(expected) / 256 + 2e-6 * magnitude);
  }
}

TEST_F(AdaptedRowsTest, ARowsBitsAreThoseItHasAlone) {
  const std::int64_t rows = std::ssize(kAdapters);
  const std::vector<float> x = random_floats(rows * kInputs, prng_);
  const std::vector<float> y = random_floats(rows * kStride, prng_);
  const std::vector<float> together = adapted(x, y, kAdapters, WeightType::kF32);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto part = [&](const std::vector<float>& all, std::int64_t width) {
      const auto first = all.begin() + row * width;
      return std::vector<float>(first, first + width);
    };
    const std::vector<float> alone =
        adapted(part(x, kInputs), part(y, kStride), {kAdapters[static_cast<std::size_t>(row)]},
                WeightType::kF32);
    EXPECT_EQ(alone, part(together, kStride)) << "row " << row;
  }
}

}  // namespace
}  // namespace stemma
