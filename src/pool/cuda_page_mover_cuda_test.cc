// CudaPageMover: pages go from a GPU to host memory and come back byte for byte, by kernels and by
// copy engines; a flipped bit, a stale key, a call that is stopped and a device that fails are
// reported, and nothing is queued behind a call that has returned. Faults: rows 3 (host) and 13
// (docs/FAULTS.md).
#include <thread>

#include "base/crc32c.h"
#include "pool/cuda_page_mover.h"
#include "pool/cuda_pool_fixture.h"
#include "pool/page_moves_fixture.h"

namespace stemma {
namespace {

using testing::Each;
using testing::ElementsAre;
using enum MoveVerdict;

KvShape small_shape() {
  return {
      .layers = 3, .pages = 6, .page_size = 4, .heads = 2, .head_dim = 24, .dtype = DType::kBF16};
}

// Pieces of 256 KiB, which copy engines move.
KvShape large_shape() {
  return {
      .layers = 2, .pages = 6, .page_size = 64, .heads = 8, .head_dim = 256, .dtype = DType::kBF16};
}

// What a promotion says as it goes.
class Heard final : public LayerArrivals {
 public:
  void queued(std::int64_t layer) override {
    EXPECT_EQ(layer, queued_layers++);
    on_queued(layer);
  }
  void arrived(std::int64_t layer, bool right) override {
    EXPECT_EQ(layer, std::ssize(rights));
    rights.push_back(right);
    on_arrived(layer);
  }

  std::int64_t queued_layers = 0;
  std::vector<bool> rights;  // by layer
  std::function<void(std::int64_t)> on_queued = [](std::int64_t) {};
  std::function<void(std::int64_t)> on_arrived = [](std::int64_t) {};
};

class CudaPageMoverTest : public CudaPoolFixture {
 protected:
  void TearDown() override {
    mover_.reset();
    host_.reset();
    CudaPoolFixture::TearDown();
  }

  void make(const KvShape& shape, KvLayout device_layout = KvLayout::kLayerFirst,
            KvLayout host_layout = KvLayout::kPageFirst,
            const CudaPageMover::Options& options = {}) {
    mover_.reset();
    make_pools(shape, device_layout);
    host_ = make_host(shape.pages, host_layout);
    auto mover = CudaPageMover::open(*cuda_, *host_, options);
    ASSERT_TRUE(mover.ok()) << mover.error().detail;
    mover_ = std::move(mover).value();
  }
  // Pages 0 … 5 of the device are host pages 5 … 0.
  void back_up_all() {
    mover_->back_up(down_, kAlways);
    ASSERT_THAT(verdicts(down_), Each(kDone));
  }
  std::vector<PageMove> all_up() { return moves_back(down_, {2, 3, 4, 5, 0, 1}); }
  void promote(std::vector<PageMove>& up) { mover_->promote(up, kAlways, heard_); }

  std::vector<std::byte> host_image(const PageMove& move) {
    std::vector<std::byte> image;
    for (std::int64_t layer = 0; layer < host_->layers(); ++layer) {
      const auto bytes = host_->layer_image(move.to, layer);
      image.insert(image.end(), bytes.begin(), bytes.end());
    }
    return image;
  }
  CudaStream another_stream() { return device().make_stream().value(); }

