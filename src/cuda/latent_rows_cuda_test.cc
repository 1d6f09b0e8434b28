// Rows of latent attention on a GPU: against the same in double; storing in a pool's layer, of
// which everything else stays as it was; rows without a slot. Tolerances: some roundings of f32
// (4e-6), one more of bf16 where that is stored (2^-8 of the value).
#include "cuda/latent_rows_cuda.h"

#include <cmath>

#include "base/float16.h"
#include "cuda/rows_fixture.h"
#include "device/cuda_fixture.h"

namespace stemma {
namespace {

constexpr std::int64_t kPositions = 50;
constexpr double kEpsilon = 1e-6;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

struct Extents {
  std::int64_t rows;
  std::int64_t query_rank;
  std::int64_t rank;
  std::int64_t rope_dim;

  std::int64_t kept() const { return rank + rope_dim; }
  std::int64_t all() const { return query_rank + kept(); }
};

// Neighbours of x, turned by the angles at a position.
std::vector<double> turned(const std::vector<double>& x, const float* angles) {
  std::vector<double> out(x.size());
  for (std::size_t i = 0; i < x.size(); i += 2) {
    out[i] = x[i] * angles[i] - x[i + 1] * angles[i + 1];
    out[i + 1] = x[i] * angles[i + 1] + x[i + 1] * angles[i];
  }
  return out;
}

class LatentRowsCudaTest : public CudaFixture {
 protected:
  void prepare(const Extents& extents, bool has_bias) {
    extents_ = extents;
    down_ = random_floats(extents.rows * extents.all(), 1, 2.0);
    bias_ = has_bias ? random_floats(extents.all(), 2, 2.0) : std::vector<float>();
    query_norm_ = random_floats(extents.query_rank, 3, 2.0);
    latent_norm_ = random_floats(extents.rank, 4, 2.0);
    angles_ = random_floats(kPositions * extents.rope_dim, 5, 2.0);
    positions_.clear();
    for (std::int64_t row = 0; row < extents.rows; ++row) {
      positions_.push_back(static_cast<std::int32_t>(row * 17 % kPositions));
    }
  }

  std::vector<double> part(std::int64_t row, std::int64_t first, std::int64_t count) const {
    std::vector<double> x;
    for (std::int64_t i = first; i < first + count; ++i) {
      x.push_back(double{down_[at(row * extents_.all() + i)]} +
                  (bias_.empty() ? 0.0 : double{bias_[at(i)]}));
    }
    return x;
  }
  std::vector<double> expected_query(std::int64_t row) const {
    return normed(part(row, 0, extents_.query_rank), query_norm_, kEpsilon);
  }
  // What the pool keeps.
  std::vector<double> expected_row(std::int64_t row) const {
    const Extents& e = extents_;
    auto kept = normed(part(row, e.query_rank, e.rank), latent_norm_, kEpsilon);
    const auto rope = turned(part(row, e.query_rank + e.rank, e.rope_dim),
                             &angles_[at(positions_[at(row)] * e.rope_dim)]);
    kept.insert(kept.end(), rope.begin(), rope.end());
    return kept;
  }

  // Runs it over fresh copies of all that goes in.
  void run(const TurnTarget& target, const std::int32_t* slots) {
    device_down_ = upload(down_);
    query_ = allocate<float>(at(extents_.rows * extents_.query_rank));
    const CudaMemory bias = upload(bias_);
    const CudaMemory query_norm = upload(query_norm_);
    const CudaMemory latent_norm = upload(latent_norm_);
    const CudaMemory angles = upload(angles_);
    const CudaMemory positions = upload(positions_);
    const Status queued = latent_rows(stream(), {.down = device_down_.as<float>(),
                                                 .bias = bias_.empty() ? nullptr : bias.as<float>(),
                                                 .query_norm = query_norm.as<float>(),
                                                 .latent_norm = latent_norm.as<float>(),
                                                 .angles = angles.as<float>(),
                                                 .positions = positions.as<std::int32_t>(),
                                                 .query = query_.bytes(),
                                                 .query_type = WeightType::kF32,
                                                 .rows = extents_.rows,
                                                 .query_rank = extents_.query_rank,
                                                 .rank = extents_.rank,
                                                 .rope_dim = extents_.rope_dim,
                                                 .epsilon = static_cast<float>(kEpsilon),
                                                 .target = target,
                                                 .slots = slots});
    ASSERT_TRUE(queued.ok()) << queued.error().detail;
    ASSERT_TRUE(stream().synchronize().ok());
  }

  static void expect_near(const float* values, const std::vector<double>& wanted) {
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR(values[i], wanted[i], 4e-6 * (1 + std::abs(wanted[i]))) << "element " << i;
    }
  }

  void TearDown() override {
    device_down_ = {};
    query_ = {};
    CudaFixture::TearDown();
  }

