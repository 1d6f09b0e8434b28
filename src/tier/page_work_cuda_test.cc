// PageWork and its lanes below the pool of a GPU: pages go down to host memory and stores and come
// up again byte for byte; a stream that waits for a layer of a promotion finds it there, whenever
// the copies are queued; what is wrong is said of the job. Faults: rows 3 and 13 (docs/FAULTS.md).
#include <chrono>

#include "base/clock.h"
#include "base/crc32c.h"
#include "pool/cuda_pool_fixture.h"
#include "prefix/page_key.h"
#include "tier/memory_page_store.h"
#include "tier/tier_stack.h"

namespace stemma {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr PageVerdict kDone = PageVerdict::kDone;
constexpr std::int64_t kDeadlineUs = 1'000;
constexpr auto kNap = std::chrono::milliseconds(20);

KvShape small_shape() {
  return {
      .layers = 4, .pages = 8, .page_size = 4, .heads = 2, .head_dim = 24, .dtype = DType::kBF16};
}

class CudaTiers : public CudaPoolFixture {
 protected:
  void TearDown() override {
    lanes_.reset();
    stack_.reset();
    CudaPoolFixture::TearDown();
  }

  void open(KvLayout device_layout, KvLayout host_layout) {
    lanes_.reset();
    stack_.reset();
    make_pools(small_shape(), device_layout);
    ThreadPool threads(1);
    std::vector<std::unique_ptr<PageStore>> stores;
    stores.push_back(std::make_unique<MemoryPageStore>(Tier::kDisk, 1 << 20));
    auto stack =
        TierStack::open({.host_bytes = 8 * small_shape().page_bytes(), .host_layout = host_layout},
                        *cuda_, std::move(stores), threads, clock_);
    ASSERT_TRUE(stack.ok()) << stack.error().detail;
    stack_ = std::move(stack).value();
    lanes_ = stack_->open_lanes(4);
  }

  // Of the first pages of a text, as many as there are places.
  std::unique_ptr<Transfer> job(TransferKind kind, const std::vector<std::int32_t>& from,
                                const std::vector<std::int32_t>& to) const {
    auto job = std::make_unique<Transfer>();
    const NamespaceDigest digest = {{7}};
    PageKeyChain chain(digest);
    job->kind = kind;
    job->digest = digest;
    job->parent = PageKeyHasher::root(digest);
    for (std::size_t page = 0; page < std::max(from.size(), to.size()); ++page) {
      const std::vector<TokenId> tokens(4, TokenId{static_cast<std::int32_t>(page + 1)});
      job->tokens.insert(job->tokens.end(), tokens.begin(), tokens.end());
      job->keys.push_back(chain.append(tokens));
    }
    for (const std::int32_t page : from) job->from.push_back(PageId(page));
    for (const std::int32_t page : to) job->to.push_back(PageId(page));
    job->deadline_us = kDeadlineUs;
    return job;
  }
  // Until it has landed, as the engine thread waits.
  std::vector<PageVerdict> land(Transfer& job) {
    Transfer* done = nullptr;
    while ((done = lanes_->try_take_done_or_null()) == nullptr) lanes_->wait_done(kNap);
    EXPECT_EQ(done, &job);
    return job.verdicts;
  }
  std::vector<PageVerdict> run(TransferKind kind, const std::vector<std::int32_t>& from,
                               const std::vector<std::int32_t>& to) {
    const auto one = job(kind, from, to);
    lanes_->post(*one);
    return land(*one);
  }
  void expect_page(std::int32_t page, std::int32_t of_twin) {
    EXPECT_TRUE(cuda_image(PageId(page)) == twin_image(PageId(of_twin))) << "page " << page;
  }
  CudaStream another_stream() { return device().make_stream().value(); }

