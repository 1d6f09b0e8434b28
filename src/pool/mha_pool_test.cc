// MhaPool: rows that are stored come back through the logical view in both layouts, in every dtype
// and from slots of either width; what is wrong is refused with its name, and nothing is written.
#include "pool/mha_pool.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/memory_room.h"
#include "base/prng.h"
#include "pool/kv_pool_factory.h"
#include "pool/pool_fixture.h"
#include "pool/store_kernel.h"

namespace stemma {
namespace {

constexpr std::uint64_t kSeed = 20250711;

KvShape small_shape(DType dtype, std::int64_t page_size = 3) {
  return {
      .layers = 2, .pages = 5, .page_size = page_size, .heads = 3, .head_dim = 20, .dtype = dtype};
}

std::unique_ptr<MhaPool> make_pool(const KvShape& shape, KvLayout layout) {
  ThreadPool threads(1);
  auto pool = MhaPool::create(shape, layout, threads);
  EXPECT_TRUE(pool.ok());
  return std::move(pool).value();
}

float stored_value(const TensorView& view, std::array<std::int64_t, 6> at) {
  std::int64_t element = 0;
  for (std::size_t dim = 0; dim < 6; ++dim) {
    EXPECT_GE(at[dim], 0);
    EXPECT_LT(at[dim], view.shape[dim]);
    element += at[dim] * view.stride[dim];
  }
  switch (view.dtype) {
    case DType::kF32:
      return static_cast<const float*>(view.bytes)[element];
    case DType::kF16:
      return to_float(static_cast<const Float16*>(view.bytes)[element]);
    case DType::kBF16:
      return to_float(static_cast<const BFloat16*>(view.bytes)[element]);
    default:  // scaled dtypes: scaled_pool_test
      return 0;
  }
}

float rounded(float value, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return value;
    case DType::kF16:
      return to_float(to_float16(value));
    case DType::kBF16:
      return to_float(to_bfloat16(value));
    default:
      return 0;
  }
}

void expect_stored(MhaPool& pool, std::int64_t layer, std::span<const std::int64_t> slots,
                   const DrawnRows& k, const DrawnRows& v) {
  const KvShape& shape = pool.shape();
  const TensorView view = pool.logical_view();
  for (std::size_t row = 0; row < slots.size(); ++row) {
    const std::int64_t page = slots[row] / shape.page_size;
    const std::int64_t offset = slots[row] % shape.page_size;
    for (std::int64_t i = 0; i < shape.row_elements(); ++i) {
      const std::int64_t head = i / shape.head_dim;
      const std::int64_t dim = i % shape.head_dim;
      const auto r = static_cast<std::int64_t>(row);
      ASSERT_EQ(stored_value(view, {0, layer, page, offset, head, dim}),
                rounded(k.at(r, i), shape.dtype));
      ASSERT_EQ(stored_value(view, {1, layer, page, offset, head, dim}),
                rounded(v.at(r, i), shape.dtype));
    }
  }
}

std::vector<std::int64_t> shuffled_slots(const KvShape& shape, Prng& prng) {
  std::vector<std::int64_t> slots(static_cast<std::size_t>(shape.slots()));
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), prng);
  slots.resize(slots.size() - 1);  // one slot stays as it was
  return slots;
}

double absolute_sum(const TensorView& view, const KvShape& shape) {
  double sum = 0;
  const auto count = static_cast<std::int64_t>(shape.total_bytes() / dtype_bytes(shape.dtype));
  TensorView flat = view;
  for (std::int64_t i = 0; i < count; ++i) {
    flat.shape = {1, 1, 1, 1, 1, count};
    flat.stride = {0, 0, 0, 0, 0, 1};
    sum += std::fabs(static_cast<double>(stored_value(flat, {0, 0, 0, 0, 0, i})));
  }
  return sum;
}

TEST(MhaPool, StoredRowsComeBackInEveryLayoutAndDtype) {
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  for (const KvLayout layout : {KvLayout::kLayerFirst, KvLayout::kPageFirst}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const std::int64_t page_size : {1, 3, 16}) {
        const KvShape shape = small_shape(dtype, page_size);
        const auto pool = make_pool(shape, layout);
        for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
          const std::vector<std::int64_t> slots = shuffled_slots(shape, prng);
          const DrawnRows k(shape, static_cast<std::int64_t>(slots.size()), prng);
          const DrawnRows v(shape, static_cast<std::int64_t>(slots.size()), prng);
          ASSERT_TRUE(
              pool->store(layer, std::span<const std::int64_t>(slots), k.view, v.view).ok());
          expect_stored(*pool, layer, slots, k, v);
        }
      }
    }
  }
}