  Extents extents_ = {};
  std::vector<float> down_;
  std::vector<float> bias_;
  std::vector<float> query_norm_;
  std::vector<float> latent_norm_;
  std::vector<float> angles_;
  std::vector<std::int32_t> positions_;
  CudaMemory device_down_;
  CudaMemory query_;
};

// The last has more values than a team takes in one go.
TEST_F(LatentRowsCudaTest, RowsAreNormalisedAndTurnedInPlace) {
  for (const Extents& extents :
       {Extents{3, 40, 48, 16}, Extents{2, 0, 24, 8}, Extents{2, 2056, 512, 64}}) {
    for (const bool has_bias : {false, true}) {
      prepare(extents, has_bias);
      run({}, nullptr);
      const auto query = download<float>(query_.bytes(), at(extents.rows * extents.query_rank));
      const auto down = download<float>(device_down_.bytes(), down_.size());
      for (std::int64_t row = 0; row < extents.rows; ++row) {
        expect_near(query.data() + row * extents.query_rank, expected_query(row));
        expect_near(down.data() + row * extents.all() + extents.query_rank, expected_row(row));
      }
    }
  }
}

TEST_F(LatentRowsCudaTest, RowsAreStoredAtTheirSlotsAndNowhereElse) {
  prepare({4, 16, 24, 8}, true);
  constexpr std::int64_t kPages = 3;
  constexpr std::int64_t kPageSize = 4;
  constexpr std::int64_t kToken = 32;
  constexpr std::int64_t kPage = kPageSize * kToken + 16;  // pages lie apart
  const CudaMemory pool = allocate<BFloat16>(kPages * kPage);
  const std::vector<std::int32_t> slots = {7, -1, 12, 2};  // 12 is outside the pool
  const CudaMemory device_slots = upload(slots);
  run({.k = pool.bytes(),
       .type = WeightType::kBf16,
       .slots = kPages * kPageSize,
       .page_size = kPageSize,
       .page_stride = kPage,
       .token_stride = kToken},
      device_slots.as<std::int32_t>());
  const auto stored = download<BFloat16>(pool.bytes(), kPages * kPage);
  std::vector<bool> written(stored.size());
  for (const std::int64_t row : {0, 3}) {
    const std::int64_t slot = slots[at(row)];
    const auto wanted = expected_row(row);
    for (std::int64_t i = 0; i < kToken; ++i) {
      const std::size_t place = at(slot / kPageSize * kPage + slot % kPageSize * kToken + i);
      written[place] = true;
      ASSERT_NEAR(to_float(stored[place]), wanted[at(i)], std::abs(wanted[at(i)]) / 256 + 1e-5);
    }
  }
  for (std::size_t i = 0; i < stored.size(); ++i) {
    if (written[i]) continue;
    ASSERT_EQ(stored[i].bits, 0xFFFF) << i;
  }
  const auto query = download<float>(query_.bytes(), 4 * 16);
  for (std::int64_t row = 0; row < 4; ++row) {
    expect_near(query.data() + row * 16, expected_query(row));
  }
}

// More heads than one team turns; what products write is left alone.
TEST_F(LatentRowsCudaTest, TheTurnedPartsOfQueriesAreWrittenBehindTheOthers) {
  constexpr std::int64_t kRows = 2;
  constexpr std::int64_t kHeads = 70;
  constexpr std::int64_t kPlain = 8;
  constexpr std::int64_t kRope = 16;
  constexpr std::int64_t kRank = 24;
  const auto heads = random_floats(kRows * kHeads * (kPlain + kRope), 6, 2.0);
  const auto angles = random_floats(kPositions * kRope, 7, 2.0);
  const std::vector<std::int32_t> positions = {3, 49};
  const CudaMemory device_heads = upload(heads);
  const CudaMemory device_angles = upload(angles);
  const CudaMemory device_positions = upload(positions);
  const CudaMemory query = allocate<float>(kRows * kHeads * (kRank + kRope));
  ASSERT_TRUE(turn_latent_queries(stream(), {.heads = device_heads.bytes(),
                                             .angles = device_angles.as<float>(),
                                             .positions = device_positions.as<std::int32_t>(),
                                             .query = query.bytes(),
                                             .rows = kRows,
                                             .query_heads = kHeads,
                                             .plain_dim = kPlain,
                                             .rope_dim = kRope,
                                             .rank = kRank,
                                             .type = WeightType::kF32})
                  .ok());
  const auto values = download<float>(query.bytes(), at(kRows * kHeads * (kRank + kRope)));
  for (std::int64_t head = 0; head < kRows * kHeads; ++head) {
    const auto from = heads.begin() + head * (kPlain + kRope) + kPlain;
    const float* const to = &values[at(head * (kRank + kRope))];
    for (std::int64_t i = 0; i < kRank; ++i) ASSERT_TRUE(std::isnan(to[i]));
    expect_near(to + kRank,
                turned({from, from + kRope}, &angles[at(positions[at(head / kHeads)] * kRope)]));
  }
}

TEST_F(LatentRowsCudaTest, ExtentsThatItCannotHoldAreRefused) {
  EXPECT_EQ(latent_rows(stream(), {.rank = 12, .rope_dim = 8}).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(latent_rows(stream(), {.query_rank = 4, .rank = 16, .rope_dim = 8}).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(turn_latent_queries(stream(), {.plain_dim = 8, .rope_dim = 4, .rank = 8}).error().code,
            ErrorCode::kInvalidArgument);
  std::byte pool = {};
  const TurnTarget ragged = {.k = &pool, .page_size = 1, .page_stride = 24, .token_stride = 20};
  EXPECT_EQ(latent_rows(stream(), {.rank = 16, .rope_dim = 8, .target = ragged}).error().code,
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace stemma
