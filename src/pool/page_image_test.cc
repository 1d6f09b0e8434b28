// Page images: a page comes out of one pool and goes into another, of either layout, byte for byte
// and nowhere else, in any range of layers, with the sum of each layer; a wrong byte is found in
// its layer.
#include "pool/page_image.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "base/crc32c.h"
#include "pool/pool_fixture.h"

namespace stemma {
namespace {

constexpr std::uint64_t kSeed = 20260302;
constexpr KvLayout kLayouts[] = {KvLayout::kLayerFirst, KvLayout::kPageFirst};

// Pages of 3 tokens have pieces of no whole line; those of 16 have whole lines.
KvShape shape_of(std::int64_t page_size) {
  return {.layers = 3,
          .pages = 4,
          .page_size = page_size,
          .heads = 2,
          .head_dim = 20,
          .dtype = DType::kBF16};
}

struct Image {
  explicit Image(const KvPool& pool)
      : bytes(page_image_bytes(pool)), sums(static_cast<std::size_t>(pool.shape().layers)) {}
  std::vector<std::byte> bytes;
  std::vector<std::uint32_t> sums;
};

TEST(PageImage, GoesFromAnyPoolToAnyOther) {
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  for (const std::int64_t page_size : {1, 3, 16}) {
    for (const KvLayout from_layout : kLayouts) {
      for (const KvLayout to_layout : kLayouts) {
        const auto from = make_test_pool(shape_of(page_size), from_layout);
        const auto to = make_test_pool(shape_of(page_size), to_layout);
        fill_randomly(*from, prng);
        fill_randomly(*to, prng);
        Image image(*from);
        copy_page_out(*from, PageId(1), {0, 3}, image.bytes, image.sums);
        EXPECT_EQ(image.bytes, expected_image(*from, PageId(1)));
        const std::vector<std::byte> before = expected_image(*to, PageId(1));
        const std::vector<std::byte> after = expected_image(*to, PageId(3));
        EXPECT_EQ(copy_page_in(*to, PageId(2), {0, 3}, image.bytes, image.sums), std::nullopt);
        EXPECT_EQ(expected_image(*to, PageId(2)), image.bytes);
        EXPECT_EQ(expected_image(*to, PageId(1)), before);
        EXPECT_EQ(expected_image(*to, PageId(3)), after);
      }
    }
  }
}

TEST(PageImage, LayersMoveAlone) {
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  const auto from = make_test_pool(shape_of(16), KvLayout::kLayerFirst);
  const auto to = make_test_pool(shape_of(16), KvLayout::kPageFirst);
  fill_randomly(*from, prng);
  Image whole(*from);
  copy_page_out(*from, PageId(0), {0, 3}, whole.bytes, whole.sums);
  const auto layer_bytes = static_cast<std::size_t>(from->layer_bytes());
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    const std::vector<std::byte> expected = expected_layer(*from, PageId(0), layer);
    std::vector<std::byte> image(layer_bytes);
    std::vector<std::uint32_t> sums(1);
    copy_page_out(*from, PageId(0), {layer, layer + 1}, image, sums);
    EXPECT_EQ(image, expected);
    EXPECT_EQ(sums[0], crc32c(expected));
    EXPECT_EQ(sums[0], whole.sums[static_cast<std::size_t>(layer)]);
    EXPECT_EQ(copy_page_in(*to, PageId(3), {layer, layer + 1}, image, sums), std::nullopt);
    EXPECT_EQ(expected_layer(*to, PageId(3), layer), expected);
  }
  EXPECT_EQ(expected_image(*to, PageId(3)), whole.bytes);
}

TEST(PageImage, AWrongBitIsFoundInItsLayer) {
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  const auto pool = make_test_pool(shape_of(16), KvLayout::kLayerFirst);
  fill_randomly(*pool, prng);
  Image image(*pool);
  copy_page_out(*pool, PageId(0), {0, 3}, image.bytes, image.sums);
  const std::int64_t layer_bits = 8 * pool->layer_bytes();
  for (int trial = 0; trial < 1000; ++trial) {
    const std::int64_t bit = prng.below(3 * layer_bits);
    std::byte& byte = image.bytes[static_cast<std::size_t>(bit / 8)];
    byte ^= static_cast<std::byte>(1 << (bit % 8));
    ASSERT_EQ(copy_page_in(*pool, PageId(1), {0, 3}, image.bytes, image.sums), bit / layer_bits);
    byte ^= static_cast<std::byte>(1 << (bit % 8));
  }
  ASSERT_EQ(copy_page_in(*pool, PageId(1), {0, 3}, image.bytes, image.sums), std::nullopt);
}

TEST(PageImage, LayersBehindAWrongOneStayAsTheyWere) {
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  const auto pool = make_test_pool(shape_of(3), KvLayout::kPageFirst);
  fill_randomly(*pool, prng);
  Image image(*pool);
  copy_page_out(*pool, PageId(0), {0, 3}, image.bytes, image.sums);
  image.sums[1] ^= 1;
  const std::vector<std::byte> last = expected_layer(*pool, PageId(2), 2);
  EXPECT_EQ(copy_page_in(*pool, PageId(2), {0, 3}, image.bytes, image.sums), 1);
  EXPECT_EQ(expected_layer(*pool, PageId(2), 0), expected_layer(*pool, PageId(0), 0));
  EXPECT_EQ(expected_layer(*pool, PageId(2), 2), last);
}

TEST(PageImageDeathTest, SizesAndPagesAreChecked) {
  const auto pool = make_test_pool(shape_of(3), KvLayout::kPageFirst);
  Image image(*pool);
  const std::span<std::byte> bytes(image.bytes);
  EXPECT_DEATH(copy_page_out(*pool, PageId(4), {0, 3}, bytes, image.sums), "a page of the pool");
  EXPECT_DEATH(copy_page_out(*pool, PageId(0), {0, 4}, bytes, image.sums), "layers.end");
  EXPECT_DEATH(copy_page_out(*pool, PageId(0), {0, 2}, bytes, image.sums), "image.size");
}

}  // namespace
}  // namespace stemma