TEST(MhaPool, PiecesAreThePagesBytesInEveryLayout) {
  for (const KvLayout layout : {KvLayout::kLayerFirst, KvLayout::kPageFirst}) {
    const KvShape shape = small_shape(DType::kBF16);
    const auto pool = make_pool(shape, layout);
    const MhaPool& same = *pool;
    const TensorView view = pool->logical_view();
    EXPECT_EQ(pool->layer_bytes() * shape.layers, shape.page_bytes());
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
      const auto pieces = pool->layer_pieces(layer);
      ASSERT_EQ(pieces.end() - pieces.begin(), 2);
      for (const PageId page : id_range(PageId(0), shape.pages)) {
        for (std::int64_t side = 0; side < 2; ++side) {
          const std::int64_t element =
              side * view.stride[0] + layer * view.stride[1] + page.value() * view.stride[2];
          const auto& piece = pieces.begin()[side];
          EXPECT_EQ(piece.of(page), static_cast<std::byte*>(view.bytes) + 2 * element);
          EXPECT_EQ(piece.bytes, shape.page_size * shape.row_elements() * 2);
          EXPECT_EQ(same.layer_pieces(layer).begin()[side].of(page), piece.of(page));
        }
      }
    }
  }
}

// The bit is that of the last element of each piece in turn; layers behind differ too.
TEST(MhaPool, PagesDifferInTheFirstLayerOfWhichABitDoes) {
  for (const KvLayout layout : {KvLayout::kLayerFirst, KvLayout::kPageFirst}) {
    const auto pool = make_pool(small_shape(DType::kBF16), layout);
    KvPool& same = *pool;
    std::optional<std::int64_t> behind;
    EXPECT_EQ(*same.first_different_layer(PageId(0), PageId(1)), behind);
    for (std::int64_t layer = pool->shape().layers - 1; layer >= 0; --layer) {
      for (const PagePiece<std::byte>& piece : same.layer_pieces(layer)) {
        std::byte& last = piece.of(PageId(1))[piece.bytes - 1];
        last ^= std::byte{1};
        EXPECT_EQ(*same.first_different_layer(PageId(0), PageId(1)), layer);
        last ^= std::byte{1};
        EXPECT_EQ(*same.first_different_layer(PageId(0), PageId(1)), behind);
      }
      *same.layer_pieces(layer).begin()->of(PageId(1)) ^= std::byte{1};
      behind = layer;
      EXPECT_EQ(*same.first_different_layer(PageId(0), PageId(1)), behind);
    }
  }
}

TEST(MhaPool, APageIsCopiedWholeAndAlone) {
  for (const KvLayout layout : {KvLayout::kLayerFirst, KvLayout::kPageFirst}) {
    for (const DType dtype : {DType::kBF16, DType::kInt8}) {
      const auto pool = make_pool(small_shape(dtype), layout);
      Prng prng(kSeed);
      fill_randomly(*pool, prng);
      const auto from = expected_image(*pool, PageId(2));
      const auto before = expected_image(*pool, PageId(0));
      const auto behind = expected_image(*pool, PageId(1));
      ASSERT_NE(from, before);
      ASSERT_TRUE(pool->copy_page(PageId(2), PageId(0)).ok());
      EXPECT_EQ(expected_image(*pool, PageId(0)), from);
      EXPECT_EQ(expected_image(*pool, PageId(1)), behind);
      EXPECT_EQ(expected_image(*pool, PageId(2)), from);
    }
  }
}

// Enough rows, of whole cache lines, to go past the caches.
TEST(MhaPool, ManyRowsAreStoredLikeFew) {
  Prng prng(kSeed);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const KvShape shape = {
        .layers = 1, .pages = 300, .page_size = 2, .heads = 5, .head_dim = 224, .dtype = dtype};
    const auto pool = make_pool(shape, KvLayout::kLayerFirst);
    const std::vector<std::int64_t> slots = shuffled_slots(shape, prng);
    const DrawnRows k(shape, static_cast<std::int64_t>(slots.size()), prng);
    const DrawnRows v(shape, static_cast<std::int64_t>(slots.size()), prng);
    ASSERT_TRUE(pool->store(0, std::span<const std::int64_t>(slots), k.view, v.view).ok());
    expect_stored(*pool, 0, slots, k, v);
  }
}

TEST(MhaPool, SlotsOf32BitsStoreTheSameBytes) {
  Prng prng(kSeed);
  const KvShape shape = small_shape(DType::kBF16);
  const auto pool = make_pool(shape, KvLayout::kPageFirst);
  const std::vector<std::int64_t> slots = shuffled_slots(shape, prng);
  const std::vector<std::int32_t> narrow(slots.begin(), slots.end());
  const DrawnRows k(shape, static_cast<std::int64_t>(slots.size()), prng);
  const DrawnRows v(shape, static_cast<std::int64_t>(slots.size()), prng);
  ASSERT_TRUE(pool->store(1, std::span<const std::int32_t>(narrow), k.view, v.view).ok());
  expect_stored(*pool, 1, slots, k, v);
}

