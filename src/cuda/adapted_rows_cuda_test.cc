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
                      .x_stride = kInputs,
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

// Heads that share A, or B: each gets what a call of its own would give it.
TEST_F(AdaptedRowsTest, HeadsAreProductsOfTheirOwn) {
  constexpr std::int64_t kHeads = 3;
  constexpr std::int64_t kRank = 5;
  constexpr std::int64_t kIn = 24;
  constexpr std::int64_t kOut = 40;
  const std::int64_t rows = std::ssize(kAdapters);
  const auto x = upload(random_floats(rows * kHeads * (kIn + 8), prng_));
  const std::vector<float> y = random_floats(rows * kHeads * kOut, prng_);
  for (const bool shares_down : {false, true}) {
    std::vector<CudaMemory> kept;
    std::vector<DeviceLowRank> changes;
    for (const float scale : {0.5f, 2.0f}) {
      const auto down = random_floats(kRank * kIn * (shares_down ? 1 : kHeads), prng_);
      const auto up = random_floats(kOut * kRank * (shares_down ? kHeads : 1), prng_);
      kept.push_back(upload(down));
      kept.push_back(upload(up));
      changes.push_back({.down = kept[kept.size() - 2].as<float>(),
                         .up = kept.back().as<float>(),
                         .rank = kRank,
                         .scale = scale,
                         .down_head_stride = shares_down ? 0 : kRank * kIn,
                         .up_head_stride = shares_down ? kOut * kRank : 0});
    }
    const CudaMemory adapters = upload(kAdapters);
    const CudaMemory inner = allocate<float>(kAdapters.size() * kHeads * kRank);
    AdaptRows call = {.adapters = adapters.as<std::int32_t>(),
                      .x = x.bytes(),
                      .matrices_count = 1,
                      .inner = inner.as<float>(),
                      .rows = rows,
                      .heads = kHeads,
                      .inputs = kIn,
                      .rank_max = kRank,
                      .x_stride = kHeads * (kIn + 8),
                      .x_head_stride = kIn + 8,
                      .y_stride = kHeads * kOut,
                      .y_head_stride = kOut,
                      .type = WeightType::kF32};
    const CudaMemory together = upload(y);
    const CudaMemory all = upload(changes);
    call.matrices[0] = {all.as<DeviceLowRank>(), together.bytes(), kOut};
    ASSERT_TRUE(adapt_rows(stream(), call).ok());
    const CudaMemory apart = upload(y);
    for (std::int64_t head = 0; head < kHeads; ++head) {
      std::vector<DeviceLowRank> own = changes;
      for (DeviceLowRank& change : own) {
        change.down += head * change.down_head_stride;
        change.up += head * change.up_head_stride;
      }
      const CudaMemory device_own = upload(own);
      AdaptRows alone = call;
      alone.heads = 1;
      alone.x = x.as<float>() + head * (kIn + 8);
      alone.matrices[0] = {device_own.as<DeviceLowRank>(), apart.as<float>() + head * kOut, kOut};
      ASSERT_TRUE(adapt_rows(stream(), alone).ok());
      ASSERT_TRUE(stream().synchronize().ok());
    }
    const auto got = download<float>(together.bytes(), y.size());
    EXPECT_EQ(got, download<float>(apart.bytes(), y.size()));
    EXPECT_NE(got, y);
  }
}

// Each row goes to two experts of three; visits are sorted by these.
class AdaptedVisitsTest : public AdaptedRowsTest {
 protected:
  static constexpr std::int64_t kIn = 24;
  static constexpr std::int64_t kOut = 40;
  static constexpr std::int64_t kVisitsCount = 12;

  AdaptedVisitsTest() {
    for (std::int32_t expert = 0; expert < 3; ++expert) {
      for (std::int32_t visit = 0; visit < kVisitsCount; ++visit) {
        if (chosen_[static_cast<std::size_t>(visit)] == expert) sorted_.push_back(visit);
      }
    }
    for (const std::int32_t visit : sorted_) rows_.push_back(visit / 2);
  }
  void TearDown() override {
    kept_.clear();
    AdaptedRowsTest::TearDown();
  }

