// Turning of heads on a GPU: against the same in double; storing in a pool's layer, of which
// everything else stays as it was; rows without a slot. Tolerances: some roundings of f32 (4e-6),
// one more of bf16 where that is stored (2^-8 of the value).
#include "cuda/turn_cuda.h"

#include <cmath>

#include "base/float16.h"
#include "cuda/rows_fixture.h"
#include "device/cuda_fixture.h"

namespace stemma {
namespace {

struct Heads {
  std::int64_t rows;
  std::int64_t query_heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;

  std::int64_t all() const { return query_heads + 2 * kv_heads; }
};

class TurnCudaTest : public CudaFixture {
 protected:
  static constexpr std::int64_t kPositions = 50;
  static constexpr double kEpsilon = 1e-6;

  void prepare(const Heads& heads) {
    heads_ = heads;
    qkv_ = random_floats(heads.rows * heads.all() * heads.head_dim, 1, 2.0);
    bias_ = random_floats(heads.all() * heads.head_dim, 2, 2.0);
    query_norm_ = random_floats(heads.head_dim, 3, 2.0);
    key_norm_ = random_floats(heads.head_dim, 4, 2.0);
    angles_ = random_floats(kPositions * heads.head_dim, 5, 2.0);
    for (std::int64_t row = 0; row < heads.rows; ++row) {
      positions_.push_back(static_cast<std::int32_t>(row * 17 % kPositions));
    }
  }

  // Head `head` of `row` as it should become.
  std::vector<double> expected(std::int64_t row, std::int64_t head) const {
    const std::int64_t dim = heads_.head_dim;
    std::vector<double> x;
    for (std::int64_t i = 0; i < dim; ++i) {
      x.push_back(double{qkv_[at((row * heads_.all() + head) * dim + i)]} +
                  bias_[at(head * dim + i)]);
    }
    if (head >= heads_.query_heads + heads_.kv_heads) return x;
    const auto& norm = head < heads_.query_heads ? query_norm_ : key_norm_;
    x = normed(x, norm, kEpsilon);
    std::vector<double> turned = x;
    for (std::int64_t i = 0; i < dim / 2; ++i) {
      const double cosine = angles_[at(positions_[at(row)] * dim + 2 * i)];
      const double sine = angles_[at(positions_[at(row)] * dim + 2 * i + 1)];
      turned[at(i)] = x[at(i)] * cosine - x[at(dim / 2 + i)] * sine;
      turned[at(dim / 2 + i)] = x[at(i)] * sine + x[at(dim / 2 + i)] * cosine;
    }
    return turned;
  }

  // Runs it over fresh copies of all that goes in.
  void turn(const TurnTarget& target, const std::int32_t* slots) {
    device_qkv_ = upload(qkv_);
    query_ = allocate<float>(at(heads_.rows * heads_.query_heads * heads_.head_dim));
    const CudaMemory bias = upload(bias_);
    const CudaMemory query_norm = upload(query_norm_);
    const CudaMemory key_norm = upload(key_norm_);
    const CudaMemory angles = upload(angles_);
    const CudaMemory positions = upload(positions_);
    const Status queued = turn_rows(stream(), {.qkv = device_qkv_.as<float>(),
                                               .bias = bias.as<float>(),
                                               .query_norm = query_norm.as<float>(),
                                               .key_norm = key_norm.as<float>(),
                                               .angles = angles.as<float>(),
                                               .positions = positions.as<std::int32_t>(),
                                               .query = query_.bytes(),
                                               .query_type = WeightType::kF32,
                                               .rows = heads_.rows,
                                               .query_heads = heads_.query_heads,
                                               .kv_heads = heads_.kv_heads,
                                               .head_dim = heads_.head_dim,
                                               .epsilon = static_cast<float>(kEpsilon),
                                               .target = target,
                                               .slots = slots});
    ASSERT_TRUE(queued.ok()) << queued.error().detail;
    ASSERT_TRUE(stream().synchronize().ok());
  }

