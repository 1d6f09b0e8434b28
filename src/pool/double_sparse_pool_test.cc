// DoubleSparsePool: what is stored comes back once, and its labels are K in the heavy channels, bit
// for bit, in both layouts and every dtype; labels move with their page; what is wrong is refused
// with its name.
#include "pool/double_sparse_pool.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/float16.h"
#include "base/prng.h"
#include "pool/host_pool.h"
#include "pool/kv_pool_factory.h"
#include "pool/page_image.h"
#include "pool/pool_fixture.h"

namespace stemma {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kSeed = 20261123;
constexpr std::array kLayouts = {KvLayout::kLayerFirst, KvLayout::kPageFirst};
constexpr std::int64_t kRowElements = 2 * 24;

KvShape small_shape(DType dtype) {
  return {.layers = 3,
          .pages = 4,
          .page_size = 5,
          .heads = 2,
          .head_dim = 24,
          .dtype = dtype,
          .kind = KvKind::kDoubleSparse,
          .label_channels = 8};
}

// Other channels for every layer and head.
HeavyChannels channels_of(const KvShape& shape) {
  HeavyChannels channels = {shape.layers, shape.heads, shape.label_channels, {}};
  for (std::int64_t head = 0; head < shape.layers * shape.heads; ++head) {
    for (std::int64_t i = 0; i < shape.label_channels; ++i) {
      channels.channels.push_back(static_cast<std::int32_t>(2 * i + head));
    }
  }
  return channels;
}

std::unique_ptr<KvPool> make_pool(const KvShape& shape, KvLayout layout) {
  ThreadPool threads(1);
  auto pool = make_kv_pool(shape, layout, threads, channels_of(shape));
  EXPECT_TRUE(pool.ok()) << to_string(pool.error());
  return std::move(pool).value();
}

KvRows rows_of(const std::vector<float>& values) {
  return {.elements = values.data(),
          .dtype = DType::kF32,
          .rows = static_cast<std::int64_t>(values.size()) / kRowElements,
          .heads = 2,
          .head_dim = 24,
          .row_stride = kRowElements};
}

std::vector<float> random_rows(std::int64_t rows, Prng& prng) {
  std::vector<float> values(static_cast<std::size_t>(rows * kRowElements));
  for (float& value : values) value = static_cast<float>(prng.unit() * 4 - 2);
  return values;
}

float element(DType dtype, const void* elements, std::int64_t i) {
  if (dtype == DType::kF32) return static_cast<const float*>(elements)[i];
  if (dtype == DType::kF16) return to_float(static_cast<const Float16*>(elements)[i]);
  return to_float(static_cast<const BFloat16*>(elements)[i]);
}

float rounded(DType dtype, float value) {
  if (dtype == DType::kF32) return value;
  return dtype == DType::kF16 ? to_float(to_float16(value)) : to_float(to_bfloat16(value));
}

void expect_row(const KvLayerView& view, std::int64_t slot, const float* k, const float* v) {
  const std::int64_t page = slot / view.page_size;
  const std::int64_t offset = slot % view.page_size;
  for (std::int64_t head = 0; head < view.heads; ++head) {
    const std::int64_t row =
        page * view.page_stride + offset * view.token_stride + head * view.head_stride;
    for (std::int64_t i = 0; i < view.head_dim; ++i) {
      const std::int64_t from = head * view.head_dim + i;
      ASSERT_EQ(element(view.dtype, view.k, row + i), rounded(view.dtype, k[from]));
      ASSERT_EQ(element(view.dtype, view.v, row + i), rounded(view.dtype, v[from]));
    }
    const std::int64_t label = page * view.label_page_stride + offset * view.label_token_stride +
                               head * view.label_head_stride;
    for (std::int64_t i = 0; i < view.label_channels; ++i) {
      const std::int32_t channel = view.heavy_channels[head * view.label_channels + i];
      ASSERT_EQ(element(view.dtype, view.labels, label + i),
                element(view.dtype, view.k, row + channel));
    }
  }
}

TEST(DoubleSparsePool, LabelsAreKInTheHeavyChannels) {
  Prng prng(kSeed);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const KvLayout layout : kLayouts) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << kv_layout_name(layout));
      const auto pool = make_pool(small_shape(dtype), layout);
      const std::vector<std::int32_t> slots = {19, 0, 7};
      const std::vector<float> k = random_rows(3, prng);
      const std::vector<float> v = random_rows(3, prng);
      ASSERT_TRUE(pool->store(1, std::span(slots), rows_of(k), rows_of(v)).ok());
      for (std::size_t row = 0; row < slots.size(); ++row) {
        const std::size_t begin = row * kRowElements;
        expect_row(pool->layer_view(1), slots[row], k.data() + begin, v.data() + begin);
      }
      const std::vector<float> zeros(kRowElements);
      expect_row(pool->layer_view(1), 8, zeros.data(), zeros.data());
      expect_row(pool->layer_view(0), 19, zeros.data(), zeros.data());
    }
  }
}

