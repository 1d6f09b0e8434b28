// Attention over codes of 8 bits on a GPU, whatever their rows' scales and the queries' magnitudes
// are: near plain loops in double, and the same bits however rows are cut.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "attention/attention_steps.h"
#include "attention/cuda_attention.h"
#include "attention/cuda_attention_fixture.h"

namespace stemma {
namespace {

constexpr std::int64_t kTokens = 150;  // three tiles, one of them in part

class CodeAttention : public CudaAttentionFixture, public testing::WithParamInterface<DType> {
 protected:
  void SetUp() override {
    CudaAttentionFixture::SetUp();
    c_.world.shape = {.query_heads = 4, .kv_heads = 2, .head_dim = 64, .scale = 0.125f};
    c_.world.dtype = GetParam();
    c_.row_dtype = DType::kF32;
    c_.tokens = {kTokens};
    world_ = std::make_unique<AttentionWorld>(c_.world, c_.tokens);
  }

  // The layer with other scales: those of key `key` times what the functions give.
  struct Scaled {
    std::vector<float> k, v;
    KvLayerView view;
  };
  using Factor = std::function<float(std::int64_t key)>;
  Scaled scaled(const Factor& of_k, const Factor& of_v) const {
    Scaled layer;
    layer.view = world_->layer();
    const KvLayerView& view = layer.view;
    const auto count =
        static_cast<std::size_t>((view.pages - 1) * view.scale_page_stride +
                                 (view.heads - 1) * view.scale_head_stride + view.page_size);
    layer.k.assign(view.k_scales, view.k_scales + count);
    layer.v.assign(view.v_scales, view.v_scales + count);
    const PageTableView table = c_.world.shape.table(world_->batch());
    for (std::int64_t key = 0; key <= world_->batch().positions.back(); ++key) {
      const SlotId slot = table.slot(0, key);
      for (std::int64_t head = 0; head < view.heads; ++head) {
        const auto at =
            static_cast<std::size_t>(slot.value() / view.page_size * view.scale_page_stride +
                                     slot.value() % view.page_size + head * view.scale_head_stride);
        layer.k[at] *= of_k(key);
        layer.v[at] *= of_v(key);
      }
    }
    layer.view.k_scales = layer.k.data();
    layer.view.v_scales = layer.v.data();
    return layer;
  }
  static float same(std::int64_t) { return 1; }

  std::vector<float> attend(const Scaled& layer, const std::vector<float>& q) {
    return CudaAttentionFixture::attend(c_, *make(c_), world_->batch(), layer.view, q);
  }

  // Near in proportion to the largest output of each row and head, of which products are made; of a
  // scale of 0 2^-100 is made, which no row of zeros shows, but these codes do.
  void expect_near_reference(const Scaled& layer) {
    const std::vector<float> actual = attend(layer, world_->queries());
    const std::vector<float> wanted = expected(c_, world_->batch(), layer.view, world_->queries());
    constexpr std::size_t kDim = 64;
    for (std::size_t row = 0; row < wanted.size(); row += kDim) {
      float largest = 0;
      for (std::size_t i = 0; i < kDim; ++i) largest = std::max(largest, std::abs(wanted[row + i]));
      for (std::size_t i = 0; i < kDim; ++i) {
        ASSERT_NEAR(actual[row + i], wanted[row + i], 0x1p-9 * largest + 0x1p-80)
            << "row " << row / kDim;
      }
    }
  }

  CudaCase c_;
  std::unique_ptr<AttentionWorld> world_;
};

TEST_P(CodeAttention, HoldsWhatCountsWhateverScalesThereAre) {
  world_->prepare({{0, kTokens}});
  Prng prng(static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed()));
  const auto drawn = [&](std::int64_t) {
    return std::ldexp(1.0f, static_cast<int>(prng.below(50)) - 40);
  };
  expect_near_reference(scaled(same, drawn));
  expect_near_reference(scaled(same, [](std::int64_t) { return 0x1p-60f; }));
  expect_near_reference(scaled(same, [](std::int64_t) { return 0x1p60f; }));
}

// Of most weight are keys of which nothing comes, as of the first token of many models.
TEST_P(CodeAttention, RowsOfZerosTakeWeightFromOthersAndGiveNothing) {
  world_->prepare({{0, kTokens}});
  const Factor most = [](std::int64_t key) { return key % 3 == 1 ? 3.0f : 1.0f; };
  const Factor none = [](std::int64_t key) { return key % 3 == 1 ? 0.0f : 1.0f; };
  const Factor next_to_none = [](std::int64_t key) { return key % 3 == 1 ? 1e-40f : 1.0f; };
  expect_near_reference(scaled(most, none));
  expect_near_reference(scaled(most, next_to_none));
  expect_near_reference(scaled(same, [](std::int64_t) { return 0.0f; }));
}

TEST_P(CodeAttention, HasTheSameBitsOfQueriesThatAreAPowerOfTwoLarger) {
  world_->prepare({{0, kTokens}});
  const Outputs wanted = {attend(scaled(same, same), world_->queries())};
  for (const int exponent : {-30, 20, 60}) {
    std::vector<float> q = world_->queries();
    for (float& value : q) value = std::ldexp(value, exponent);
    const Factor inverse = [&](std::int64_t) { return std::ldexp(1.0f, -exponent); };
    expect_same_bits({attend(scaled(inverse, same), q)}, wanted);
  }
}

TEST_P(CodeAttention, GivesNoNumberWhereARowWasInfinite) {
  world_->prepare({{0, kTokens}});
  constexpr std::int64_t kBad = 100;
  const Factor bad = [](std::int64_t key) {
    return key == kBad ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
  };
  for (const Scaled& layer : {scaled(bad, same), scaled(same, bad)}) {
    const std::vector<float> out = attend(layer, world_->queries());
    constexpr std::size_t kRow = 4 * 64;
    for (std::size_t i = kBad * kRow; i < out.size(); ++i) ASSERT_TRUE(std::isnan(out[i]));
  }
}

TEST_P(CodeAttention, HasBitsThatDoNotDependOnHowRowsOfAnyScaleAreCut) {
  const Factor of_k = [](std::int64_t key) { return key % 7 == 3 ? 2.5f : 1.0f; };
  const Factor of_v = [](std::int64_t key) {
    return std::ldexp(1.0f, static_cast<int>(key % 23) - 20);
  };
  const auto rows_in = [&](const std::vector<std::int64_t>& chunks) {
    world_ = std::make_unique<AttentionWorld>(c_.world, c_.tokens);
    Outputs rows(1);
    for (const std::int64_t chunk : chunks) {
      world_->prepare({{0, chunk}});
      const std::vector<float> out = attend(scaled(of_k, of_v), world_->queries());
      rows[0].insert(rows[0].end(), out.begin(), out.end());
    }
    return rows;
  };
  const Outputs whole = rows_in({kTokens});
  expect_same_bits(rows_in({70, 1, 1, 13, 65}), whole);
  expect_same_bits(rows_in({1, 149}), whole);
}

INSTANTIATE_TEST_SUITE_P(OfEachType, CodeAttention,
                         testing::Values(DType::kFp8E4M3, DType::kFp8E5M2, DType::kInt8),
                         [](const auto& instance) {
                           return std::string(dtype_name(instance.param));
                         });

}  // namespace
}  // namespace stemma
