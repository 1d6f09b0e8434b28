// Ranks on GPUs: what several of them compute and store together is what one does, bit for bit
// (I13); a rank that cannot go on is the step's error, and what heads do not divide is refused.
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/cuda_backend.h"
#include "cuda/cuda_rank_rows.h"
#include "cuda/cuda_runner_fixture.h"
#include "device/thread_ranks_fixture.h"
#include "model/leading_runner.h"
#include "model/one_request.h"
#include "model/random_adapter.h"
#include "model/shard.h"

namespace stemma {
namespace {

constexpr std::int64_t kPageSize = 4;

// How ranks exchange rows: through the host, on one GPU, or over NCCL, each on its own.
enum class Exchange { kStaged, kNccl };

// The elements of a layer, on the host.
struct LayerRows {
  KvLayerView view;
  std::vector<std::byte> k;
  std::vector<std::byte> v;
  std::vector<float> k_scales;
  std::vector<float> v_scales;

  // K and V of one head, page by page, with what they are scaled by.
  std::vector<std::byte> head(std::int64_t head) const {
    std::vector<std::byte> bytes;
    const auto element = static_cast<std::size_t>(dtype_bytes(view.dtype));
    const auto append = [&](const void* from, std::int64_t at, std::int64_t elements,
                            std::size_t element_bytes) {
      const auto* const begin =
          static_cast<const std::byte*>(from) + static_cast<std::size_t>(at) * element_bytes;
      bytes.insert(bytes.end(), begin, begin + static_cast<std::size_t>(elements) * element_bytes);
    };
    for (std::int64_t token = 0; token < view.pages * view.page_size; ++token) {
      const std::int64_t page = token / view.page_size;
      const std::int64_t offset = token % view.page_size;
      const std::int64_t at =
          page * view.page_stride + offset * view.token_stride + head * view.head_stride;
      append(k.data(), at, view.head_dim, element);
      append(v.data(), at, view.value_dim, element);
      if (k_scales.empty()) continue;
      const std::int64_t scale =
          page * view.scale_page_stride + offset + head * view.scale_head_stride;
      append(k_scales.data(), scale, 1, sizeof(float));
      append(v_scales.data(), scale, 1, sizeof(float));
    }
    return bytes;
  }
};

// What a rank computed, and what lies in its pools.
struct Computed {
  std::vector<std::vector<float>> logits;  // of each request
  std::vector<LayerRows> layers;
};

struct RankSetting {
  DType dtype = DType::kBF16;
  Exchange exchange = Exchange::kStaged;
  std::int64_t pages = 16;
  WeightRounding weights = WeightRounding::kNone;
  std::optional<SparseDial> dial = std::nullopt;  // after write_calibration
  std::vector<AdapterSource> adapters = {};       // none, or two
};

// One rank: a device of its own, a runner and pools.
class Rank {
 public:
  Rank(const std::string& directory, const RankSetting& setting, RankGroup* group_or_null) {
    const bool nccl = setting.exchange == Exchange::kNccl;
    const int ordinal = nccl && group_or_null != nullptr ? group_or_null->rank() : 0;
    device_ = std::move(CudaDevice::open(ordinal)).value();
    stream_ = std::move(device_->make_stream()).value();
    auto runner = CudaRunner::load(*device_, directory,
                                   {.rows_max = 64,
                                    .outputs_max = 64,
                                    .requests_max = 8,
                                    .context_tokens_max = 64,
                                    .sparse = sparse_options(setting),
                                    .adapters = setting.adapters,
                                    .weights = setting.weights,
                                    .ranks = group_or_null},
                                   {.deterministic = true, .staged_ranks = !nccl}, threads_);
    STEMMA_CHECK(runner.ok(), "the model loads");
    runner_ = std::move(runner).value();
    STEMMA_CHECK(runner_->meet_ranks().ok(), "ranks meet");
    pool_ = pool_of(runner_->pool_shape(), setting);
    const KvShape windowed = runner_->windowed_pool_shape();
    if (windowed.layers > 0) windowed_ = pool_of(windowed, setting);
  }

  CudaRunner& runner() { return *runner_; }
  KvPools pools() { return {*pool_, windowed_.get()}; }