TEST(MhaPool, RowsOfThePoolsDtypeAreCopiedAsTheyAre) {
  const KvShape shape = small_shape(DType::kF16);
  const auto pool = make_pool(shape, KvLayout::kLayerFirst);
  std::vector<std::uint16_t> bits(static_cast<std::size_t>(shape.row_elements()));
  std::iota(bits.begin(), bits.end(), std::uint16_t{0x7BF0});  // NaN payloads among them
  const KvRows rows = {.elements = bits.data(),
                       .dtype = DType::kF16,
                       .rows = 1,
                       .heads = shape.heads,
                       .head_dim = shape.head_dim,
                       .row_stride = shape.row_elements()};
  const std::vector<std::int64_t> slots = {7};
  ASSERT_TRUE(pool->store(0, std::span<const std::int64_t>(slots), rows, rows).ok());
  const KvLayerView view = pool->layer_view(0);
  const auto* k =
      static_cast<const std::uint16_t*>(view.k) + 2 * view.page_stride + view.token_stride;
  EXPECT_TRUE(std::equal(bits.begin(), bits.end(), k));
}

TEST(MhaPool, BothLayoutsShowOneLogicalShape) {
  const KvShape shape = small_shape(DType::kF32);
  for (const KvLayout layout : {KvLayout::kLayerFirst, KvLayout::kPageFirst}) {
    const auto pool = make_pool(shape, layout);
    const TensorView view = pool->logical_view();
    EXPECT_THAT(view.shape, testing::ElementsAre(2, 2, 5, 3, 3, 20));
    EXPECT_EQ(view.dims, 6);
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
      const KvLayerView one = pool->layer_view(layer);
      EXPECT_EQ(one.k, static_cast<float*>(view.bytes) + layer * view.stride[1]);
      EXPECT_EQ(one.v, static_cast<float*>(view.bytes) + view.stride[0] + layer * view.stride[1]);
      EXPECT_EQ(one.page_stride, view.stride[2]);
      EXPECT_EQ(one.token_stride, view.stride[3]);
      EXPECT_EQ(one.head_stride, view.stride[4]);
    }
  }
  EXPECT_THAT(make_pool(shape, KvLayout::kLayerFirst)->logical_view().stride,
              testing::ElementsAre(1800, 900, 180, 60, 20, 1));
  EXPECT_THAT(make_pool(shape, KvLayout::kPageFirst)->logical_view().stride,
              testing::ElementsAre(1800, 180, 360, 60, 20, 1));
}

struct Refusal {
  std::string named;  // what the error must name
  std::function<void(std::int64_t& layer, std::vector<std::int64_t>& slots, KvRows& k, KvRows& v)>
      spoil;
};

std::vector<Refusal> refusals() {
  using Slots = std::vector<std::int64_t>;
  return {
      {"layer -1", [](auto& layer, Slots&, KvRows&, KvRows&) { layer = -1; }},
      {"layer 2", [](auto& layer, Slots&, KvRows&, KvRows&) { layer = 2; }},
      {"slots[1] = -1", [](auto&, Slots& slots, KvRows&, KvRows&) { slots[1] = -1; }},
      {"slots[1] = 15", [](auto&, Slots& slots, KvRows&, KvRows&) { slots[1] = 15; }},
      {"k has 3 rows for 2 slots", [](auto&, Slots&, KvRows& k, KvRows&) { k.rows = 3; }},
      {"v has 1 rows for 2 slots", [](auto&, Slots&, KvRows&, KvRows& v) { v.rows = 1; }},
      {"k has rows of [4, 20]", [](auto&, Slots&, KvRows& k, KvRows&) { k.heads = 4; }},
      {"v has rows of [3, 24]", [](auto&, Slots&, KvRows&, KvRows& v) { v.head_dim = 24; }},
      {"k has a row stride of 59", [](auto&, Slots&, KvRows& k, KvRows&) { k.row_stride = 59; }},
      {"v is f16", [](auto&, Slots&, KvRows&, KvRows& v) { v.dtype = DType::kF16; }},
      {"k is on cuda", [](auto&, Slots&, KvRows& k, KvRows&) { k.device = DeviceKind::kCuda; }},
      {"v has rows but no", [](auto&, Slots&, KvRows&, KvRows& v) { v.elements = nullptr; }},
  };
}

