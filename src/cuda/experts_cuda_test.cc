// Products over experts: the bits that each row's product with its expert has by itself, whatever
// the tiles; sums in the order of the CPU. Outputs are poisoned, shapes ragged.
#include "cuda/experts_cuda.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/float16.h"
#include "base/prng.h"
#include "device/cuda_fixture.h"
#include "device/gemm_cuda.h"
#include "device/quantise_fixture.h"
#include "device/rounded_strips.h"

namespace stemma {
namespace {

template <typename T>
struct Stored;
template <>
struct Stored<float> {
  static constexpr WeightType kType = WeightType::kF32;
  static constexpr std::int64_t kTiles[] = {64};
  static float from(float value) { return value; }
};
template <>
struct Stored<BFloat16> {
  static constexpr WeightType kType = WeightType::kBf16;
  static constexpr std::int64_t kTiles[] = {16, 64, 128};
  static BFloat16 from(float value) { return to_bfloat16(value); }
};
template <>
struct Stored<Float16> {
  static constexpr WeightType kType = WeightType::kF16;
  static constexpr std::int64_t kTiles[] = {16, 64, 128};
  static Float16 from(float value) { return to_float16(value); }
};

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
std::vector<T> rows_of(const std::vector<T>& all, std::int64_t first, std::int64_t count) {
  return {all.begin() + first, all.begin() + first + count};
}

constexpr std::int64_t kExperts = 4;
constexpr std::int64_t kRows = 9;
constexpr std::int64_t kOutputs = 39;
constexpr std::int64_t kInputs = 88;

template <typename T>
class ExpertsCudaTest : public CudaFixture {
 protected:
  // 19 visits of expert 0, 2 of expert 1, none of 2, 6 of 3; rows are visited at random.
  void SetUp() override {
    CudaFixture::SetUp();
    if (this->IsSkipped()) return;
    Prng random(11);
    for (std::int64_t visit = 0; visit < 27; ++visit) {
      rows_.push_back(static_cast<std::int32_t>(random.below(kRows)));
      experts_.push_back(visit < 19 ? 0 : visit < 21 ? 1 : 3);
      places_.push_back(static_cast<std::int32_t>(visit * 5 % 27));  // all of them
    }
    x_ = random_values<T>(kRows * kInputs, 12);
    w_ = random_values<T>(kExperts * kOutputs * kInputs, 13);
  }

  std::vector<ExpertTile> tiles_of(std::int64_t tile_visits) const {
    std::vector<ExpertTile> tiles;
    for (std::int32_t i = 0; i < std::ssize(experts_); ++i) {
      const std::int32_t expert = experts_[static_cast<std::size_t>(i)];
      const bool fits =
          !tiles.empty() && tiles.back().expert == expert && tiles.back().visits < tile_visits;
      if (!fits) tiles.push_back({expert, i, 0});
      ++tiles.back().visits;
    }
    tiles.push_back({-1, 0, 0});
    return tiles;
  }

  std::vector<float> multiply(std::int64_t tile_visits) {
    const auto tiles = tiles_of(tile_visits);
    const CudaMemory x = upload(x_);
    const CudaMemory w = wide_                       ? upload(wide_w_)
                         : codes_ == CodeForm::kNone ? upload(w_)
                                                     : upload(strips_);
    const CudaMemory rows = upload(rows_);
    const CudaMemory places = upload(places_);
    const CudaMemory device_tiles = upload(tiles);
    const std::size_t count = rows_.size() * static_cast<std::size_t>(outputs_);
    const CudaMemory y = this->template allocate<float>(count);
    const Status queued = multiply_experts(stream(), {.x = x.bytes(),
                                                      .w = w.bytes(),
                                                      .y = y.bytes(),
                                                      .x_rows = rows.as<std::int32_t>(),
                                                      .y_rows = places.as<std::int32_t>(),
                                                      .tiles = device_tiles.as<ExpertTile>(),
                                                      .tiles_count = std::ssize(tiles),
                                                      .tile_visits = tile_visits,
                                                      .n = outputs_,
                                                      .k = kInputs,
                                                      .type = Stored<T>::kType,
                                                      .f32_out = true,
                                                      .f32_w = wide_,
                                                      .codes = codes_});
    EXPECT_TRUE(queued.ok()) << queued.error().detail;
    return this->template download<float>(y.bytes(), count);
  }