  std::vector<PageMove> down_ = moves_between({0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0});
  std::unique_ptr<HostPool> host_;
  std::unique_ptr<CudaPageMover> mover_;
  Heard heard_;
};

// Pinned memory may have another address for kernels than for the host.
class MoverOutOfReach : public CudaPageMoverTest {
 protected:
  simt::Machine::Options machine_options() const override {
    simt::Machine::Options options = CudaPageMoverTest::machine_options();
    options.kernels_reach_pinned = false;
    return options;
  }
};

TEST_F(MoverOutOfReach, PagesGoAndComeBackByCopyEngines) {
  make(small_shape());
  back_up_all();
  for (const PageMove& move : down_) EXPECT_TRUE(host_image(move) == twin_image(move.from));
  std::vector<PageMove> up = all_up();
  promote(up);
  EXPECT_THAT(verdicts(up), Each(kDone));
  for (std::size_t i = 0; i < up.size(); ++i) {
    EXPECT_TRUE(cuda_image(up[i].to) == twin_image(down_[i].from));
  }
}

TEST_F(CudaPageMoverTest, PagesGoAndComeBackBetweenAllLayoutsBothWays) {
  for (const KvShape& shape : {small_shape(), large_shape()}) {
    for (const KvLayout device : kAllLayouts) {
      for (const KvLayout host : kAllLayouts) {
        make(shape, device, host);
        std::vector<PageMove> down = down_;
        mover_->back_up(down, kAlways);
        ASSERT_THAT(verdicts(down), Each(kDone));
        for (const PageMove& move : down) {
          EXPECT_TRUE(host_->holds(move.to, move.key));
          EXPECT_TRUE(host_image(move) == twin_image(move.from));
        }
        std::vector<PageMove> up = moves_back(down, {2, 3, 4, 5, 0, 1});
        Heard heard;
        mover_->promote(up, kAlways, heard);
        EXPECT_THAT(verdicts(up), Each(kDone));
        EXPECT_EQ(heard.rights, std::vector<bool>(static_cast<std::size_t>(shape.layers), true));
        for (std::size_t i = 0; i < up.size(); ++i) {
          EXPECT_TRUE(cuda_image(up[i].to) == twin_image(down[i].from));
        }
      }
    }
  }
}

TEST_F(CudaPageMoverTest, TheHostFindsItsOwnSumsInWhatCameDown) {
  make(small_shape());
  back_up_all();
  std::vector<std::byte> image(page_image_bytes(*twin_));
  std::vector<std::uint32_t> sums(3);
  ASSERT_EQ(host_->read_image(down_[1].to, down_[1].key, image, sums), kDone);
  EXPECT_TRUE(image == twin_image(PageId(1)));
}

TEST_F(CudaPageMoverTest, ABackupIsOfWhatTheComputeStreamHasQueued) {
  make(small_shape());
  const std::vector<std::byte> image = drawn_image();
  const PinnedMemory pinned = pinned_bytes(image.size());
  std::memcpy(pinned.bytes(), image.data(), image.size());
  CudaStream computing = another_stream();
  std::byte* from = pinned.bytes();
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    for (const auto& piece : cuda_->layer_pieces(layer)) {
      const auto bytes = static_cast<std::size_t>(piece.bytes);
      ASSERT_TRUE(computing.copy_in(piece.of(PageId(3)), from, bytes).ok());
      from += bytes;
    }
  }
  ASSERT_TRUE(cuda_->record_use(computing).ok());
  back_up_all();
  EXPECT_TRUE(host_image(down_[3]) == image);
  ASSERT_TRUE(computing.synchronize().ok());
}

// Row 3: a bit that flips in the host pool is never served.
TEST_F(CudaPageMoverTest, AFlippedBitInHostMemoryIsReported) {
  make(small_shape());
  back_up_all();
  for (int flip = 0; flip < 60; ++flip) {
    const PageMove& victim = down_[static_cast<std::size_t>(prng_.below(6))];
    const std::int64_t bit = prng_.below(8 * cuda_->layer_bytes());
    std::byte& byte =
        host_->layer_image(victim.to, prng_.below(3))[static_cast<std::size_t>(bit / 8)];
    byte ^= static_cast<std::byte>(1 << (bit % 8));
    std::vector<PageMove> up = {{victim.to, PageId(0), victim.key}};
    Heard heard;
    mover_->promote(up, kAlways, heard);
    ASSERT_THAT(verdicts(up), ElementsAre(kCorrupt)) << "bit " << bit;
    byte ^= static_cast<std::byte>(1 << (bit % 8));
  }
}

TEST_F(CudaPageMoverTest, AFlippedBitSpoilsItsPageFromItsLayerOn) {
  for (const KvShape& shape : {small_shape(), large_shape()}) {
    make(shape);
    down_ = moves_between({0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0});
    back_up_all();
    host_->layer_image(down_[4].to, 1)[7] ^= std::byte{4};
    std::vector<PageMove> up = all_up();
    Heard heard;
    mover_->promote(up, kAlways, heard);
    EXPECT_THAT(verdicts(up), ElementsAre(kDone, kDone, kDone, kDone, kCorrupt, kDone));
    EXPECT_TRUE(heard.rights[0]);
    EXPECT_THAT(std::vector<bool>(heard.rights.begin() + 1, heard.rights.end()), Each(false));
    EXPECT_TRUE(cuda_image(up[5].to) == twin_image(PageId(5)));
  }
}

TEST_F(CudaPageMoverTest, APageAnswersForItsKeyAlone) {
  make(small_shape());
  back_up_all();
  std::vector<PageMove> up = all_up();
  host_->forget(up[1].from);
  up[2].key = key_of(77);
  const auto before = cuda_image(up[2].to);
  promote(up);
  EXPECT_THAT(verdicts(up), ElementsAre(kDone, kStale, kStale, kDone, kDone, kDone));
  EXPECT_THAT(heard_.rights, Each(false));
  EXPECT_TRUE(cuda_image(up[2].to) == before);
  EXPECT_TRUE(cuda_image(up[3].to) == twin_image(PageId(3)));
}

// A runner that does not wait for the bytes, only for the events.
TEST_F(CudaPageMoverTest, WorkThatIsQueuedBehindALayerFindsIt) {
  make(small_shape());
  back_up_all();
  upload_page(PageId(2), drawn_image());
  std::vector<PageMove> up = {{down_[0].to, PageId(2), down_[0].key}};
  CudaStream computing = another_stream();
  std::vector<std::vector<std::byte>> layers;
  heard_.on_queued = [&](std::int64_t layer) {
    ASSERT_TRUE(mover_->try_wait_on(computing, layer));
    layers.push_back(download_layers(computing, PageId(2), {layer, layer + 1}));
  };
  promote(up);
  EXPECT_THAT(verdicts(up), ElementsAre(kDone));
  ASSERT_EQ(layers.size(), 3u);
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(layers[static_cast<std::size_t>(layer)], expected_layer(*twin_, PageId(0), layer));
  }
}