  void expect_head(const float* values, std::int64_t row, std::int64_t head) const {
    const auto wanted = expected(row, head);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR(values[i], wanted[i], 4e-6 * (1 + std::abs(wanted[i])))
          << "row " << row << " head " << head << " element " << i;
    }
  }

  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  Heads heads_ = {};
  std::vector<float> qkv_;
  std::vector<float> bias_;
  std::vector<float> query_norm_;
  std::vector<float> key_norm_;
  std::vector<float> angles_;
  std::vector<std::int32_t> positions_;
  CudaMemory device_qkv_;
  CudaMemory query_;

  void TearDown() override {
    device_qkv_ = {};
    query_ = {};
    CudaFixture::TearDown();
  }
};

TEST_F(TurnCudaTest, HeadsAreBiasedNormalisedAndTurnedInPlace) {
  for (const Heads& heads : {Heads{3, 4, 2, 32}, Heads{2, 5, 1, 72}, Heads{1, 2, 2, 256}}) {
    positions_.clear();
    prepare(heads);
    turn({}, nullptr);
    const std::int64_t dim = heads.head_dim;
    const auto query = download<float>(query_.bytes(), at(heads.rows * heads.query_heads * dim));
    const auto rest = download<float>(device_qkv_.bytes(), qkv_.size());
    for (std::int64_t row = 0; row < heads.rows; ++row) {
      for (std::int64_t head = 0; head < heads.all(); ++head) {
        const bool is_query = head < heads.query_heads;
        const float* const values = is_query ? query.data() + (row * heads.query_heads + head) * dim
                                             : rest.data() + (row * heads.all() + head) * dim;
        expect_head(values, row, head);
      }
    }
  }
}

TEST_F(TurnCudaTest, KeysAndValuesAreStoredAtTheirSlotsAndNowhereElse) {
  prepare({4, 4, 2, 40});
  constexpr std::int64_t kPages = 3;
  constexpr std::int64_t kPageSize = 4;
  constexpr std::int64_t kToken = 2 * 40;
  constexpr std::int64_t kPage = kPageSize * kToken + 16;  // pages lie apart
  const CudaMemory k = allocate<BFloat16>(kPages * kPage);
  const CudaMemory v = allocate<BFloat16>(kPages * kPage);
  const std::vector<std::int32_t> slots = {7, -1, 12, 2};  // 12 is outside the pool
  const CudaMemory device_slots = upload(slots);
  turn({.k = k.bytes(),
        .v = v.bytes(),
        .type = WeightType::kBf16,
        .slots = kPages * kPageSize,
        .page_size = kPageSize,
        .page_stride = kPage,
        .token_stride = kToken},
       device_slots.as<std::int32_t>());
  for (const bool is_key : {true, false}) {
    const auto stored = download<BFloat16>((is_key ? k : v).bytes(), kPages * kPage);
    std::vector<bool> written(stored.size());
    for (const std::int64_t row : {0, 3}) {
      const std::int64_t slot = slots[at(row)];
      for (std::int64_t head = 0; head < 2; ++head) {
        const auto wanted = expected(row, 4 + (is_key ? 0 : 2) + head);
        for (std::int64_t i = 0; i < 40; ++i) {
          const auto place =
              at(slot / kPageSize * kPage + slot % kPageSize * kToken + head * 40 + i);
          written[place] = true;
          ASSERT_NEAR(to_float(stored[place]), wanted[at(i)], std::abs(wanted[at(i)]) / 256 + 1e-5);
        }
      }
    }
    for (std::size_t i = 0; i < stored.size(); ++i) {
      if (written[i]) continue;
      ASSERT_EQ(stored[i].bits, 0xFFFF) << i;
    }
  }
}

TEST_F(TurnCudaTest, HeadsThatItCannotHoldAreRefused) {
  EXPECT_EQ(turn_rows(stream(), {.head_dim = 264}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(turn_rows(stream(), {.head_dim = 12}).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace stemma