TEST(MhaPool, RefusesWhatIsWrongByNameAndWritesNothing) {
  Prng prng(kSeed);
  const KvShape shape = small_shape(DType::kBF16);
  const auto pool = make_pool(shape, KvLayout::kLayerFirst);
  const DrawnRows k(shape, 2, prng);
  const DrawnRows v(shape, 2, prng);
  for (const Refusal& refusal : refusals()) {
    SCOPED_TRACE(refusal.named);
    std::int64_t layer = 0;
    std::vector<std::int64_t> slots = {3, 4};
    KvRows spoilt_k = k.view;
    KvRows spoilt_v = v.view;
    refusal.spoil(layer, slots, spoilt_k, spoilt_v);
    const Status status =
        pool->store(layer, std::span<const std::int64_t>(slots), spoilt_k, spoilt_v);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.error().detail, testing::HasSubstr(refusal.named));
    EXPECT_EQ(absolute_sum(pool->logical_view(), shape), 0);
  }
}

TEST(MhaPool, OfASingleRowNobodyAsksWhereTheNextOneIs) {
  Prng prng(kSeed);
  const KvShape shape = small_shape(DType::kF32);
  const auto pool = make_pool(shape, KvLayout::kLayerFirst);
  DrawnRows k(shape, 1, prng);
  DrawnRows v(shape, 1, prng);
  k.view.row_stride = v.view.row_stride = 1;
  const std::vector<std::int64_t> slots = {7};
  ASSERT_TRUE(pool->store(0, std::span<const std::int64_t>(slots), k.view, v.view).ok());
  expect_stored(*pool, 0, slots, k, v);
}

TEST(MhaPool, StoringNoRowsIsNothing) {
  const KvShape shape = small_shape(DType::kF32);
  const auto pool = make_pool(shape, KvLayout::kLayerFirst);
  KvRows none = {.heads = shape.heads, .head_dim = shape.head_dim, .row_stride = 60};
  EXPECT_TRUE(pool->store(0, std::span<const std::int64_t>(), none, none).ok());
}

TEST(Rounding, AgreesBitForBitWithTheScalarFunctions) {
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  std::vector<float> values = {0.0f, -0.0f, 65504.0f, 65519.9f, 65520.0f, 1e-8f, -6.1e-5f, 5.9e-8f};
  values.push_back(std::numeric_limits<float>::infinity());
  values.push_back(-std::numeric_limits<float>::infinity());
  for (int i = 0; i < 200'003; ++i) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(prng())));
  }
  for (int i = 0; i < 100'000; ++i) {  // the range of f16, ties among them
    const auto half = static_cast<std::uint16_t>(prng());
    const auto step = static_cast<std::uint32_t>(prng.below(5)) << 11;
    const float value = to_float(Float16{half});
    values.push_back(std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) + step));
  }
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::uint16_t> bits(values.size());
  round_to_16_bits(values.data(), count, DType::kBF16, bits.data());
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(bits[i], to_bfloat16(values[i]).bits);
  round_to_16_bits(values.data(), count, DType::kF16, bits.data());
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(bits[i], to_float16(values[i]).bits);
}

TEST(KvPoolFactory, MoreThanThereIsRoomForIsRefusedWithBothNumbers) {
  if (!memory_room().has_value()) GTEST_SKIP() << "nothing says how much memory there is";
  ThreadPool threads(1);
  const KvShape shape = {
      .layers = 64, .pages = 1 << 30, .page_size = 16, .heads = 8, .head_dim = 64};
  const auto pool = MhaPool::create(shape, KvLayout::kLayerFirst, threads);
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(pool.error().detail, testing::ContainsRegex("[0-9]{15} bytes .* room for [0-9]+"));
}

TEST(KvPoolFactory, MakesThePoolOfAShape) {
  ThreadPool threads(2);
  auto pool = make_kv_pool(small_shape(DType::kF16), KvLayout::kPageFirst, threads);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ((*pool)->layout(), KvLayout::kPageFirst);
  EXPECT_EQ((*pool)->shape(), small_shape(DType::kF16));
  EXPECT_FALSE(make_kv_pool(KvShape{}, KvLayout::kPageFirst, threads).ok());
}

TEST(KvPoolFactory, ParsesLayoutsAndDtypes) {
  EXPECT_EQ(parse_kv_layout("page_first").value(), KvLayout::kPageFirst);
  EXPECT_EQ(parse_kv_dtype("bf16").value(), DType::kBF16);
  EXPECT_THAT(parse_kv_layout("nhd").error().detail, testing::HasSubstr("layer_first, page_first"));
  EXPECT_THAT(parse_kv_dtype("int4").error().detail,
              testing::HasSubstr("f32, f16, bf16, fp8_e4m3, fp8_e5m2, int8"));
}

}  // namespace
}  // namespace stemma