// On a machine of several GPUs the default stream of a thread is that of the GPU it has named last.
TEST_F(CudaPageMoverTest, AThreadThatNamesNoGpuMayLetItsStreamWaitForALayer) {
  make(small_shape());
  back_up_all();
  upload_page(PageId(2), drawn_image());
  std::vector<PageMove> up = {{down_[0].to, PageId(2), down_[0].key}};
  CudaStream computing = another_stream();
  heard_.on_queued = [&](std::int64_t layer) {
    std::thread([&] { EXPECT_TRUE(mover_->try_wait_on(computing, layer)); }).join();
  };
  promote(up);
  EXPECT_THAT(verdicts(up), ElementsAre(kDone));
  EXPECT_EQ(download_layers(computing, PageId(2), {0, 3}), twin_image(PageId(0)));
}

#ifdef STEMMA_SIMT
class UnwatchedMover : public CudaPageMoverTest {
 protected:
  simt::Machine::Options machine_options() const override {
    simt::Machine::Options options = CudaPageMoverTest::machine_options();
    options.watch = simt::Watch::kNever;
    return options;
  }
};

// So that the test above means something: without the event, something older is found.
TEST_F(UnwatchedMover, WorkThatDoesNotWaitFindsSomethingOlder) {
  make(small_shape());
  back_up_all();
  bool older = false;
  for (int round = 0; round < 50 && !older; ++round) {
    upload_page(PageId(2), drawn_image());
    std::vector<PageMove> up = {{down_[0].to, PageId(2), down_[0].key}};
    CudaStream computing = another_stream();
    Heard heard;
    heard.on_queued = [&](std::int64_t layer) {
      const auto found = download_layers(computing, PageId(2), {layer, layer + 1});
      older = older || found != expected_layer(*twin_, PageId(0), layer);
    };
    mover_->promote(up, kAlways, heard);
  }
  EXPECT_TRUE(older);
}
#endif