  // One visit's product by itself.
  std::vector<float> alone(std::size_t visit) {
    const CudaMemory x = upload(rows_of(x_, rows_[visit] * kInputs, kInputs));
    const std::int64_t matrix = kOutputs * kInputs;
    const std::int64_t strips = RoundedStrips::matrix_bytes(codes_, outputs_, kInputs);
    const CudaMemory w = wide_ ? upload(rows_of(wide_w_, experts_[visit] * matrix, matrix))
                         : codes_ == CodeForm::kNone
                             ? upload(rows_of(w_, experts_[visit] * matrix, matrix))
                             : upload(rows_of(strips_, experts_[visit] * strips, strips));
    const auto count = static_cast<std::size_t>(outputs_);
    const CudaMemory y = this->template allocate<float>(count);
    EXPECT_TRUE(ordered_gemm(stream(), {.x = x.bytes(),
                                        .w = w.bytes(),
                                        .y = y.bytes(),
                                        .m = 1,
                                        .n = outputs_,
                                        .k = kInputs,
                                        .type = Stored<T>::kType,
                                        .f32_out = true,
                                        .f32_w = wide_,
                                        .codes = codes_})
                    .ok());
    return this->template download<float>(y.bytes(), count);
  }

  // Matrices in f32.
  void widen_experts() {
    wide_ = true;
    wide_w_ = random_values<float>(kExperts * kOutputs * kInputs, 18);
  }

  // Matrices of 40 outputs each, rounded.
  void round_experts(WeightFormat format) {
    codes_ = code_form(format);
    outputs_ = 40;
    const auto values = random_values<float>(kExperts * outputs_ * kInputs, 17);
    ThreadPool threads(1);
    strips_ =
        strips_of(quantised_matrix(values, kExperts * outputs_, kInputs, format, threads), threads);
  }

  void expect_bits_alone(std::span<const std::int64_t> heights = Stored<T>::kTiles) {
    const auto columns = static_cast<std::size_t>(outputs_);
    std::vector<float> expected(rows_.size() * columns);
    for (std::size_t visit = 0; visit < rows_.size(); ++visit) {
      const std::vector<float> own = alone(visit);
      std::copy(own.begin(), own.end(), expected.begin() + places_[visit] * outputs_);
    }
    for (const std::int64_t tile_visits : heights) {
      const std::vector<float> got = multiply(tile_visits);
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
          << "tiles of " << tile_visits;
    }
  }

