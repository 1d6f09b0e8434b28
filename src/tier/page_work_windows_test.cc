// PageWork over two pools: the part of a page that layers with a window have moves by itself, lies
// in stores beside the other under a key of its own, and is never taken for it.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "pool/pool_fixture.h"
#include "prefix/page_key.h"
#include "tier/memory_page_store.h"
#include "tier/page_work.h"

namespace stemma {
namespace {

using ::testing::Each;

constexpr PageVerdict kDone = PageVerdict::kDone;
constexpr std::int64_t kPages = 4;
constexpr std::int64_t kPageSize = 2;

KvShape shape_of(std::int64_t layers) {
  return {.layers = layers,
          .pages = kPages,
          .page_size = kPageSize,
          .heads = 2,
          .head_dim = 20,
          .dtype = DType::kBF16};
}

std::unique_ptr<HostPool> host_of(const KvPool& device) {
  ThreadPool threads(1);
  HostPoolOptions options;
  options.pages = kPages;
  options.layers = device.shape().layers;
  options.layer_bytes = device.layer_bytes();
  return HostPool::create(options, threads).value();
}

// Full layers by the parameter: none where every layer has a window.
class PageWorkWindows : public ::testing::TestWithParam<std::int64_t> {
 protected:
  PageWorkWindows() {
    fill_randomly(*device_, prng_);
    fill_randomly(*windowed_, prng_);
    PageKeyChain chain(digest_);
    for (TokenId page = 0; page < kPages; ++page) {
      tokens_.insert(tokens_.end(), {page, page + 100});
      keys_.push_back(chain.append(std::span(tokens_).last(kPageSize)));
    }
  }

  // Of all pages but the first, which lie in the places of their numbers.
  std::vector<PageVerdict> run(TransferKind kind, LayerGroup group) {
    Transfer job;
    job.kind = kind;
    job.group = group;
    job.digest = digest_;
    job.first_page = 1;
    job.parent = keys_[0];
    job.keys.assign(keys_.begin() + 1, keys_.end());
    job.tokens.assign(tokens_.begin() + kPageSize, tokens_.end());
    for (const PageId page : id_range(PageId(1), kPages - 1)) {
      job.from.push_back(page);
      job.to.push_back(page);
    }
    job.deadline_us = 1'000;
    work_->run(job);
    found_ = job.found_pages;
    return job.verdicts;
  }
  std::vector<std::byte> image(std::int32_t page) const {
    return expected_image(*windowed_, PageId(page));
  }

  NamespaceDigest digest_ = {{7}};
  Prng prng_{20261122};
  std::unique_ptr<MhaPool> device_ = make_test_pool(shape_of(GetParam()), KvLayout::kLayerFirst);
  std::unique_ptr<MhaPool> windowed_ = make_test_pool(shape_of(2), KvLayout::kPageFirst);
  std::unique_ptr<HostPool> host_ = host_of(*device_);
  std::unique_ptr<HostPool> windowed_host_ = host_of(*windowed_);
  MemoryPageStore store_{Tier::kDisk, std::int64_t{1} << 20};
  FakeClock clock_;
  std::unique_ptr<PageWork> work_ =
      PageWork::open({*device_, *host_, {&store_}, clock_, {windowed_.get(), windowed_host_.get()}})
          .value();
  std::vector<TokenId> tokens_;
  std::vector<PageKey> keys_;
  std::int64_t found_ = 0;
};

TEST_P(PageWorkWindows, DownAndUpAgainByHostMemoryAndAStore) {
  const std::vector<std::byte> first = image(1);
  const std::vector<std::byte> untouched = image(0);
  for (const bool by_store : {false, true}) {
    for (const LayerGroup group : {LayerGroup::kFull, LayerGroup::kWindowed}) {
      EXPECT_THAT(run(TransferKind::kBackup, group), Each(kDone));
      EXPECT_THAT(run(TransferKind::kStore, group), Each(kDone));
    }
    fill_randomly(*windowed_, prng_);
    const std::vector<std::byte> other = image(0);
    EXPECT_THAT(run(by_store ? TransferKind::kLoad : TransferKind::kPromote, LayerGroup::kWindowed),
                Each(kDone));
    EXPECT_EQ(image(1), first);
    EXPECT_EQ(image(0), other);
    EXPECT_NE(other, untouched);
  }
  EXPECT_EQ(store_.usage().pages, 2 * (kPages - 1));
}

// What host memory got from a store is what it would have had from the device.
TEST_P(PageWorkWindows, WhatWasFetchedIsPromoted) {
  const std::vector<std::byte> first = image(1);
  for (const TransferKind kind : {TransferKind::kBackup, TransferKind::kStore}) {
    ASSERT_THAT(run(kind, LayerGroup::kWindowed), Each(kDone));
  }
  for (const PageId page : id_range(PageId(0), kPages)) windowed_host_->forget(page);
  fill_randomly(*windowed_, prng_);
  EXPECT_THAT(run(TransferKind::kFetch, LayerGroup::kWindowed), Each(kDone));
  EXPECT_THAT(run(TransferKind::kPromote, LayerGroup::kWindowed), Each(kDone));
  EXPECT_EQ(image(1), first);
}

TEST_P(PageWorkWindows, OnePartIsNotTakenForTheOther) {
  ASSERT_THAT(run(TransferKind::kBackup, LayerGroup::kFull), Each(kDone));
  ASSERT_THAT(run(TransferKind::kStore, LayerGroup::kFull), Each(kDone));
  run(TransferKind::kLookup, LayerGroup::kFull);
  EXPECT_EQ(found_, kPages - 1);
  run(TransferKind::kLookup, LayerGroup::kWindowed);
  EXPECT_EQ(found_, 0);
  EXPECT_THAT(run(TransferKind::kFetch, LayerGroup::kWindowed), Each(PageVerdict::kMissing));
  EXPECT_THAT(run(TransferKind::kPromote, LayerGroup::kWindowed), Each(PageVerdict::kMissing));
  EXPECT_THAT(run(TransferKind::kFetch, LayerGroup::kFull), Each(kDone));
}

// Under the keys that the store has them under: nobody has the tokens of what is removed.
TEST_P(PageWorkWindows, OnePartIsRemovedWithoutTheOther) {
  for (const LayerGroup group : {LayerGroup::kFull, LayerGroup::kWindowed}) {
    ASSERT_THAT(run(TransferKind::kBackup, group), Each(kDone));
    ASSERT_THAT(run(TransferKind::kStore, group), Each(kDone));
  }
  Transfer job;
  job.kind = TransferKind::kRemove;
  job.group = LayerGroup::kWindowed;
  job.deadline_us = 1'000;
  PageKeyHasher hasher;
  for (std::size_t page = 1; page < keys_.size(); ++page) {
    const auto tokens = std::span(tokens_).subspan(page * kPageSize, kPageSize);
    job.keys.push_back(hasher.next(hasher.windowed_parent(keys_[page - 1]), tokens));
  }
  work_->run(job);
  EXPECT_THAT(job.verdicts, Each(kDone));
  run(TransferKind::kLookup, LayerGroup::kWindowed);
  EXPECT_EQ(found_, 0);
  run(TransferKind::kLookup, LayerGroup::kFull);
  EXPECT_EQ(found_, kPages - 1);
}

INSTANTIATE_TEST_SUITE_P(FullLayers, PageWorkWindows, ::testing::Values(0, 1, 3));

}  // namespace
}  // namespace stemma