// Of a long promotion four layers are on their way at a time, and sums of layers that have arrived
// make room for others.
TEST_F(CudaPageMoverTest, NoMoreThanItsLimitIsOnItsWay) {
  KvShape shape = small_shape();
  shape.layers = 12;
  make(shape, KvLayout::kPageFirst, KvLayout::kLayerFirst, {.backup_bytes = 1, .promote_bytes = 1});
  back_up_all();
  std::vector<PageMove> up = all_up();
  heard_.on_arrived = [&](std::int64_t layer) {
    EXPECT_EQ(heard_.queued_layers, std::min<std::int64_t>(layer + 4, 12));
  };
  promote(up);
  EXPECT_THAT(verdicts(up), Each(kDone));
  for (std::size_t i = 0; i < up.size(); ++i) {
    EXPECT_TRUE(cuda_image(up[i].to) == twin_image(down_[i].from));
  }
}

TEST_F(CudaPageMoverTest, CopiesMayTakeTurnsOnTwoStreams) {
  KvShape shape = small_shape();
  shape.layers = 12;
  for (const std::int64_t limit : {1, 1 << 20}) {
    make(shape, KvLayout::kLayerFirst, KvLayout::kPageFirst,
         {.backup_bytes = limit, .promote_bytes = limit, .streams = 2});
    std::vector<PageMove> down = down_;
    mover_->back_up(down, kAlways);
    ASSERT_THAT(verdicts(down), Each(kDone));
    for (const PageMove& move : down) EXPECT_TRUE(host_image(move) == twin_image(move.from));
    std::vector<PageMove> up = moves_back(down, {2, 3, 4, 5, 0, 1});
    Heard heard;
    mover_->promote(up, kAlways, heard);
    EXPECT_THAT(verdicts(up), Each(kDone));
    EXPECT_EQ(heard.rights, std::vector<bool>(12, true));
    for (std::size_t i = 0; i < up.size(); ++i) {
      EXPECT_TRUE(cuda_image(up[i].to) == twin_image(down[i].from));
    }
  }
}

// Row 13: whoever owns the pages next finds nobody else writing to them.
TEST_F(CudaPageMoverTest, APromotionThatIsStoppedHasEndedWhenItReturns) {
  KvShape shape = small_shape();
  shape.layers = 12;
  for (const std::int64_t limit : {1, 1 << 20}) {
    make(shape, KvLayout::kLayerFirst, KvLayout::kPageFirst, {.promote_bytes = limit});
    down_ = moves_between({0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0});
    back_up_all();
    std::vector<PageMove> up = all_up();
    Heard heard;
    int asked = 0;
    mover_->promote(
        up, [&] { return ++asked <= 6; }, heard);
    EXPECT_THAT(verdicts(up), Each(kCancelled));
    EXPECT_EQ(heard.queued_layers, 6);
    std::vector<bool> rights(12, false);
    std::fill_n(rights.begin(), 6, true);
    EXPECT_EQ(heard.rights, rights);
    const std::vector<std::byte> image = drawn_image();
    upload_page(up[0].to, image);
    EXPECT_TRUE(cuda_image(up[0].to) == image);
  }
}

TEST_F(CudaPageMoverTest, ABackupThatIsStoppedSealsWhatIsWholeAndNothingElse) {
  make(small_shape(), KvLayout::kLayerFirst, KvLayout::kPageFirst,
       {.backup_bytes = 2 * small_shape().page_bytes()});
  int asked = 0;
  mover_->back_up(down_, [&] { return ++asked <= 2; });
  EXPECT_THAT(verdicts(down_), ElementsAre(kDone, kDone, kDone, kDone, kCancelled, kCancelled));
  EXPECT_TRUE(host_image(down_[3]) == twin_image(PageId(3)));
  EXPECT_TRUE(host_->holds(down_[3].to, down_[3].key));
  EXPECT_FALSE(host_->holds(down_[4].to, down_[4].key));
}

TEST_F(CudaPageMoverTest, ABackupOfAPageAgainHoldsTheNewKeyOnly) {
  make(small_shape());
  back_up_all();
  std::vector<PageMove> again = {{PageId(0), down_[3].to, key_of(50)}};
  mover_->back_up(again, kAlways);
  EXPECT_FALSE(host_->holds(down_[3].to, down_[3].key));
  EXPECT_TRUE(host_->holds(down_[3].to, key_of(50)));
}