  std::vector<std::int32_t> rows_;
  std::vector<std::int32_t> experts_;
  std::vector<std::int32_t> places_;
  std::vector<T> x_;
  std::vector<T> w_;
  bool wide_ = false;  // wide_w_ is in the place of w_
  std::vector<float> wide_w_;
  CodeForm codes_ = CodeForm::kNone;  // in strips_, instead of w_
  std::int64_t outputs_ = kOutputs;
  std::vector<std::byte> strips_;
};
using Types = testing::Types<float, BFloat16, Float16>;
TYPED_TEST_SUITE(ExpertsCudaTest, Types);

TYPED_TEST(ExpertsCudaTest, EveryVisitHasTheBitsOfItsProductAlone) {
  this->expect_bits_alone();
}

TYPED_TEST(ExpertsCudaTest, OfRoundedExpertsToo) {
  for (const WeightFormat format :
       {WeightFormat::kInt8, WeightFormat::kInt4, WeightFormat::kInt4Shifted}) {
    this->round_experts(format);
    this->expect_bits_alone();
  }
}

TYPED_TEST(ExpertsCudaTest, OfExpertsInF32Too) {
  this->widen_experts();
  this->expect_bits_alone();
}

class AddExpertsCudaTest : public CudaFixture {};

TEST_F(AddExpertsCudaTest, WordsAreAddedInTheOrderOfTheExperts) {
  constexpr std::int64_t kColumns = 1096;  // more than a team takes
  constexpr std::int64_t kAdded = 3;
  const auto said = random_values<float>(2 * kAdded * kColumns, 14);
  const auto weights = random_values<float>(2 * kAdded, 15);
  const auto before = random_values<float>(2 * (kColumns + 8), 16);  // rows of more columns
  const CudaMemory device_said = upload(said);
  const CudaMemory device_weights = upload(weights);
  const CudaMemory device_before = upload(before);
  for (const bool from_zero : {true, false}) {
    const CudaMemory out = allocate<float>(2 * kColumns);
    ASSERT_TRUE(add_experts(stream(), {.said = device_said.as<float>(),
                                       .weights = device_weights.as<float>(),
                                       .before = from_zero ? nullptr : device_before.as<float>(),
                                       .out = out.as<float>(),
                                       .rows = 2,
                                       .row_experts = kAdded,
                                       .hidden = kColumns,
                                       .before_stride = kColumns + 8})
                    .ok());
    const auto sums = download<float>(out.bytes(), 2 * kColumns);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const std::size_t row = i / kColumns;
      float sum = from_zero ? 0.0f : before[i + 8 * row];
      for (std::size_t visit = row * kAdded; visit < (row + 1) * kAdded; ++visit) {
        sum += weights[visit] * said[visit * kColumns + i % kColumns];
      }
      ASSERT_EQ(sums[i], sum) << i;
    }
  }
}

TEST_F(AddExpertsCudaTest, ShapesThatThereAreNoKernelsForAreRefused) {
  const ExpertProduct split = {
      .tiles_count = 1, .tile_visits = 16, .n = 12, .k = 8, .codes = CodeForm::kInt8};
  EXPECT_EQ(multiply_experts(stream(), split).error().code, ErrorCode::kInvalidArgument);
  ExpertProduct product = {.tiles_count = 1, .tile_visits = 32, .n = 8, .k = 8};
  EXPECT_EQ(multiply_experts(stream(), product).error().code, ErrorCode::kInvalidArgument);
  product.tile_visits = 16;
  product.k = 12;
  EXPECT_EQ(multiply_experts(stream(), product).error().code, ErrorCode::kInvalidArgument);
  product = {.tiles_count = 1, .tile_visits = 16, .n = 8, .k = 8, .type = WeightType::kF32};
  EXPECT_EQ(multiply_experts(stream(), product).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(add_experts(stream(), {.hidden = 12}).error().code, ErrorCode::kInvalidArgument);
}

// Shared memory of a team of GPUs of data centres.
constexpr std::int64_t kLargeTeam = 227 * 1024;

TEST(ExpertTiles, AreHighEnoughForMostExperts) {
  EXPECT_EQ(expert_tile_visits(8, 128, WeightType::kBf16, kLargeTeam), 16);
  EXPECT_EQ(expert_tile_visits(128 * 8, 128, WeightType::kBf16, kLargeTeam), 16);
  EXPECT_EQ(expert_tile_visits(256 * 8, 128, WeightType::kF16, kLargeTeam), 64);
  EXPECT_EQ(expert_tile_visits(2048 * 8, 128, WeightType::kBf16, kLargeTeam), 128);
  EXPECT_EQ(expert_tile_visits(2048 * 8, 128, WeightType::kF32, kLargeTeam), 64);
}

class ExpertsOfSmallTeams : public OfSmallTeams<ExpertsCudaTest<BFloat16>> {
 protected:
  // Of batches of few visits of an expert, of some and of many.
  void expect_bits_of_all_batches() {
    std::vector<std::int64_t> heights;
    for (const std::int64_t visits : {1, 40, 400}) {
      heights.push_back(expert_tile_visits(visits, 1, WeightType::kBf16, kTeamBytes));
    }
    expect_bits_alone(heights);
  }
};

TEST_F(ExpertsOfSmallTeams, HaveTilesThatThereIsRoomFor) {
  expect_bits_of_all_batches();
}

TEST_F(ExpertsOfSmallTeams, OfRoundedWeightsToo) {
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    round_experts(format);
    expect_bits_of_all_batches();
  }
}

TEST_F(ExpertsOfSmallTeams, OfWeightsInF32Too) {
  widen_experts();
  expect_bits_of_all_batches();
}

}  // namespace
}  // namespace stemma