  // A text as a whole, then two in uneven pieces that share batches, the last tokens one by one.
  // Where there are adapters, the first and the last text have one each.
  Computed compute(std::int64_t vocab_tokens) {
    const CudaPool* const windowed = windowed_.get();
    RunnerTrial trial(*runner_, *pool_, std::move(windowed_), 5);
    const bool adapted = !runner_->adapters()->list().empty();
    trial.add(random_tokens(26, vocab_tokens, 3), adapted ? AdapterId(0) : AdapterId());
    STEMMA_CHECK(trial.finish(0, 26).ok(), "the text is computed");
    for (std::uint64_t i = 1; i <= 2; ++i) {
      trial.add(random_tokens(static_cast<std::int64_t>(9 + 4 * i), vocab_tokens, 100 + i),
                adapted && i == 2 ? AdapterId(1) : AdapterId());
    }
    for (const auto& [first, second] : {std::pair{7, 5}, {1, 9}, {3, 1}, {1, 1}, {1, 1}}) {
      const std::array pieces = {RunnerTrial::Piece{1, first}, RunnerTrial::Piece{2, second}};
      STEMMA_CHECK(trial.step(pieces).ok(), "the batch is computed");
    }
    Computed computed;
    for (std::size_t i = 0; i < 3; ++i) computed.logits.push_back(trial.logits(i));
    for (const CudaPool* pool : {const_cast<const CudaPool*>(pool_.get()), windowed}) {
      if (pool != nullptr) download(*pool, computed.layers);
    }
    return computed;
  }

 private:
  static std::optional<SparseOptions> sparse_options(const RankSetting& setting) {
    if (!setting.dial.has_value()) return std::nullopt;
    return SparseOptions{*setting.dial, ""};
  }

  std::unique_ptr<CudaPool> pool_of(KvShape shape, const RankSetting& setting) {
    shape.page_size = kPageSize;
    shape.pages = setting.pages;
    shape.dtype = setting.dtype;
    HeavyChannels channels;
    if (shape.kind == KvKind::kDoubleSparse) channels = runner_->heavy_channels();
    auto pool = CudaPool::create(*device_, shape, KvLayout::kLayerFirst, channels);
    STEMMA_CHECK(pool.ok(), "the pool fits");
    return std::move(pool).value();
  }

  template <typename T>
  std::vector<T> download(const void* from, std::int64_t count) {
    if (from == nullptr) return {};
    const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
    const PinnedMemory pinned = std::move(device_->allocate_pinned(bytes)).value();
    EXPECT_TRUE(stream_.copy_out(pinned.bytes(), from, bytes).ok());
    EXPECT_TRUE(stream_.synchronize().ok());
    std::vector<T> values(static_cast<std::size_t>(count));
    std::memcpy(values.data(), pinned.bytes(), bytes);
    return values;
  }

  void download(const CudaPool& pool, std::vector<LayerRows>& layers) {
    EXPECT_TRUE(pool.wait_for_use(stream_).ok());
    for (std::int64_t layer = 0; layer < pool.shape().layers; ++layer) {
      const KvLayerView view = pool.layer_view(layer);
      const std::int64_t bytes = view.pages * view.page_stride * dtype_bytes(view.dtype);
      const std::int64_t scales = view.pages * view.scale_page_stride;
      layers.push_back({view, download<std::byte>(view.k, bytes),
                        download<std::byte>(view.v, bytes), download<float>(view.k_scales, scales),
                        download<float>(view.v_scales, scales)});
    }
  }

  ThreadPool threads_{1};
  std::unique_ptr<CudaDevice> device_;
  CudaStream stream_;
  std::unique_ptr<CudaRunner> runner_;
  std::unique_ptr<CudaPool> pool_;
  std::unique_ptr<CudaPool> windowed_;  // until it computes
};

class CudaRanksBits : public CudaRunnerFixture {
 protected:
  // A family's model with heads that divide over `ranks`.
  void write_for_ranks(std::string_view name, int ranks, WeightType type,
                       const std::vector<OtherType>& others = {}) {
    ModelConfig config = tiny_model_config(name);
    if (!config_of_shard(config, {0, ranks}).ok()) config.query_heads = config.kv_heads = 4;
    write_model(config, type, others);
  }

  void expect_ranks_equal_one(int ranks, const RankSetting& setting = {}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    const Computed expected = Rank(directory(), setting, nullptr).compute(config().vocab_tokens);
    std::vector<Computed> computed(static_cast<std::size_t>(ranks));
    ThreadRanks(ranks).run([&](RankGroup& group) {
      computed[static_cast<std::size_t>(group.rank())] =
          Rank(directory(), setting, &group).compute(config().vocab_tokens);
    });
    for (std::size_t i = 0; i < expected.logits.size(); ++i) {
      SCOPED_TRACE("text " + std::to_string(i));
      expect_same_bits(expected.logits[i], computed[0].logits[i]);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      expect_same_heads(expected, computed[static_cast<std::size_t>(rank)], rank);
    }
  }

  // Two adapters of the model that was written: of all that can be changed, and of some of it.
  std::vector<AdapterSource> write_adapters(const std::vector<std::string>& some) {
    const auto write = [&](const TempDirectory& to, const RandomAdapterOptions& options) {
      ASSERT_TRUE(write_random_adapter(to.path(), options).ok());
    };
    write(all_, {.config = config(), .rank = 3, .alpha = 2, .seed = 5});
    write(some_, {.config = config(), .targets = some, .rank = 6, .type = WeightType::kBf16});
    return {{"all", all_.path()}, {"some", some_.path()}};
  }

