// An engine of another's, in C++ over a GPU: it goes on computing while pages that its device lost
// are still being copied up, and its own stream finds every layer there when it reads it.
#include <chrono>
#include <memory>
#include <numeric>
#include <vector>

#include "device/cuda_fixture.h"
#include "stemma/cuda_pool.h"
#include "stemma/embed.h"
#include "stemma/kv_cache.h"

namespace stemma {
namespace {

constexpr KvShape kShape = {
    .layers = 3, .pages = 8, .page_size = 4, .heads = 1, .head_dim = 8, .dtype = DType::kF32};

class EngineOnAGpu : public CudaFixture {
 protected:
  void SetUp() override {
    CudaFixture::SetUp();
    if (IsSkipped()) return;
    pool_ = open_cuda_pool(kShape).value();
    tiers_ = open_lower_tiers({.host_bytes = 1 << 20}, *pool_, {}).value();
    KvCacheOptions options;
    options.page_size = kShape.page_size;
    options.pages = kShape.pages;
    options.tiers.write_policy = WritePolicy::kWriteThrough;
    cache_ = KvCache::open(options, nullptr, tiers_.get()).value();
    ns_ = *cache_->try_open_namespace(namespace_digest({}));
    std::iota(prompt_.begin(), prompt_.end(), TokenId{100});
  }
  void TearDown() override {
    cache_.reset();
    tiers_.reset();
    pool_.reset();
    rows_ = {};
    places_ = {};
    CudaFixture::TearDown();
  }

  // The rows of a token are its number.
  void compute_and_publish() {
    Sequence sequence = *cache_->begin(ns_, prompt_);
    ASSERT_TRUE(cache_->reserve(sequence, std::ssize(prompt_)));
    std::vector<float> values;
    std::vector<std::int64_t> slots;
    for (std::size_t i = 0; i < prompt_.size(); ++i) {
      values.insert(values.end(), 8, static_cast<float>(prompt_[i]));
      slots.push_back(sequence.pages()[i / 4].value() * 4 + static_cast<std::int64_t>(i % 4));
    }
    rows_ = upload(values);
    places_ = upload(slots);
    const KvRows rows = {.elements = rows_.bytes(),
                         .device = DeviceKind::kCuda,
                         .rows = std::ssize(prompt_),
                         .heads = 1,
                         .head_dim = 8,
                         .row_stride = 8};
    for (std::int64_t layer = 0; layer < kShape.layers; ++layer) {
      ASSERT_TRUE(pool_
                      ->store_on(stream().raw(), layer,
                                 std::span(places_.as<const std::int64_t>(), slots.size()), rows,
                                 rows)
                      .ok());
    }
    ASSERT_TRUE(pool_->record_use(stream().raw()).ok());
    cache_->finish(std::move(sequence), prompt_);
  }
  void lose_the_device() {
    cache_->settle(INT64_MAX);
    ASSERT_EQ(cache_->evict(kShape.pages), 5);
  }
  // V of a token in a layer, read on the engine's stream.
  float value_at(const Sequence& sequence, std::int64_t layer, std::size_t token) {
    const KvLayerView view = pool_->layer_view(layer);
    const std::int64_t page = sequence.pages()[token / 4].value();
    const auto* const row = static_cast<const float*>(view.v) + page * view.page_stride +
                            static_cast<std::int64_t>(token % 4) * view.token_stride;
    return download<float>(row, 1).front();
  }

  std::unique_ptr<CudaKvPool> pool_;
  std::unique_ptr<LowerTiers> tiers_;
  std::unique_ptr<KvCache> cache_;
  NamespaceId ns_;
  std::vector<TokenId> prompt_ = std::vector<TokenId>(21);
  CudaMemory rows_;
  CudaMemory places_;
};

TEST_F(EngineOnAGpu, ReadsEachLayerOfLentPagesWhenItHasCome) {
  compute_and_publish();
  lose_the_device();
  const auto promotion = cache_->try_promote(ns_, prompt_);
  ASSERT_TRUE(promotion.has_value());
  ASSERT_TRUE(cache_->can_lend(*promotion));
  Sequence sequence = *cache_->begin(ns_, prompt_);
  ASSERT_EQ(sequence.cached_tokens(), 0);
  ASSERT_EQ(cache_->lend(sequence, prompt_, *promotion), 20);
  for (std::int64_t layer = 0; layer < kShape.layers; ++layer) {
    ASSERT_TRUE(wait_on_layer(*cache_->arriving_or_null(), stream().raw(), layer));
    for (std::size_t token = 0; token < 20; ++token) {
      ASSERT_EQ(value_at(sequence, layer, token), static_cast<float>(prompt_[token]));
    }
  }
  EXPECT_TRUE(cache_->await_lent());
  EXPECT_TRUE(cache_->end_loan(sequence, prompt_));
  cache_->release_promotion(*promotion, PromotionUse::kComputing);
  cache_->finish(std::move(sequence), std::span(prompt_).first(20));
}

}  // namespace
}  // namespace stemma
