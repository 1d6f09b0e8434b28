// Kernels that copy pages: every byte and every sum is what the host's copies make of the same
// pages (page_image), between all layouts, of every kind of pool, whatever its pieces are.
#include "pool/page_copy_cuda.h"

#include <array>

#include "base/crc32c.h"
#include "pool/cuda_pool_fixture.h"
#include "pool/sum_tables.h"

namespace stemma {
namespace {

constexpr std::byte kUntouched{0x5A};

// Pieces that are whole words, and such that are not; labels; scales; more than a team takes at
// once.
std::vector<KvShape> shapes() {
  const KvShape plain = {
      .layers = 3, .pages = 5, .page_size = 4, .heads = 2, .head_dim = 24, .dtype = DType::kBF16};
  KvShape odd = plain;
  odd.page_size = 3;
  odd.head_dim = 19;
  KvShape one = plain;
  one.page_size = 1;
  one.layers = 1;
  KvShape scaled = plain;
  scaled.dtype = DType::kInt8;
  KvShape odd_scaled = odd;
  odd_scaled.dtype = DType::kFp8E4M3;
  KvShape latent = plain;
  latent.kind = KvKind::kMla;
  latent.heads = 1;
  latent.latent_dim = 20;
  KvShape labelled = plain;
  labelled.kind = KvKind::kDoubleSparse;
  labelled.label_channels = 8;
  KvShape large = plain;
  large.page_size = 64;
  large.head_dim = 72;
  large.layers = 2;
  KvShape shared = large;  // by teams
  shared.page_size = 255;
  shared.head_dim = 77;
  return {plain, odd, one, scaled, odd_scaled, latent, labelled, large, shared};
}

class PageCopies : public CudaPoolFixture {
 protected:
  void SetUp() override {
    CudaPoolFixture::SetUp();
    if (IsSkipped()) return;
    tables_ = upload(make_sum_tables());
  }
  void TearDown() override {
    images_ = {};
    sums_ = {};
    pages_ = {};
    tables_ = {};
    CudaPoolFixture::TearDown();
  }

  // Images of all pages of the pool in pinned memory, every byte kUntouched.
  PageCopy copy_of(KvLayout image_layout, const std::vector<PagePair>& pairs, LayerRange layers) {
    PageCopy copy;
    for (const auto& piece : cuda_->layer_pieces(0)) {
      PoolPiece& to = copy.pieces[copy.piece_count];
      to = {piece.page0, 0, piece.page_stride_bytes, piece.bytes};
      if (cuda_->shape().layers > 1) {
        const auto second = cuda_->layer_pieces(1);
        to.layer_stride_bytes = second.begin()[copy.piece_count].page0 - piece.page0;
      }
      ++copy.piece_count;
    }
    const std::int64_t pages = cuda_->shape().pages;
    const std::int64_t all_layers = cuda_->shape().layers;
    const std::int64_t layer_bytes = cuda_->layer_bytes();
    const auto bytes = static_cast<std::size_t>(pages * all_layers * layer_bytes);
    images_ = pinned_bytes(bytes);
    std::fill_n(images_.bytes(), bytes, kUntouched);
    sums_ =
        pinned_bytes(static_cast<std::size_t>(sum_words(std::ssize(pairs) * layers.layers()) * 4));
    pages_ = upload(pairs);
    const bool page_first = image_layout == KvLayout::kPageFirst;
    copy.images = {images_.bytes(), page_first ? layer_bytes : pages * layer_bytes,
                   page_first ? all_layers * layer_bytes : layer_bytes};
    copy.pages = pages_.as<PagePair>();
    copy.count = std::ssize(pairs);
    copy.first_layer = layers.first;
    copy.layers = layers.layers();
    copy.sums = sums_.as<std::uint32_t>();
    copy.tables = tables_.as<std::uint32_t>();
    copy.zeros_sum = sum_of_zeros(static_cast<std::size_t>(layer_bytes));
    return copy;
  }

  std::span<std::byte> image(const PageCopy& copy, std::int64_t page, std::int64_t layer) const {
    return {copy.images.begin + page * copy.images.page_stride_bytes +
                layer * copy.images.layer_stride_bytes,
            static_cast<std::size_t>(cuda_->layer_bytes())};
  }

  void expect_sums(const PageCopy& copy, const std::vector<PagePair>& pairs, const KvPool& pool) {
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      for (std::int64_t layer = 0; layer < copy.layers; ++layer) {
        const auto bytes = expected_layer(pool, PageId(pairs[i].pool), copy.first_layer + layer);
        EXPECT_EQ(copy.sums[static_cast<std::int64_t>(i) * copy.layers + layer], crc32c(bytes));
      }
    }
  }

