// MlaPool: latent rows that are stored come back, once, in both layouts and every dtype; V is the
// begin of K; a page moves to another pool and to an image as one piece a layer; what is wrong is
// refused with its name.
#include "pool/mla_pool.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/float16.h"
#include "base/prng.h"
#include "pool/kv_pool_factory.h"
#include "pool/page_codec.h"
#include "pool/page_image.h"
#include "pool/pool_fixture.h"

namespace stemma {
namespace {

constexpr std::uint64_t kSeed = 20261122;
constexpr std::array kLayouts = {KvLayout::kLayerFirst, KvLayout::kPageFirst};

KvShape small_shape(DType dtype) {
  return {.layers = 3,
          .pages = 4,
          .page_size = 5,
          .heads = 1,
          .head_dim = 24,
          .dtype = dtype,
          .kind = KvKind::kMla,
          .latent_dim = 16};
}

std::unique_ptr<KvPool> make_pool(const KvShape& shape, KvLayout layout) {
  ThreadPool threads(1);
  auto pool = make_kv_pool(shape, layout, threads);
  EXPECT_TRUE(pool.ok());
  return std::move(pool).value();
}

KvRows rows_of(const std::vector<float>& values, const KvShape& shape) {
  return {.elements = values.data(),
          .dtype = DType::kF32,
          .rows = static_cast<std::int64_t>(values.size()) / shape.head_dim,
          .heads = 1,
          .head_dim = shape.head_dim,
          .row_stride = shape.head_dim};
}

std::vector<float> random_rows(const KvShape& shape, std::int64_t rows, Prng& prng) {
  std::vector<float> values(static_cast<std::size_t>(rows * shape.head_dim));
  for (float& value : values) value = static_cast<float>(prng.unit() * 4 - 2);
  return values;
}

// An element of K of a view, as f32.
float element(const KvLayerView& view, const void* rows, std::int64_t slot, std::int64_t column) {
  const std::int64_t at =
      slot / view.page_size * view.page_stride + slot % view.page_size * view.token_stride + column;
  return view.dtype == DType::kF32 ? static_cast<const float*>(rows)[at]
                                   : to_float(static_cast<const BFloat16*>(rows)[at]);
}

TEST(MlaPool, HoldsOneRowATokenWhoseBeginIsV) {
  Prng prng(kSeed);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const KvLayout layout : kLayouts) {
      const KvShape shape = small_shape(dtype);
      const auto pool = make_pool(shape, layout);
      const std::vector<std::int32_t> slots = {19, 0, 7};
      const std::vector<float> values = random_rows(shape, 3, prng);
      ASSERT_TRUE(pool->store(1, std::span(slots), rows_of(values, shape), KvRows{}).ok());
      const KvLayerView view = pool->layer_view(1);
      EXPECT_EQ(view.value_dim, 16);
      EXPECT_EQ(view.v, view.k);
      for (std::size_t row = 0; row < slots.size(); ++row) {
        for (std::int64_t i = 0; i < shape.head_dim; ++i) {
          const float stored = values[row * 24 + static_cast<std::size_t>(i)];
          const float expected = dtype == DType::kF32 ? stored : to_float(to_bfloat16(stored));
          ASSERT_EQ(element(view, view.k, slots[row], i), expected);
        }
      }
      EXPECT_EQ(element(pool->layer_view(0), pool->layer_view(0).k, 19, 0), 0) << "another layer";
    }
  }
}

// (kv_lora_rank + rope) × layers × element size.
TEST(MlaPool, ItsBytesPerTokenAreThoseOfTheLatentRows) {
  const KvShape shape = small_shape(DType::kBF16);
  EXPECT_EQ(shape.page_bytes(), 5 * 24 * 3 * 2);
  const auto pool = make_pool(shape, KvLayout::kLayerFirst);
  EXPECT_EQ(pool->layer_bytes() * shape.layers, shape.page_bytes());
  const TensorView view = pool->logical_view();
  EXPECT_THAT(view.shape, testing::ElementsAre(1, 3, 4, 5, 1, 24));
}

TEST(MlaPool, APageIsTheSameImageInEveryLayout) {
  Prng prng(kSeed);
  const KvShape shape = small_shape(DType::kF16);
  for (const KvLayout from_layout : kLayouts) {
    for (const KvLayout to_layout : kLayouts) {
      const auto from = make_pool(shape, from_layout);
      const auto to = make_pool(shape, to_layout);
      fill_randomly(*from, prng);
      std::vector<std::byte> image(page_image_bytes(*from));
      std::vector<std::uint32_t> sums(3);
      copy_page_out(*from, PageId(2), {0, 3}, image, sums);
      ASSERT_EQ(copy_page_in(*to, PageId(1), {0, 3}, image, sums), std::nullopt);
      EXPECT_EQ(expected_image(*to, PageId(1)), expected_image(*from, PageId(2)));
    }
  }
}

TEST(MlaPool, CodecsScaleEachLatentRowByItself) {
  Prng prng(kSeed);
  const KvShape shape = small_shape(DType::kF32);
  const auto pool = make_pool(shape, KvLayout::kLayerFirst);
  const std::vector<std::int32_t> slots = {5, 6, 7, 8, 9};
  const std::vector<float> values = random_rows(shape, 5, prng);
  ASSERT_TRUE(pool->store(0, std::span(slots), rows_of(values, shape), KvRows{}).ok());
  const std::vector<std::byte> layer = expected_layer(*pool, PageId(1), 0);
  std::vector<std::byte> encoded(
      static_cast<std::size_t>(encoded_layer_bytes(PageCodec::kInt8, shape)));
  EXPECT_EQ(encoded.size(), 5u * (4 + 24));
  ASSERT_TRUE(try_encode_layer(PageCodec::kInt8, shape, layer, encoded));
  std::vector<std::byte> decoded(layer.size());
  decode_layer(PageCodec::kInt8, shape, encoded, decoded);
  const auto* const back = reinterpret_cast<const float*>(decoded.data());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(back[i], values[i], 2.0 / 254);
}

TEST(MlaPool, RefusesWhatIsWrongByName) {
  const KvShape shape = small_shape(DType::kF32);
  const auto pool = make_pool(shape, KvLayout::kLayerFirst);
  const std::vector<std::int64_t> slots = {3};
  const std::vector<float> values(24);
  const KvRows row = rows_of(values, shape);
  EXPECT_THAT(pool->store(0, std::span(slots), row, row).error().detail,
              testing::HasSubstr("v has rows"));
  KvRows narrow = row;
  narrow.head_dim = 16;
  EXPECT_THAT(pool->store(0, std::span(slots), narrow, KvRows{}).error().detail,
              testing::HasSubstr("k has rows of [1, 16], the pool of [1, 24]"));
  const std::vector<std::int64_t> outside = {20};
  EXPECT_THAT(pool->store(0, std::span(outside), row, KvRows{}).error().detail,
              testing::HasSubstr("slots[0] = 20 is outside the pool"));
  EXPECT_THAT(pool->store(3, std::span(slots), row, KvRows{}).error().detail,
              testing::HasSubstr("layer 3"));
}

}  // namespace
}  // namespace stemma
