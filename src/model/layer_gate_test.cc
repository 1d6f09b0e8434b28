// A batch whose pages arrive layer by layer while it is computed: every layer is asked for before
// it is read, and read only then; the logits are those of pages that were whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/temp_directory.h"
#include "model/model_runner.h"
#include "model/random_model.h"
#include "model/runner_trial.h"
#include "pool/kv_pool_factory.h"
#include "pool/page_image.h"

namespace stemma {
namespace {

constexpr std::int64_t kPageSize = 4;
constexpr std::int64_t kPages = 12;
constexpr std::int64_t kArriving = 32;  // tokens, whole pages
constexpr std::int64_t kTokens = 37;

// Keeps some pages of a pool and leaves noise in their place, which each layer's wait repairs.
class LatePages final : public LayerGate {
 public:
  LatePages(KvPool& pool, std::vector<PageId> pages) : pool_(pool), pages_(std::move(pages)) {
    const auto bytes = static_cast<std::size_t>(pool.layer_bytes());
    const std::vector<std::byte> noise(bytes, std::byte{0xFF});  // not a number, in every type
    for (const PageId page : pages_) {
      for (std::int64_t layer = 0; layer < pool.shape().layers; ++layer) {
        Kept& kept = kept_.emplace_back();
        kept.image.resize(bytes);
        copy_page_out(pool, page, {layer, layer + 1}, kept.image, {&kept.sum, 1});
        copy_layer_in(noise.data(), {pool.layer_pieces(layer), page}, nullptr, false);
      }
    }
  }

  bool wait(std::int64_t layer) override {
    asked.push_back(layer);
    if (layer == wrong_layer) return false;
    const auto layers = static_cast<std::size_t>(pool_.shape().layers);
    for (std::size_t i = 0; i < pages_.size(); ++i) {
      const Kept& kept = kept_[i * layers + static_cast<std::size_t>(layer)];
      EXPECT_EQ(copy_page_in(pool_, pages_[i], {layer, layer + 1}, kept.image, {&kept.sum, 1}),
                std::nullopt);
    }
    return true;
  }

  std::vector<std::int64_t> asked;
  std::int64_t wrong_layer = -1;

 private:
  struct Kept {
    std::vector<std::byte> image;
    std::uint32_t sum = 0;
  };

  KvPool& pool_;
  std::vector<PageId> pages_;
  std::vector<Kept> kept_;  // [pages, layers]
};

class LayerGates : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    const ModelConfig config = tiny_model_config(GetParam());
    ASSERT_TRUE(
        write_random_model(directory_.path(), {.config = config, .type = WeightType::kBf16}).ok());
    auto runner = ModelRunner::load(directory_.path(), {}, threads_);
    ASSERT_TRUE(runner.ok());
    runner_ = std::move(runner).value();
    tokens_ = random_tokens(kTokens, config.vocab_tokens, 3);
    KvShape shape = runner_->pool_shape();
    shape.page_size = kPageSize;
    shape.pages = kPages;
    shape.dtype = DType::kBF16;
    pool_ = make_kv_pool(shape, KvLayout::kLayerFirst, threads_).value();
  }

  // The logits of the last tokens, the first kArriving being there, or arriving by `make_gate`.
  template <typename MakeGate>
  Status compute_rest(RunnerTrial& trial, std::size_t request, MakeGate&& make_gate) {
    const RunnerTrial::Piece first = {request, kArriving};
    STEMMA_RETURN_IF_ERROR(trial.step({&first, 1}));
    const RunnerTrial::Piece rest = {request, kTokens - kArriving};
    return trial.step({&rest, 1}, make_gate());
  }

  std::vector<PageId> arriving_pages(const RunnerTrial& trial, std::size_t request) const {
    const auto pages = trial.pages(request);
    return {pages.begin(), pages.begin() + kArriving / kPageSize};
  }

  ThreadPool threads_{2};
  TempDirectory directory_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<KvPool> pool_;
  std::vector<TokenId> tokens_;
};

TEST_P(LayerGates, EachLayerIsReadWhenItHasCome) {
  RunnerTrial whole(*runner_, *pool_);
  const std::size_t plain = whole.add(tokens_);
  ASSERT_TRUE(compute_rest(whole, plain, [] { return nullptr; }).ok());

  RunnerTrial late(*runner_, *pool_);
  const std::size_t request = late.add(tokens_);
  std::unique_ptr<LatePages> gate;
  ASSERT_TRUE(compute_rest(late, request, [&] {
                gate = std::make_unique<LatePages>(*pool_, arriving_pages(late, request));
                return gate.get();
              }).ok());
  std::vector<std::int64_t> every_layer(static_cast<std::size_t>(pool_->shape().layers));
  for (std::size_t i = 0; i < every_layer.size(); ++i)
    every_layer[i] = static_cast<std::int64_t>(i);
  EXPECT_EQ(gate->asked, every_layer);
  EXPECT_EQ(late.logits(request), whole.logits(plain));
}

TEST_P(LayerGates, AWrongPageEndsTheBatch) {
  RunnerTrial trial(*runner_, *pool_);
  const std::size_t request = trial.add(tokens_);
  std::unique_ptr<LatePages> gate;
  const Status computed = compute_rest(trial, request, [&] {
    gate = std::make_unique<LatePages>(*pool_, arriving_pages(trial, request));
    gate->wrong_layer = 1;
    return gate.get();
  });
  ASSERT_FALSE(computed.ok());
  EXPECT_EQ(computed.error().code, ErrorCode::kCorrupt);
}

INSTANTIATE_TEST_SUITE_P(Families, LayerGates, ::testing::ValuesIn(tiny_names_without_windows()),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace stemma
