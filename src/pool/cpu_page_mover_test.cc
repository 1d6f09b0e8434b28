// CpuPageMover: tells of every layer that it has come, and of none that is right where a page is
// not; a page from anywhere goes in whole or is refused.
#include "pool/cpu_page_mover.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/float16.h"
#include "pool/page_moves_fixture.h"
#include "pool/pool_fixture.h"

namespace stemma {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Pair;

// A layer of a page is more than a call copies before it asks whether to go on.
KvShape moved_shape(std::int64_t layers = 3) {
  return {.layers = layers,
          .pages = 4,
          .page_size = 64,
          .heads = 16,
          .head_dim = 256,
          .dtype = DType::kBF16};
}

class SeenArrivals final : public LayerArrivals {
 public:
  void queued(std::int64_t) override { ADD_FAILURE() << "of devices that copy by themselves"; }
  void arrived(std::int64_t layer, bool right) override { seen.emplace_back(layer, right); }
  std::vector<std::pair<std::int64_t, bool>> seen;
};

class CpuPageMoverTest : public ::testing::Test {
 protected:
  void open(PageCodec codec = PageCodec::kPlain, std::int64_t layers = 3) {
    device_ = make_test_pool(moved_shape(layers), KvLayout::kLayerFirst);
    fill_with_numbers();
    ThreadPool threads(1);
    HostPoolOptions options;
    options.pages = 4;
    options.layers = layers;
    options.layer_bytes = device_->layer_bytes();
    options.codec = codec;
    options.device_shape = device_->shape();
    host_ = HostPool::create(options, threads).value();
    mover_ = device_->make_mover(*host_).value();
    mover_->back_up(down_, kAlways);
    ASSERT_THAT(verdicts(down_), Each(MoveVerdict::kDone));
  }
  // Finite ones, for codecs.
  void fill_with_numbers() {
    Prng prng(20261201);
    for (std::int64_t layer = 0; layer < device_->shape().layers; ++layer) {
      for (const auto& piece : static_cast<KvPool&>(*device_).layer_pieces(layer)) {
        for (const PageId page : id_range(PageId(0), 4)) {
          for (std::int64_t i = 0; i < piece.bytes; i += 2) {
            const BFloat16 value = to_bfloat16(static_cast<float>(prng.unit()));
            std::memcpy(piece.of(page) + i, &value, sizeof(value));
          }
        }
      }
    }
  }
  std::vector<PageMove> promote(HostPool::GoOn go_on = kAlways) {
    std::vector<PageMove> up = moves_back(down_, {2, 3});
    arrivals_.seen.clear();
    mover_->promote(up, go_on, arrivals_);
    return up;
  }

  std::unique_ptr<MhaPool> device_;
  std::unique_ptr<HostPool> host_;
  std::unique_ptr<PageMover> mover_;
  std::vector<PageMove> down_ = moves_between({0, 1}, {1, 0});
  SeenArrivals arrivals_;
};

TEST_F(CpuPageMoverTest, EachLayerArrivesAfterTheOneBeforeIt) {
  open();
  EXPECT_THAT(verdicts(promote()), Each(MoveVerdict::kDone));
  EXPECT_THAT(arrivals_.seen, ElementsAre(Pair(0, true), Pair(1, true), Pair(2, true)));
  EXPECT_EQ(expected_image(*device_, PageId(3)), expected_image(*device_, PageId(1)));
}

TEST_F(CpuPageMoverTest, OfPagesWithoutLayersTheFirstOneArrives) {
  open(PageCodec::kPlain, 0);
  EXPECT_THAT(verdicts(promote()), Each(MoveVerdict::kDone));
  EXPECT_THAT(arrivals_.seen, ElementsAre(Pair(0, true)));
}

TEST_F(CpuPageMoverTest, FromAWrongLayerOnNothingIsRight) {
  open();
  host_->layer_image(PageId(0), 1)[5] ^= std::byte{1};
  EXPECT_THAT(verdicts(promote()), ElementsAre(MoveVerdict::kDone, MoveVerdict::kCorrupt));
  EXPECT_THAT(arrivals_.seen, ElementsAre(Pair(0, true), Pair(1, false), Pair(2, false)));
}

TEST_F(CpuPageMoverTest, WhereAPageIsAnothersNothingIsRight) {
  open();
  host_->forget(PageId(1));
  EXPECT_THAT(verdicts(promote()), ElementsAre(MoveVerdict::kStale, MoveVerdict::kDone));
  EXPECT_THAT(arrivals_.seen, ElementsAre(Pair(0, false), Pair(1, false), Pair(2, false)));
}

// Who waits for a layer of a promotion that was given up does not wait for ever.
TEST_F(CpuPageMoverTest, WhatIsStoppedArrivesAndIsNotRight) {
  open();
  int asked = 0;
  const auto up = promote([&] { return asked++ < 2; });
  EXPECT_THAT(verdicts(up), Each(MoveVerdict::kCancelled));
  ASSERT_EQ(arrivals_.seen.size(), 3u);
  EXPECT_EQ(arrivals_.seen.front(), std::pair(std::int64_t{0}, true));
  EXPECT_EQ(arrivals_.seen.back(), std::pair(std::int64_t{2}, false));
}

TEST_F(CpuPageMoverTest, AnImageGoesInWholeOrIsRefused) {
  for (const PageCodec codec : {PageCodec::kPlain, PageCodec::kInt8}) {
    SCOPED_TRACE(page_codec_name(codec));
    open(codec);
    std::vector<std::byte> image(static_cast<std::size_t>(host_->page_bytes()));
    std::vector<std::uint32_t> sums(3);
    ASSERT_EQ(host_->read_image(PageId(1), down_[0].key, image, sums), MoveVerdict::kDone);
    promote();
    EXPECT_EQ(mover_->copy_page_in(image, sums, PageId(0)), MoveVerdict::kDone);
    EXPECT_EQ(expected_image(*device_, PageId(0)), expected_image(*device_, PageId(2)));
    for (const std::size_t layer : {0u, 1u, 2u}) {
      sums[layer] ^= 1;
      EXPECT_EQ(mover_->copy_page_in(image, sums, PageId(0)), MoveVerdict::kCorrupt) << layer;
      sums[layer] ^= 1;
    }
    for (PageMove& move : down_) move.verdict = MoveVerdict::kUntried;
  }
}

}  // namespace
}  // namespace stemma
