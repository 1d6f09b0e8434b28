// CudaCodedMover: host memory holds what the CPU would have encoded of the same pages, and they
// come back as the codec makes them; what is damaged, stale, stopped or cannot be encoded is
// reported; where pages come in groups a layer arrives when all have it.
#include "base/float16.h"
#include "pool/cuda_coded_mover.h"
#include "pool/cuda_pool_fixture.h"
#include "pool/page_codec.h"
#include "pool/page_moves_fixture.h"

namespace stemma {
namespace {

using testing::Each;
using testing::ElementsAre;
using enum MoveVerdict;

KvShape shape() {
  return {
      .layers = 3, .pages = 4, .page_size = 5, .heads = 2, .head_dim = 15, .dtype = DType::kBF16};
}

class Heard final : public LayerArrivals {
 public:
  void queued(std::int64_t) override {}
  void arrived(std::int64_t, bool right) override { rights.push_back(right); }
  std::vector<bool> rights;  // by layer
};

class CudaCodedMoverTest : public CudaPoolFixture {
 protected:
  void SetUp() override {
    CudaPoolFixture::SetUp();
    if (IsSkipped()) return;
    make_pools(shape(), KvLayout::kLayerFirst);
    for (std::int64_t layer = 0; layer < shape().layers; ++layer) {
      for (const auto& piece : twin_->layer_pieces(layer)) fill_with_numbers(piece);
    }
    upload_all();
    host_ = make_coded_host();
  }
  void TearDown() override {
    mover_.reset();
    CudaPoolFixture::TearDown();
  }

  // `staged_bytes` below a page's: one page at a time.
  void open(std::int64_t staged_bytes = CudaCodedMover::kStagedBytes) {
    mover_.reset();
    mover_ = CudaCodedMover::open(*cuda_, *host_, staged_bytes).value();
  }
  static std::unique_ptr<HostPool> make_coded_host() {
    ThreadPool threads(1);
    HostPoolOptions options;
    options.pages = 4;
    options.layers = shape().layers;
    options.layer_bytes = encoded_layer_bytes(PageCodec::kPlain, shape());
    options.codec = PageCodec::kInt8;
    options.device_shape = shape();
    return HostPool::create(options, threads).value();
  }
  void fill_with_numbers(const PagePiece<std::byte>& piece) {
    for (const PageId page : id_range(PageId(0), shape().pages)) {
      for (std::int64_t i = 0; i < piece.bytes; i += 2) {
        const BFloat16 value = to_bfloat16(static_cast<float>(prng_.unit() * 16 - 8));
        std::memcpy(piece.of(page) + i, &value, sizeof(value));
      }
    }
  }
  void upload_all() {
    for (const PageId page : id_range(PageId(0), shape().pages)) {
      upload_page(page, twin_image(page));
    }
  }
  // Device page i is host page 3 − i.
  static std::vector<PageMove> all_down() {
    std::vector<PageMove> moves;
    for (std::int32_t page = 0; page < 4; ++page) {
      moves.push_back({PageId(page), PageId(3 - page), key_of(page)});
    }
    return moves;
  }
  // Host page 3 − i is device page (i + 1) % 4.
  static std::vector<PageMove> all_up() {
    std::vector<PageMove> moves;
    for (std::int32_t page = 0; page < 4; ++page) {
      moves.push_back({PageId(3 - page), PageId((page + 1) % 4), key_of(page)});
    }
    return moves;
  }
  void back_up_all() {
    std::vector<PageMove> down = all_down();
    mover_->back_up(down, kAlways);
    ASSERT_THAT(verdicts(down), Each(kDone));
  }
  // As the codec makes a page of the twin.
  std::vector<std::byte> coded_and_back(PageId page) const {
    std::vector<std::byte> image;
    for (std::int64_t layer = 0; layer < shape().layers; ++layer) {
      std::vector<std::byte> plain = expected_layer(*twin_, page, layer);
      std::vector<std::byte> coded(static_cast<std::size_t>(host_->layer_bytes()));
      EXPECT_TRUE(try_encode_layer(PageCodec::kInt8, shape(), plain, coded));
      decode_layer(PageCodec::kInt8, shape(), coded, plain);
      image.insert(image.end(), plain.begin(), plain.end());
    }
    return image;
  }