  // Of each expert and adapter; the second adapter leaves the second expert as it is.
  std::vector<DeviceLowRank> drawn_changes() {
    std::vector<DeviceLowRank> changes;
    for (int i = 0; i < 6; ++i) {
      const std::int32_t rank = i == 3 ? 0 : 5 + i % 2;
      kept_.push_back(upload(random_floats(8 * kIn, prng_)));
      kept_.push_back(upload(random_floats(kOut * 8, prng_)));
      changes.push_back(
          {kept_[kept_.size() - 2].as<float>(), kept_.back().as<float>(), rank, 0.5f});
    }
    return changes;
  }

  // One call for each visit, of the expert's changes alone.
  std::vector<float> one_by_one(AdaptRows call, const std::vector<DeviceLowRank>& changes,
                                const std::vector<float>& y) {
    const CudaMemory to = upload(y);
    for (std::size_t i = 0; i < sorted_.size(); ++i) {
      const std::int32_t visit = sorted_[i];
      const std::int64_t x_row = call.x_rows == nullptr ? static_cast<std::int64_t>(i) : rows_[i];
      const std::int64_t y_row = call.y_rows == nullptr ? static_cast<std::int64_t>(i) : visit;
      const auto first = changes.begin() + 2 * chosen_[static_cast<std::size_t>(visit)];
      const CudaMemory own = upload(std::vector(first, first + 2));
      const CudaMemory adapter =
          upload(std::vector<std::int32_t>{kAdapters[static_cast<std::size_t>(rows_[i])]});
      AdaptRows alone = call;
      alone.adapters = adapter.as<std::int32_t>();
      alone.x = static_cast<const float*>(call.x) + x_row * kIn;
      alone.matrices[0] = {own.as<DeviceLowRank>(), to.as<float>() + y_row * kOut, kOut};
      alone.rows = 1;
      alone.visits = {};
      alone.x_rows = alone.y_rows = nullptr;
      EXPECT_TRUE(adapt_rows(stream(), alone).ok());
      EXPECT_TRUE(stream().synchronize().ok());
    }
    return download<float>(to.bytes(), y.size());
  }

  const std::vector<std::int32_t> chosen_ = {0, 2, 1, 2, 0, 1, 0, 2, 1, 2, 0, 1};
  std::vector<std::int32_t> sorted_;
  std::vector<std::int32_t> rows_;
  std::vector<CudaMemory> kept_;
};

// Into experts rows lie as in the batch and products as sorted; out of them as sorted, and as
// visits.
TEST_F(AdaptedVisitsTest, EachGetsWhatItsRowsAdapterMakesOfItAtItsExpert) {
  const std::vector<DeviceLowRank> changes = drawn_changes();
  const std::vector<float> y = random_floats(kVisitsCount * kOut, prng_);
  const CudaMemory x = upload(random_floats(kVisitsCount * kIn, prng_));
  const CudaMemory table = upload(changes);
  const CudaMemory adapters = upload(kAdapters);
  const CudaMemory rows = upload(rows_);
  const CudaMemory sorted = upload(sorted_);
  const CudaMemory chosen = upload(chosen_);
  const CudaMemory inner = allocate<float>(kVisitsCount * 6);
  for (const bool into : {true, false}) {
    const CudaMemory to = upload(y);
    const AdaptRows call = {
        .adapters = adapters.as<std::int32_t>(),
        .x = x.bytes(),
        .matrices = {{table.as<DeviceLowRank>(), to.bytes(), kOut}},
        .matrices_count = 1,
        .inner = inner.as<float>(),
        .rows = kVisitsCount,
        .inputs = kIn,
        .rank_max = 6,
        .x_stride = kIn,
        .y_stride = kOut,
        .type = WeightType::kF32,
        .visits = {rows.as<std::int32_t>(), sorted.as<std::int32_t>(), chosen.as<std::int32_t>()},
        .adapters_count = 2,
        .x_rows = into ? rows.as<std::int32_t>() : nullptr,
        .y_rows = into ? nullptr : sorted.as<std::int32_t>()};
    ASSERT_TRUE(adapt_rows(stream(), call).ok());
    const auto got = download<float>(to.bytes(), y.size());
    EXPECT_EQ(got, one_by_one(call, changes, y)) << into;
    EXPECT_NE(got, y);
  }
}

}  // namespace
}  // namespace stemma
