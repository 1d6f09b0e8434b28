// An engine whose pages are a GPU's, with host memory and a store below it: every answer is that of
// an engine without a cache, whatever was evicted and came up again meanwhile, while steps begin
// before pages are whole, and where host memory goes wrong. Faults: row 3 (docs/FAULTS.md).
#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/math.h"
#include "engine/hash_model.h"
#include "engine/hash_prompts.h"
#include "pool/cuda_pool_fixture.h"
#include "stemma/engine.h"
#include "tier/memory_page_store.h"
#include "tier/tier_stack.h"

namespace stemma {
namespace {

using Tokens = std::vector<TokenId>;

// A HashModel on a GPU, as far as the cache can tell: it reads each layer of the pages of a batch
// by its own stream behind the batch's gate, and writes pages by it. In between a pool in host
// memory holds them.
class QueuedHashModel final : public Runner {
 public:
  QueuedHashModel(CudaPool& pool, CudaStream& stream, std::unique_ptr<KvPool> mirror)
      : pool_(pool), stream_(stream), mirror_(std::move(mirror)) {
    EXPECT_TRUE(pool.cuda_device().pin(memory(), memory_bytes()).ok());
  }
  ~QueuedHashModel() override { pool_.cuda_device().unpin(memory()); }

  bool waits_by_layer() const override { return true; }

  Result<LogitsView> forward(const KvBatch& batch, KvPools) override {
    const std::vector<PageId> pages = pages_of(batch);
    for (std::int64_t layer = 0; layer < HashModel::kLayers; ++layer) {
      if (batch.arriving != nullptr && !batch.arriving->wait_on(stream_, layer)) {
        return Error{ErrorCode::kCorrupt, "a page that was still arriving is wrong"};
      }
      STEMMA_RETURN_IF_ERROR(copy_layer(layer, pages, false));
    }
    STEMMA_RETURN_IF_ERROR(stream_.synchronize());
    STEMMA_ASSIGN_OR_RETURN(const LogitsView logits, model_.forward(batch, {*mirror_}));
    for (std::int64_t layer = 0; layer < HashModel::kLayers; ++layer) {
      STEMMA_RETURN_IF_ERROR(copy_layer(layer, written_pages(batch), true));
    }
    STEMMA_RETURN_IF_ERROR(pool_.record_use(stream_));
    STEMMA_RETURN_IF_ERROR(stream_.synchronize());
    return logits;
  }

 private:
  std::byte* memory() { return static_cast<std::byte*>(mirror_->logical_view().bytes); }
  std::size_t memory_bytes() const {
    return round_up(static_cast<std::size_t>(mirror_->shape().total_bytes()), std::size_t{4096});
  }
  static std::vector<PageId> pages_of(const KvBatch& batch) {
    std::vector<PageId> pages;
    for (std::int64_t i = 0; i < std::ssize(batch.requests); ++i) {
      const auto some = batch.page_table.pages_of(i);
      pages.insert(pages.end(), some.begin(), some.end());
    }
    return pages;
  }
  std::vector<PageId> written_pages(const KvBatch& batch) const {
    std::vector<PageId> pages;
    for (const SlotId slot : batch.write_slots) {
      const PageId page(static_cast<std::int32_t>(slot.value() / mirror_->shape().page_size));
      if (pages.empty() || pages.back() != page) pages.push_back(page);
    }
    return pages;
  }
  Status copy_layer(std::int64_t layer, const std::vector<PageId>& pages, bool to_device) {
    const auto here = mirror_->layer_pieces(layer);
    const auto device = pool_.layer_pieces(layer);
    const PagePiece<std::byte>* there = device.begin();
    for (const auto& piece : here) {
      const auto bytes = static_cast<std::size_t>(piece.bytes);
      for (const PageId page : pages) {
        STEMMA_RETURN_IF_ERROR(to_device
                                   ? stream_.copy_in(there->of(page), piece.of(page), bytes)
                                   : stream_.copy_out(piece.of(page), there->of(page), bytes));
      }
      ++there;
    }
    return {};
  }