TEST(DoubleSparsePool, PageBytesCountTheLabels) {
  const KvShape shape = small_shape(DType::kBF16);
  EXPECT_EQ(shape.page_bytes(), 3 * 5 * 2 * (24 + 24 + 8) * 2);
  const auto pool = make_pool(shape, KvLayout::kLayerFirst);
  EXPECT_EQ(pool->layer_bytes() * shape.layers, shape.page_bytes());
  EXPECT_THAT(pool->logical_view().shape, testing::ElementsAre(2, 3, 4, 5, 2, 24));
}

TEST(DoubleSparsePool, LabelsMoveWithTheirPage) {
  Prng prng(kSeed);
  const KvShape shape = small_shape(DType::kF16);
  const std::vector<std::int64_t> slots = {10, 11, 12, 13, 14};
  for (const KvLayout from_layout : kLayouts) {
    for (const KvLayout to_layout : kLayouts) {
      const auto from = make_pool(shape, from_layout);
      const auto to = make_pool(shape, to_layout);
      const std::vector<float> k = random_rows(5, prng);
      const std::vector<float> v = random_rows(5, prng);
      ASSERT_TRUE(from->store(2, std::span(slots), rows_of(k), rows_of(v)).ok());
      std::vector<std::byte> image(page_image_bytes(*from));
      std::vector<std::uint32_t> sums(3);
      copy_page_out(*from, PageId(2), {0, 3}, image, sums);
      ASSERT_EQ(copy_page_in(*to, PageId(1), {0, 3}, image, sums), std::nullopt);
      EXPECT_EQ(expected_image(*to, PageId(1)), expected_image(*from, PageId(2)));
      expect_row(to->layer_view(2), 8, k.data() + 3 * kRowElements, v.data() + 3 * kRowElements);
      image.back() ^= std::byte{1};  // of the last label
      EXPECT_EQ(copy_page_in(*to, PageId(1), {0, 3}, image, sums), 2);
    }
  }
}

TEST(DoubleSparsePool, RefusesChannelsThatAreNotThoseOfItsShape) {
  ThreadPool threads(1);
  const KvShape shape = small_shape(DType::kF32);
  const auto detail = [&](const HeavyChannels& channels) {
    const auto pool = make_kv_pool(shape, KvLayout::kLayerFirst, threads, channels);
    return pool.ok() ? "none" : pool.error().detail;
  };
  EXPECT_THAT(detail({}), HasSubstr("are of 0 layers, 0 heads, 0 channels each, the pool of 3, 2"));
  HeavyChannels channels = channels_of(shape);
  channels.channels.pop_back();
  EXPECT_THAT(detail(channels), HasSubstr("47 channels, 48 are wanted"));
  channels = channels_of(shape);
  channels.channels[15] = 24;
  EXPECT_THAT(detail(channels), HasSubstr("layer 0, head 1 must ascend within 0 ... head_dim - 1"));
  channels.channels[15] = channels.channels[14];
  EXPECT_THAT(detail(channels), HasSubstr("layer 0, head 1 must ascend"));
}

TEST(DoubleSparsePool, RefusesACodec) {
  HostPoolOptions options;
  options.pages = 8;
  options.layers = 3;
  options.device_shape = small_shape(DType::kF32);
  options.layer_bytes = encoded_layer_bytes(PageCodec::kPlain, options.device_shape);
  EXPECT_EQ(options.layer_bytes, 5 * 2 * 56 * 4);
  options.codec = PageCodec::kInt8;
  ThreadPool threads(1);
  const auto host = HostPool::create(options, threads);
  ASSERT_FALSE(host.ok());
  EXPECT_THAT(host.error().detail, HasSubstr("codec: int8 is not for double_sparse"));
}

TEST(DoubleSparsePool, RefusesWhatIsWrongByName) {
  const auto pool = make_pool(small_shape(DType::kF32), KvLayout::kLayerFirst);
  const std::vector<std::int64_t> slots = {3};
  const std::vector<float> values(kRowElements);
  const KvRows row = rows_of(values);
  EXPECT_THAT(pool->store(0, std::span(slots), row, KvRows{}).error().detail,
              HasSubstr("v has 0 rows for 1 slots"));
  EXPECT_THAT(pool->store(3, std::span(slots), row, row).error().detail, HasSubstr("layer 3"));
  const std::vector<std::int64_t> outside = {20};
  EXPECT_THAT(pool->store(0, std::span(outside), row, row).error().detail,
              HasSubstr("slots[0] = 20 is outside the pool"));
}

}  // namespace
}  // namespace stemma