  std::unique_ptr<HostPool> host_;
  std::unique_ptr<CudaCodedMover> mover_;
};

TEST_F(CudaCodedMoverTest, HostMemoryHoldsWhatTheCpuEncodes) {
  open();
  back_up_all();
  const auto other = make_coded_host();
  std::vector<PageMove> down = all_down();
  other->backup(*twin_, down, kAlways);
  for (const PageMove& move : down) {
    EXPECT_TRUE(host_->holds(move.to, move.key));
    EXPECT_TRUE(std::ranges::equal(host_->layer_sums(move.to), other->layer_sums(move.to)));
    for (std::int64_t layer = 0; layer < shape().layers; ++layer) {
      EXPECT_TRUE(std::ranges::equal(host_->layer_image(move.to, layer),
                                     other->layer_image(move.to, layer)));
    }
  }
}

TEST_F(CudaCodedMoverTest, PagesComeBackAsTheCodecMakesThemAllAtOnceOrOneByOne) {
  for (const std::int64_t staged_bytes : {CudaCodedMover::kStagedBytes, std::int64_t{1}}) {
    open(staged_bytes);
    upload_all();
    back_up_all();
    std::vector<PageMove> up = all_up();
    Heard heard;
    mover_->promote(up, kAlways, heard);
    EXPECT_THAT(verdicts(up), Each(kDone));
    EXPECT_EQ(heard.rights, std::vector<bool>(3, true));
    for (std::int32_t page = 0; page < 4; ++page) {
      EXPECT_TRUE(cuda_image(up[static_cast<std::size_t>(page)].to) ==
                  coded_and_back(PageId(page)));
    }
  }
}

TEST_F(CudaCodedMoverTest, WhatIsDamagedOrStaleIsReportedAndTheRestComes) {
  for (const std::int64_t staged_bytes : {CudaCodedMover::kStagedBytes, std::int64_t{1}}) {
    open(staged_bytes);
    upload_all();
    back_up_all();
    host_->layer_image(PageId(3), 1)[4] ^= std::byte{2};  // of the first
    host_->forget(PageId(1));                             // of the third
    std::vector<PageMove> up = all_up();
    Heard heard;
    mover_->promote(up, kAlways, heard);
    EXPECT_THAT(verdicts(up), ElementsAre(kCorrupt, kDone, kStale, kDone));
    EXPECT_EQ(heard.rights, std::vector<bool>(3, false));
    EXPECT_TRUE(cuda_image(up[3].to) == coded_and_back(PageId(3)));
  }
}

// One page of four holds what is no number: it stays behind, the others go.
TEST_F(CudaCodedMoverTest, WhatCannotBeEncodedIsNotKept) {
  const auto nan = std::uint16_t{0x7FC1};
  std::memcpy(twin_->layer_pieces(2).begin()->of(PageId(1)), &nan, sizeof(nan));
  upload_all();
  open();
  std::vector<PageMove> down = all_down();
  mover_->back_up(down, kAlways);
  EXPECT_THAT(verdicts(down), ElementsAre(kDone, kCancelled, kDone, kDone));
  EXPECT_FALSE(host_->holds(down[1].to, down[1].key));
}

TEST_F(CudaCodedMoverTest, WhatIsStoppedKeepsAndBringsNothingMore) {
  open(1);
  std::vector<PageMove> down = all_down();
  int asked = 0;
  mover_->back_up(down, [&] { return ++asked <= 2; });
  EXPECT_THAT(verdicts(down), ElementsAre(kDone, kDone, kCancelled, kCancelled));
  EXPECT_FALSE(host_->holds(down[2].to, down[2].key));
  back_up_all();
  std::vector<PageMove> up = all_up();
  Heard heard;
  mover_->promote(
      up, [] { return false; }, heard);
  EXPECT_THAT(verdicts(up), Each(kCancelled));
  EXPECT_EQ(heard.rights, std::vector<bool>(3, false));
  EXPECT_TRUE(cuda_image(PageId(1)) == twin_image(PageId(1)));
}

TEST_F(CudaCodedMoverTest, AnEncodedImageGoesToAPageIfItsSumsAreRight) {
  open();
  back_up_all();
  std::vector<std::byte> image(static_cast<std::size_t>(host_->page_bytes()));
  std::vector<std::uint32_t> sums(3);
  ASSERT_EQ(host_->read_image(PageId(3), key_of(0), image, sums), kDone);
  EXPECT_EQ(mover_->copy_page_in(image, sums, PageId(2)), kDone);
  EXPECT_TRUE(cuda_image(PageId(2)) == coded_and_back(PageId(0)));
  image.back() ^= std::byte{1};
  EXPECT_EQ(mover_->copy_page_in(image, sums, PageId(2)), kCorrupt);
}

}  // namespace
}  // namespace stemma