  CudaPool& pool_;
  CudaStream& stream_;
  std::unique_ptr<KvPool> mirror_;
  HashModel model_;
};

struct Count final : MetricVisitor {
  explicit Count(const Engine& engine) { engine.visit_metrics(*this); }
  void counter(std::string_view name, std::int64_t value) override {
    of[std::string(name)] = value;
  }
  void gauge(std::string_view, std::int64_t) override {}
  std::map<std::string, std::int64_t> of;
};

class CudaTieredEngine : public CudaPoolFixture {
 protected:
  void SetUp() override {
    CudaPoolFixture::SetUp();
    if (IsSkipped()) return;
    options_.kv.page_size = 4;
    options_.kv.pages = 40;
    options_.kv.requests_max = 3;
    options_.kv.context_tokens_max = 120;
    options_.kv.tiers.write_policy = WritePolicy::kWriteThrough;
    options_.scheduler.step_tokens_max = 40;
    options_.scheduler.chunk_tokens_max = 20;
    open();
  }
  void TearDown() override {
    engine_.reset();
    model_.reset();
    stack_.reset();
    CudaPoolFixture::TearDown();
  }

  KvShape shape() const {
    return {.layers = HashModel::kLayers,
            .pages = options_.kv.pages,
            .page_size = options_.kv.page_size,
            .heads = 1,
            .head_dim = HashModel::kHeadDim,
            .dtype = DType::kF32};
  }

  void open() {
    make_pools(shape(), KvLayout::kLayerFirst);
    std::vector<std::unique_ptr<PageStore>> stores;
    stores.push_back(std::make_unique<MemoryPageStore>(Tier::kDisk, 1 << 20));
    auto stack = TierStack::open({.host_bytes = 90 * shape().page_bytes()}, *cuda_,
                                 std::move(stores), threads_, clock_);
    ASSERT_TRUE(stack.ok()) << stack.error().detail;
    stack_ = std::move(stack).value();
    auto mirror = make_kv_pool(shape(), KvLayout::kLayerFirst, threads_);
    model_ = std::make_unique<QueuedHashModel>(*cuda_, stream(), std::move(mirror).value());
    auto engine = Engine::open(options_, {.runner = *model_,
                                          .pools = {*cuda_},
                                          .vocab_tokens = HashModel::kVocab,
                                          .clock = clock_,
                                          .lower_tiers = stack_.get()});
    ASSERT_TRUE(engine.ok()) << engine.error().detail;
    engine_ = std::move(engine).value();
  }

  // What an engine without a cache answers, on the host.
  const Tokens& cold(const Tokens& prompt) {
    const auto [known, is_new] = cold_.try_emplace(prompt);
    if (!is_new) return known->second;
    HashModel model;
    EngineOptions options = options_;
    options.kv.cache = "none";
    const auto pool = make_kv_pool(shape(), KvLayout::kLayerFirst, threads_).value();
    const auto engine = Engine::open(
        options,
        {.runner = model, .pools = {*pool}, .vocab_tokens = HashModel::kVocab, .clock = clock_});
    std::map<RequestId, Tokens> answers;
    const RequestId id = submit_prompt(**engine, prompt);
    finish_prompts(**engine, answers);
    return known->second = answers[id];
  }

  // Up to three prompts at once, each a beginning of one of seven texts, and some more.
  void ask_some() {
    ask_drawn_prompts(*engine_, prng_, [this](const Tokens& prompt) { return cold(prompt); });
  }
  std::int64_t count(const std::string& name) const { return Count(*engine_).of.at(name); }

  EngineOptions options_;
  MonotonicClock clock_;
  ThreadPool threads_{1};
  std::unique_ptr<TierStack> stack_;
  std::unique_ptr<QueuedHashModel> model_;
  std::unique_ptr<Engine> engine_;
  std::map<Tokens, Tokens> cold_;
};

TEST_F(CudaTieredEngine, AnswersAsIfNothingWereCached) {
  for (int round = 0; round < 120; ++round) {
    ASSERT_NO_FATAL_FAILURE(ask_some()) << "round " << round;
  }
  EXPECT_GT(count("stemma_lent_pages_total"), 0);
}

TEST_F(CudaTieredEngine, BitsThatFlipInHostMemoryAreNeverServed) {
  for (int round = 0; round < 120; ++round) {
    ASSERT_NO_FATAL_FAILURE(ask_some()) << "round " << round;
    engine_->settle(std::chrono::seconds(3600));
    for (int flips = 0; flips < 3; ++flips) {
      HostPool& host = stack_->host();
      const PageId page(static_cast<std::int32_t>(prng_.below(host.pages())));
      const auto layer = host.layer_image(page, prng_.below(HashModel::kLayers));
      layer[static_cast<std::size_t>(prng_.below(std::ssize(layer)))] ^= std::byte{16};
    }
  }
  EXPECT_GT(count("stemma_host_load_corrupt_pages_total"), 0);
}

}  // namespace
}  // namespace stemma