TEST_F(CudaPageMoverTest, AnImageGoesToAPageIfItsSumsAreRight) {
  for (const KvShape& shape : {small_shape(), large_shape()}) {
    make(shape, KvLayout::kPageFirst);
    std::vector<std::byte> image = drawn_image();
    const auto layer_bytes = static_cast<std::size_t>(cuda_->layer_bytes());
    std::vector<std::uint32_t> sums;
    for (std::size_t layer = 0; layer < static_cast<std::size_t>(shape.layers); ++layer) {
      sums.push_back(crc32c(std::span(image).subspan(layer * layer_bytes, layer_bytes)));
    }
    EXPECT_EQ(mover_->copy_page_in(image, sums, PageId(4)), kDone);
    EXPECT_TRUE(cuda_image(PageId(4)) == image);
    EXPECT_TRUE(cuda_image(PageId(3)) == twin_image(PageId(3)));
    image[layer_bytes + 3] ^= std::byte{1};
    EXPECT_EQ(mover_->copy_page_in(image, sums, PageId(4)), kCorrupt);
  }
}

// As an engine does that records a step when a mover's threads move their first pages.
TEST_F(CudaPageMoverTest, PagesMoveForTheFirstTimeWhileAnotherThreadRecords) {
  for (const KvShape& shape : {small_shape(), large_shape()}) {
    make(shape);
    CudaStream computing = another_stream();
    ASSERT_TRUE(computing.begin_recording().ok());
    std::thread([&] {
      std::vector<PageMove> down = down_;
      mover_->back_up(down, kAlways);
      EXPECT_THAT(verdicts(down), Each(kDone));
      std::vector<PageMove> up = moves_back(down, {2, 3, 4, 5, 0, 1});
      Heard heard;
      mover_->promote(up, kAlways, heard);
      EXPECT_THAT(verdicts(up), Each(kDone));
    }).join();
    EXPECT_TRUE(computing.end_recording().ok());
  }
}

TEST_F(CudaPageMoverTest, HostMemoryMayHaveAnotherMoverLater) {
  make(small_shape());
  back_up_all();
  mover_.reset();
  mover_ = CudaPageMover::open(*cuda_, *host_).value();
  std::vector<PageMove> up = all_up();
  promote(up);
  EXPECT_THAT(verdicts(up), Each(kDone));
}

#ifdef STEMMA_SIMT

TEST_F(CudaPageMoverTest, MemoryThatCannotBeHadIsSaid) {
  make_pools(small_shape(), KvLayout::kLayerFirst);
  host_ = make_host(6, KvLayout::kPageFirst);
  machine().fail_allocations(1);
  EXPECT_EQ(CudaPageMover::open(*cuda_, *host_).error().code, ErrorCode::kOutOfMemory);
  EXPECT_TRUE(CudaPageMover::open(*cuda_, *host_).ok());
}

// A device that fails is a failed tier (I9): nothing is sealed, nothing arrives.
TEST_F(CudaPageMoverTest, ADeviceThatFailsGivesAndTakesNothing) {
  make(small_shape());
  mover_->back_up(std::span(down_).first(3), kAlways);
  machine().fail_after_kernels(1);
  std::vector<PageMove> up = moves_back(std::span(down_).first(3), {3, 4, 5});
  promote(up);
  EXPECT_THAT(verdicts(up), Each(kCancelled));
  EXPECT_FALSE(heard_.rights.back());
  std::vector<PageMove> rest(down_.begin() + 3, down_.end());
  mover_->back_up(rest, kAlways);
  EXPECT_THAT(verdicts(rest), Each(kCancelled));
  EXPECT_FALSE(host_->holds(rest[0].to, rest[0].key));
  std::vector<std::byte> image = drawn_image();
  EXPECT_EQ(mover_->copy_page_in(image, std::vector<std::uint32_t>(3), PageId(0)), kCancelled);
}

#endif

}  // namespace
}  // namespace stemma