  FakeClock clock_;
  std::unique_ptr<TierStack> stack_;
  std::unique_ptr<TransferLanes> lanes_;
};

TEST_F(CudaTiers, PagesGoDownThroughAStoreAndUpAgain) {
  for (const KvLayout device : kAllLayouts) {
    for (const KvLayout host : kAllLayouts) {
      open(device, host);
      EXPECT_THAT(run(TransferKind::kBackup, {1, 3}, {5, 0}), ElementsAre(kDone, kDone));
      EXPECT_THAT(run(TransferKind::kPromote, {5, 0}, {6, 7}), ElementsAre(kDone, kDone));
      expect_page(6, 1);
      expect_page(7, 3);
      EXPECT_THAT(run(TransferKind::kStore, {5, 0}, {}), ElementsAre(kDone, kDone));
      EXPECT_THAT(run(TransferKind::kLoad, {}, {4, 2}), ElementsAre(kDone, kDone));
      expect_page(4, 1);
      expect_page(2, 3);
      EXPECT_THAT(run(TransferKind::kFetch, {}, {1, 2}), ElementsAre(kDone, kDone));
      EXPECT_THAT(run(TransferKind::kPromote, {1, 2}, {0, 5}), ElementsAre(kDone, kDone));
      expect_page(0, 1);
      expect_page(5, 3);
    }
  }
}

// Each layer is read by a stream that only an event holds back, while the lane still promotes.
TEST_F(CudaTiers, AStreamThatWaitsForALayerFindsIt) {
  open(KvLayout::kLayerFirst, KvLayout::kPageFirst);
  ASSERT_THAT(run(TransferKind::kBackup, {0, 1, 2}, {2, 1, 0}), Each(kDone));
  CudaStream computing = another_stream();
  for (int round = 0; round < 20; ++round) {
    for (const std::int32_t page : {5, 6, 7}) upload_page(PageId(page), drawn_image());
    const auto up = job(TransferKind::kPromote, {2, 1, 0}, {7, 5, 6});
    lanes_->post(*up);
    for (std::int64_t layer = 0; layer < 4; ++layer) {
      ASSERT_TRUE(lanes_->wait_layer_on(*up, computing, layer));
      EXPECT_EQ(download_layers(computing, PageId(5), {layer, layer + 1}),
                expected_layer(*twin_, PageId(1), layer));
      EXPECT_EQ(download_layers(computing, PageId(7), {layer, layer + 1}),
                expected_layer(*twin_, PageId(0), layer));
    }
    EXPECT_THAT(land(*up), Each(kDone));
    EXPECT_TRUE(up->wait_layer(3)) << "and its sums were right";
  }
}

// The stream may have gone on by then: what it computed is void when the job says so.
TEST_F(CudaTiers, ALayerThatCameWrongIsSaidOfTheJob) {
  open(KvLayout::kPageFirst, KvLayout::kPageFirst);
  ASSERT_THAT(run(TransferKind::kBackup, {0, 1}, {0, 1}), Each(kDone));
  stack_->host().layer_image(PageId(1), 2)[5] ^= std::byte{64};
  CudaStream computing = another_stream();
  const auto up = job(TransferKind::kPromote, {0, 1}, {4, 5});
  lanes_->post(*up);
  EXPECT_FALSE(up->wait_layer(2));
  static_cast<void>(lanes_->wait_layer_on(*up, computing, 3));
  ASSERT_TRUE(computing.synchronize().ok());
  EXPECT_THAT(land(*up), ElementsAre(kDone, PageVerdict::kCorrupt));
  EXPECT_FALSE(lanes_->wait_layer_on(*up, computing, 2)) << "now that it is known";
}

TEST_F(CudaTiers, APageThatWasSpoiltInAStoreIsNotTakenUpAndGoes) {
  open(KvLayout::kLayerFirst, KvLayout::kPageFirst);
  ASSERT_THAT(run(TransferKind::kBackup, {0, 1}, {0, 1}), Each(kDone));
  ASSERT_THAT(run(TransferKind::kStore, {0, 1}, {}), Each(kDone));
  PageStore& store = *stack_->stores().front();
  const auto keys = job(TransferKind::kLoad, {}, {0, 1})->keys;
  std::vector<std::byte> frame(frame_bytes(page_format(*cuda_)));
  PageRead read = {.key = keys[1], .frame = frame};
  store.read({&read, 1}, kDeadlineUs);
  ASSERT_EQ(read.verdict, kDone);
  const PageRemoval removal = {.key = keys[1], .frame = frame};
  store.remove({&removal, 1}, kDeadlineUs);
  frame[frame_body_offset(page_format(*cuda_)) + 9] ^= std::byte{2};
  PageWrite write = {.key = keys[1], .frame = frame};
  store.write({&write, 1}, kDeadlineUs);
  EXPECT_THAT(run(TransferKind::kLoad, {}, {4, 5}), ElementsAre(kDone, PageVerdict::kCorrupt));
  expect_page(4, 0);
}

TEST_F(CudaTiers, WhatIsCancelledBeforeItBeginsMovesNothing) {
  open(KvLayout::kLayerFirst, KvLayout::kLayerFirst);
  ASSERT_THAT(run(TransferKind::kBackup, {0, 1}, {0, 1}), Each(kDone));
  const auto up = job(TransferKind::kPromote, {0, 1}, {4, 5});
  up->cancelled = true;
  lanes_->post(*up);
  CudaStream computing = another_stream();
  EXPECT_FALSE(lanes_->wait_layer_on(*up, computing, 0));
  EXPECT_THAT(land(*up), Each(PageVerdict::kFailed));
  expect_page(4, 4);
  const auto down = job(TransferKind::kBackup, {4, 5}, {0, 1});
  down->cancelled = true;
  lanes_->post(*down);
  EXPECT_THAT(land(*down), Each(PageVerdict::kFailed));
  EXPECT_FALSE(stack_->host().holds(PageId(0), down->keys[0]));
}

// Backups, promotions and loads have streams of their own.
TEST_F(CudaTiers, AllLanesMoveAtOnce) {
  open(KvLayout::kLayerFirst, KvLayout::kPageFirst);
  ASSERT_THAT(run(TransferKind::kBackup, {0, 1}, {0, 1}), Each(kDone));
  ASSERT_THAT(run(TransferKind::kStore, {0, 1}, {}), Each(kDone));
  for (int round = 0; round < 10; ++round) {
    for (const std::int32_t page : {4, 5, 6, 7}) upload_page(PageId(page), drawn_image());
    const auto up = job(TransferKind::kPromote, {0, 1}, {4, 5});
    const auto load = job(TransferKind::kLoad, {}, {6, 7});
    const auto down = job(TransferKind::kBackup, {2, 3}, {2, 3});
    for (Transfer* one : {up.get(), load.get(), down.get()}) lanes_->post(*one);
    for (int landed = 0; landed < 3;) {
      const Transfer* const done = lanes_->try_take_done_or_null();
      if (done == nullptr) {
        lanes_->wait_done(kNap);
        continue;
      }
      EXPECT_THAT(done->verdicts, Each(kDone)) << transfer_kind_name(done->kind);
      ++landed;
    }
    for (const std::int32_t page : {4, 5, 6, 7}) expect_page(page, page % 2);
    const auto sums = stack_->host().layer_sums(PageId(3));
    EXPECT_EQ(sums[1], crc32c(expected_layer(*twin_, PageId(3), 1)));
  }
}

}  // namespace
}  // namespace stemma