  // Every image is the page's that it was paired with, or as it was.
  void check_out(KvLayout image_layout, LayerRange layers) {
    const std::vector<PagePair> pairs = {{3, 1}, {0, 4}, {4, 0}};
    const PageCopy copy = copy_of(image_layout, pairs, layers);
    ASSERT_TRUE(copy_pages_out(stream(), copy).ok());
    ASSERT_TRUE(stream().synchronize().ok());
    gather_sums(copy);
    expect_sums(copy, pairs, *twin_);
    for (std::int64_t page = 0; page < cuda_->shape().pages; ++page) {
      const auto pair = std::ranges::find(pairs, page, [](PagePair p) { return p.image; });
      for (std::int64_t layer = 0; layer < cuda_->shape().layers; ++layer) {
        const bool copied = pair != pairs.end() && layers.first <= layer && layer < layers.end;
        const auto expected = copied
                                  ? expected_layer(*twin_, PageId(pair->pool), layer)
                                  : std::vector<std::byte>(
                                        static_cast<std::size_t>(cuda_->layer_bytes()), kUntouched);
        EXPECT_TRUE(std::ranges::equal(image(copy, page, layer), expected))
            << "page " << page << ", layer " << layer;
      }
    }
  }

  // The same of the pool's pages, the twin being written by the host.
  void check_in(KvLayout image_layout, LayerRange layers) {
    const std::vector<PagePair> pairs = {{1, 3}, {4, 0}, {2, 4}};
    const PageCopy copy = copy_of(image_layout, pairs, layers);
    for (std::size_t i = 0; i < images_.size_bytes(); ++i) {
      images_.bytes()[i] = static_cast<std::byte>(prng_());
    }
    ASSERT_TRUE(copy_pages_in(stream(), copy).ok());
    ASSERT_TRUE(stream().synchronize().ok());
    gather_sums(copy);
    for (const PagePair& pair : pairs) {
      for (std::int64_t layer = layers.first; layer < layers.end; ++layer) {
        const auto bytes = image(copy, pair.image, layer);
        const std::uint32_t sum = crc32c(bytes);
        ASSERT_FALSE(copy_page_in(*twin_, PageId(pair.pool), {layer, layer + 1}, bytes, {&sum, 1}));
      }
    }
    expect_sums(copy, pairs, *twin_);
    expect_equal_pools();
  }

  void expect_equal_pools() {
    for (const PageId page : id_range(PageId(0), cuda_->shape().pages)) {
      EXPECT_TRUE(cuda_image(page) == twin_image(page)) << "page " << page.value();
    }
  }

  CudaMemory tables_;
  CudaMemory pages_;
  PinnedMemory images_;
  PinnedMemory sums_;
};

TEST_F(PageCopies, GoOutToImagesOfEveryLayout) {
  for (const KvShape& shape : shapes()) {
    for (const KvLayout layout : kAllLayouts) {
      make_pools(shape, layout);
      for (const KvLayout images : kAllLayouts) check_out(images, {0, shape.layers});
    }
  }
}

TEST_F(PageCopies, ComeInFromImagesOfEveryLayout) {
  for (const KvShape& shape : shapes()) {
    for (const KvLayout layout : kAllLayouts) {
      make_pools(shape, layout);
      for (const KvLayout images : kAllLayouts) check_in(images, {0, shape.layers});
    }
  }
}

TEST_F(PageCopies, SomeLayersMoveAndTheOthersStay) {
  make_pools(shapes().front(), KvLayout::kLayerFirst);
  check_out(KvLayout::kPageFirst, {1, 2});
  check_in(KvLayout::kPageFirst, {1, 3});
  check_in(KvLayout::kLayerFirst, {2, 2});
}

TEST_F(PageCopies, AreSummedWhereTheyLie) {
  for (const KvShape& shape : shapes()) {
    make_pools(shape, KvLayout::kLayerFirst);
    const std::vector<PagePair> pairs = {{2, 0}, {4, 0}};
    const PageCopy copy = copy_of(KvLayout::kPageFirst, pairs, {0, shape.layers});
    ASSERT_TRUE(sum_pages(stream(), copy).ok());
    ASSERT_TRUE(stream().synchronize().ok());
    gather_sums(copy);
    expect_sums(copy, pairs, *twin_);
  }
}

}  // namespace
}  // namespace stemma