 private:
  TempDirectory all_;
  TempDirectory some_;

  // Each of a rank's heads lies in its pool as in that of one rank; latent rows are every rank's.
  static void expect_same_heads(const Computed& one, const Computed& part, int rank) {
    ASSERT_EQ(one.layers.size(), part.layers.size());
    for (std::size_t layer = 0; layer < part.layers.size(); ++layer) {
      const std::int64_t heads = part.layers[layer].view.heads;
      const std::int64_t first = heads == one.layers[layer].view.heads ? 0 : rank * heads;
      for (std::int64_t head = 0; head < heads; ++head) {
        EXPECT_TRUE(one.layers[layer].head(first + head) == part.layers[layer].head(head))
            << "rank " << rank << " layer " << layer << " head " << head;
      }
    }
  }
};

class CudaRanksFamilies : public CudaRanksBits,
                          public ::testing::WithParamInterface<std::string_view> {};

TEST_P(CudaRanksFamilies, TwoRanksComputeAndStoreWhatOneDoes) {
  write_for_ranks(GetParam(), 2, WeightType::kBf16);
  expect_ranks_equal_one(2);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaRanksFamilies,
                         ::testing::Values("llama2", "llama_bias", "qwen2", "qwen3", "qwen3_moe",
                                           "gemma3", "deepseek_v2_lite", "deepseek_v3"),
                         [](const auto& family) { return std::string(family.param); });

TEST_F(CudaRanksBits, FourRanksComputeAndStoreWhatOneDoes) {
  write_for_ranks("llama2", 4, WeightType::kBf16);
  expect_ranks_equal_one(4);
}

TEST_F(CudaRanksBits, OtherTypesOfWeightsAndPools) {
  write_for_ranks("qwen3", 2, WeightType::kF32);
  expect_ranks_equal_one(2, {.dtype = DType::kF32});
  write_for_ranks("qwen3", 2, WeightType::kF16);
  expect_ranks_equal_one(2, {.dtype = DType::kInt8});
}

// Which tokens a row attends to every KV head chooses by itself.
TEST_F(CudaRanksBits, SparseAttentionChoosesAsOneRankDoes) {
  const SparseDial quarter = {.dense_tokens = 8, .kept_tokens = 1, .kept_of = 4};
  for (const int ranks : {2, 4}) {
    write_for_ranks("llama2", ranks, WeightType::kBf16);
    write_calibration();
    expect_ranks_equal_one(ranks, {.dial = quarter});
  }
}

// Scales are an output's own, so that a rank's are those of one alone.
TEST_F(CudaRanksBits, RoundedWeightsAreCutAsOthersAre) {
  for (const std::string_view name : {"qwen2", "qwen3_moe", "deepseek_v3"}) {
    SCOPED_TRACE(name);
    write_for_ranks(name, 2, WeightType::kBf16);
    expect_ranks_equal_one(2, {.weights = WeightRounding::kInt4});
  }
  write_for_ranks("llama_bias", 2, WeightType::kF32);
  expect_ranks_equal_one(2, {.dtype = DType::kF32, .weights = WeightRounding::kInt8});
}

// Of a mixture's experts nothing can be changed, but what lies around them. Latent attention is
// changed as it is absorbed.
TEST_F(CudaRanksBits, AdaptersChangeWhatSeveralComputeAsTheyDoOnOne) {
  for (const std::string_view name : {"llama2", "qwen3_moe"}) {
    SCOPED_TRACE(name);
    write_for_ranks(name, 2, WeightType::kBf16);
    expect_ranks_equal_one(2, {.adapters = write_adapters({"o_proj", "down_proj"})});
  }
  for (const std::string_view name : {"deepseek_v2_lite", "deepseek_v3"}) {
    SCOPED_TRACE(name);
    write_for_ranks(name, 2, WeightType::kF32);
    expect_ranks_equal_one(2, {.dtype = DType::kF32, .adapters = write_adapters({"kv_b_proj"})});
  }
  write_for_ranks("llama2", 4, WeightType::kBf16);
  expect_ranks_equal_one(
      4, {.weights = WeightRounding::kInt8, .adapters = write_adapters({"v_proj"})});
}

// Of a tied head, too, each rank has its part.
TEST_F(CudaRanksBits, MatricesOfSeveralTypesAreCutAsOthersAre) {
  const OtherType router = {".mlp.gate.weight"};
  write_for_ranks("qwen3_moe", 2, WeightType::kBf16,
                  {router, {"o_proj.weight"}, {"3.up_proj.weight", WeightType::kF16}});
  expect_ranks_equal_one(2);
  write_for_ranks("deepseek_v3", 2, WeightType::kBf16, {router, {"kv_b_proj.weight"}});
  expect_ranks_equal_one(2);
  write_for_ranks("qwen2", 2, WeightType::kF16, {{"embed_tokens.weight"}, {"v_proj.weight"}});
  expect_ranks_equal_one(2);
}

// The first `tokens` tokens of a text, as a batch.
OneRequest text_of(std::int64_t tokens) {
  return OneRequest(kPageSize, random_tokens(tokens, 200, 1));
}

// The text needs pages that rank 1 does not have.
void expect_error_of_one_is_of_all(const std::string& directory, Exchange exchange) {
  const OneRequest too_long = text_of(30);
  const OneRequest fits = text_of(6);
  ThreadRanks(2).run([&](RankGroup& group) {
    const std::int64_t pages = group.rank() == 0 ? 16 : 3;
    Rank rank(directory, {.exchange = exchange, .pages = pages}, &group);
    if (group.rank() > 0) {
      EXPECT_TRUE(follow_leader(rank.runner(), rank.pools(), group).ok());
      return;
    }
    LeadingRunner leader(rank.runner(), group);
    const auto failed = leader.forward(too_long.batch(), rank.pools());
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().detail, "rank 1: batch: slot 12 is outside the pool");
    const auto logits = leader.forward(fits.batch(), rank.pools());
    ASSERT_TRUE(logits.ok()) << to_string(logits.error());
    EXPECT_EQ(logits->outputs, 1);
  });
}

TEST_F(CudaRanksBits, AnErrorOfAnotherRankIsTheStepsAndTheNextOneIsComputed) {
  write_for_ranks("llama2", 2, WeightType::kBf16);
  expect_error_of_one_is_of_all(directory(), Exchange::kStaged);
}

#ifdef STEMMA_SIMT
// The emulated GPU is one, of both ranks: it is lost in the middle of a step.
TEST_F(CudaRanksBits, AGpuThatIsLostEndsTheStepOnAllAndNobodyWaits) {
  write_for_ranks("llama2", 2, WeightType::kBf16);
  const OneRequest text = text_of(10);
  ThreadRanks(2).run([&](RankGroup& group) {
    Rank rank(directory(), {}, &group);
    if (group.rank() > 0) {
      EXPECT_TRUE(follow_leader(rank.runner(), rank.pools(), group).ok());
      return;
    }
    LeadingRunner leader(rank.runner(), group);
    ASSERT_TRUE(leader.forward(text.batch(), rank.pools()).ok());
    machine().fail_after_kernels(25);
    for (int step = 0; step < 2; ++step) {
      const auto failed = leader.forward(text.batch(), rank.pools());
      ASSERT_FALSE(failed.ok());
      EXPECT_THAT(failed.error().detail, testing::HasSubstr("the emulated GPU has failed"));
    }
  });
}
#endif

#ifndef STEMMA_SIMT
TEST_F(CudaRanksBits, OverNcclToo) {
  if (CudaDevice::count() < 2) {
    GTEST_SKIP() << "not run: 2 GPUs are needed, there are " << CudaDevice::count();
  }
  for (const std::string_view name : {"llama2", "gemma3"}) {
    SCOPED_TRACE(name);
    write_for_ranks(name, 2, WeightType::kBf16);
    expect_ranks_equal_one(2, {.exchange = Exchange::kNccl});
  }
  expect_error_of_one_is_of_all(directory(), Exchange::kNccl);
}
#endif

TEST_F(CudaRanksBits, MoreRanksThanGpusAreRefusedWithBothNumbers) {
  const int devices = CudaDevice::count();
  ThreadRanks(devices + 1).run([&](RankGroup& group) {
    const auto backend = make_cuda_backend(group, CudaRunnerOptions());
    ASSERT_FALSE(backend.ok());
    EXPECT_EQ(backend.error().detail, "--tensor-parallel " + std::to_string(devices + 1) +
                                          ": every rank takes a GPU of its own, and there are " +
                                          std::to_string(devices));
  });
}

TEST_F(CudaRanksBits, WhatSeveralCannotComputeIsRefusedWithTheNumbers) {
  const auto refused = [](std::string_view name, int ranks, std::int64_t intermediate = 160) {
    ModelConfig config = tiny_model_config(name);
    config.intermediate = intermediate;
    return check_cut(config, {0, ranks}).error().detail;
  };
  EXPECT_EQ(refused("qwen3_moe", 5, 320),
            "--tensor-parallel 5: the model's moe_intermediate_size of 96 does not divide into "
            "multiples of 8 over 5 GPUs");
  EXPECT_EQ(refused("llama2", 3),
            "--tensor-parallel 3: the model's intermediate_size of 160 does not divide into "
            "multiples of 8 over 3 GPUs");
}

}  // namespace
}  // namespace stemma
