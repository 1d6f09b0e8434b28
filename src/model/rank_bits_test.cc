// Ranks: what several of them compute and store together is what one does, bit for bit (I13), for
// every family whose heads divide, every format, chunk and batch, with adapters and without.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/temp_directory.h"
#include "device/thread_ranks_fixture.h"
#include "model/calibration_fixture.h"
#include "model/model_runner.h"
#include "model/random_adapter.h"
#include "model/random_model.h"
#include "model/runner_trial.h"
#include "model/shard.h"
#include "pool/kv_pool_factory.h"

namespace stemma {
namespace {

struct Setting {
  WeightType weights = WeightType::kBf16;
  WeightRounding rounding = WeightRounding::kNone;
  DType kv = DType::kBF16;
  std::optional<SparseDial> dial = std::nullopt;
  bool adapted = false;  // two of four texts
};

// A model on disk, and two adapters of it: of all that can be changed, and of what ranks gather.
struct ModelFiles {
  ModelFiles(const ModelConfig& config, WeightType type) {
    STEMMA_CHECK(write_random_model(model.path(), {.config = config, .type = type}).ok(),
                 "written");
    write_adapter(all, {.config = config, .rank = 3, .type = type, .seed = 5});
    write_adapter(some, {.config = config, .targets = {"o_proj", "down_proj"}, .rank = 17});
  }
  static void write_adapter(const TempDirectory& directory, const RandomAdapterOptions& options) {
    STEMMA_CHECK(write_random_adapter(directory.path(), options).ok(), "written");
  }
  std::vector<AdapterSource> adapters() const {
    return {{"all", all.path()}, {"some", some.path()}};
  }

  TempDirectory model;
  TempDirectory all;
  TempDirectory some;
};

// One rank's runner and pool; alone without a group.
class Rank {
 public:
  Rank(const ModelFiles& files, const Setting& setting, RankGroup* group_or_null)
      : threads_(group_or_null == nullptr ? 1 : 2) {
    ModelRunnerOptions options = {
        .rows_max = 256, .outputs_max = 256, .weights = setting.rounding, .ranks = group_or_null};
    if (setting.adapted) options.adapters = files.adapters();
    if (setting.dial.has_value()) options.sparse = SparseOptions{*setting.dial, ""};
    auto runner = ModelRunner::load(files.model.path(), options, threads_);
    STEMMA_CHECK(runner.ok(), "the model loads");
    runner_ = std::move(runner).value();
    KvShape shape = runner_->pool_shape();
    shape.page_size = 16;
    shape.pages = 40;
    shape.dtype = setting.kv;
    pool_ =
        std::move(make_kv_pool(shape, KvLayout::kLayerFirst, threads_, runner_->heavy_channels()))
            .value();
  }

  ModelRunner& runner() { return *runner_; }
  KvPool& pool() { return *pool_; }

 private:
  ThreadPool threads_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<KvPool> pool_;
};

// What is computed: a text as a whole, then three texts in uneven pieces that share batches. Where
// there are adapters, each of them changes one of the three.
struct Outcome {
  std::vector<std::vector<float>> logits;
  std::unique_ptr<Rank> rank;  // whose pool they lie in
};

Outcome compute(std::unique_ptr<Rank> rank, std::int64_t vocab_tokens) {
  RunnerTrial trial(rank->runner(), rank->pool(), 5);
  const std::size_t whole = trial.add(random_tokens(70, vocab_tokens, 3));
  STEMMA_CHECK(trial.finish(whole, 70).ok(), "the text is computed");
  const bool adapted = !rank->runner().adapters()->list().empty();
  for (std::uint64_t i = 1; i <= 3; ++i) {
    const AdapterId adapter = adapted && i > 1 ? AdapterId(static_cast<int>(i) - 2) : AdapterId();
    trial.add(random_tokens(static_cast<std::int64_t>(20 + 13 * i), vocab_tokens, 100 + i),
              adapter);
  }
  for (std::int64_t round = 0;; ++round) {
    std::vector<RunnerTrial::Piece> pieces;
    for (std::size_t i = 1; i <= 3; ++i) {
      const std::int64_t wanted = 1 + (round + static_cast<std::int64_t>(i)) % 3 * 11;
      const std::int64_t left = trial.remaining_tokens(i);
      if (left > 0) pieces.push_back({i, std::min(wanted, left)});
    }
    if (pieces.empty()) break;
    STEMMA_CHECK(trial.step(pieces).ok(), "the batch is computed");
  }
  Outcome outcome;
  for (std::size_t i = 0; i <= 3; ++i) outcome.logits.push_back(trial.logits(i));
  outcome.rank = std::move(rank);
  return outcome;
}

// The bytes of K and V of one head in one layer, page by page, and what they are scaled by.
std::vector<std::byte> head_bytes(const KvPool& pool, std::int64_t layer, std::int64_t head) {
  const KvLayerView view = pool.layer_view(layer);
  const auto element = static_cast<std::size_t>(dtype_bytes(view.dtype));
  std::vector<std::byte> bytes;
  const auto append = [&](const void* from, std::int64_t at, std::int64_t elements,
                          std::size_t element_bytes) {
    const auto* const begin =
        static_cast<const std::byte*>(from) + static_cast<std::size_t>(at) * element_bytes;
    bytes.insert(bytes.end(), begin, begin + static_cast<std::size_t>(elements) * element_bytes);
  };
  for (std::int64_t page = 0; page < view.pages; ++page) {
    for (std::int64_t offset = 0; offset < view.page_size; ++offset) {
      const std::int64_t at =
          page * view.page_stride + offset * view.token_stride + head * view.head_stride;
      append(view.k, at, view.head_dim, element);
      append(view.v, at, view.value_dim, element);
      const std::int64_t scale =
          page * view.scale_page_stride + offset + head * view.scale_head_stride;
      if (view.k_scales != nullptr) append(view.k_scales, scale, 1, sizeof(float));
      if (view.v_scales != nullptr) append(view.v_scales, scale, 1, sizeof(float));
    }
  }
  return bytes;
}

// Each of a rank's heads lies in its pool as in that of one rank. Latent rows are all ranks'.
void expect_same_pages(KvPool& one, KvPool& part, int rank) {
  const bool replicated = one.shape().kind == KvKind::kMla;
  const std::int64_t first = replicated ? 0 : rank * part.shape().heads;
  for (std::int64_t layer = 0; layer < one.shape().layers; ++layer) {
    for (std::int64_t head = 0; head < part.shape().heads; ++head) {
      SCOPED_TRACE("layer " + std::to_string(layer) + " head " + std::to_string(first + head));
      EXPECT_TRUE(head_bytes(one, layer, first + head) == head_bytes(part, layer, head));
    }
  }
}

void expect_ranks_equal_one(const ModelConfig& config, int ranks, const Setting& setting = {}) {
  SCOPED_TRACE(std::to_string(ranks) + " ranks");
  const ModelFiles files(config, setting.weights);
  if (setting.dial.has_value()) {
    Rank dense(files, {.weights = setting.weights}, nullptr);
    ASSERT_TRUE(save_calibration_of(dense.runner(), files.model.path()).ok());
  }
  const Outcome expected =
      compute(std::make_unique<Rank>(files, setting, nullptr), config.vocab_tokens);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  ThreadRanks(ranks).run([&](RankGroup& group) {
    outcomes[static_cast<std::size_t>(group.rank())] =
        compute(std::make_unique<Rank>(files, setting, &group), config.vocab_tokens);
  });
  for (std::size_t i = 0; i < expected.logits.size(); ++i) {
    SCOPED_TRACE("text " + std::to_string(i));
    const std::vector<float>& logits = expected.logits[i];
    ASSERT_EQ(outcomes[0].logits[i].size(), logits.size());
    EXPECT_EQ(
        std::memcmp(outcomes[0].logits[i].data(), logits.data(), logits.size() * sizeof(float)), 0);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    expect_same_pages(expected.rank->pool(), outcomes[static_cast<std::size_t>(rank)].rank->pool(),
                      rank);
  }
}

bool divides(const ModelConfig& config, int ranks) {
  return config_of_shard(config, {.rank = 0, .ranks = ranks}).ok();
}

class RankBits : public ::testing::TestWithParam<std::string_view> {
 protected:
  RankBits() : config_(tiny_model_config(GetParam())) {
    if (divides(config_, 2)) return;
    config_.query_heads = config_.kv_heads = 4;  // one KV head: the same family with four
  }

  ModelConfig config_;
};

TEST_P(RankBits, SeveralRanksComputeAndStoreWhatOneDoes) {
  expect_ranks_equal_one(config_, 2);
  if (divides(config_, 4)) expect_ranks_equal_one(config_, 4);
}

TEST_P(RankBits, AdaptersChangeWhatSeveralComputeAsTheyDoOnOne) {
  expect_ranks_equal_one(config_, 2, {.adapted = true});
  if (divides(config_, 4)) expect_ranks_equal_one(config_, 4, {.adapted = true});
}

INSTANTIATE_TEST_SUITE_P(Families, RankBits, ::testing::ValuesIn(tiny_model_names()),
                         [](const auto& family) { return std::string(family.param); });

TEST(RankBitsOfFormats, EveryFormatOfWeights) {
  for (const std::string_view name : {"llama_bias", "qwen3_moe", "deepseek_v2"}) {
    SCOPED_TRACE(name);
    const ModelConfig config = tiny_model_config(name);
    for (const WeightType type : {WeightType::kF32, WeightType::kF16}) {
      expect_ranks_equal_one(config, 2, {.weights = type, .adapted = true});
    }
    for (const WeightRounding rounding : {WeightRounding::kInt8, WeightRounding::kInt4}) {
      expect_ranks_equal_one(config, 2, {.rounding = rounding, .adapted = true});
    }
  }
}

TEST(RankBitsOfFormats, EveryFormatOfKeysAndValues) {
  for (const DType kv :
       {DType::kF32, DType::kF16, DType::kFp8E4M3, DType::kFp8E5M2, DType::kInt8}) {
    SCOPED_TRACE(dtype_name(kv));
    expect_ranks_equal_one(tiny_model_config("llama2"), 2, {.kv = kv});
  }
}

// Which tokens a row attends to every KV head chooses by itself.
TEST(RankBitsOfFormats, SparseAttention) {
  for (const std::string_view name : {"llama2", "qwen3"}) {
    SCOPED_TRACE(name);
    ModelConfig config = tiny_model_config(name);
    config.query_heads = config.kv_heads = 4;
    const SparseDial quarter = {.dense_tokens = 16, .kept_tokens = 1, .kept_of = 4};
    const SparseDial eight = {.dense_tokens = 8, .kept_tokens = 8, .kept_of = 0};
    for (const SparseDial& dial : {quarter, eight}) {
      expect_ranks_equal_one(config, 2, {.dial = dial});
      expect_ranks_equal_one(config, 4, {.dial = dial});
    }
    expect_ranks_equal_one(config, 2, {.kv = DType::kF32, .dial = quarter});
  }
}

// Widths of which no rank has as much as another.
TEST(RankBitsOfFormats, OutputsThatDoNotDivide) {
  ModelConfig config = tiny_model_config("llama2");
  config.query_heads = config.kv_heads = 4;
  config.intermediate = 159;
  config.hidden = 66;
  expect_ranks_equal_one(config, 4);
  expect_ranks_equal_one(config, 4, {.adapted = true});
}

TEST(Shard, PartsCoverAllOutputsOnceAndDifferByOneAtMost) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (const std::int64_t outputs : {7, 64, 291}) {
      std::int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Shard shard = {rank, ranks};
        const OutputRange range = shard.range(outputs);
        EXPECT_EQ(range.first, next);
        EXPECT_LE(range.outputs, shard.most(outputs));
        EXPECT_GE(range.outputs, shard.most(outputs) - 1);
        next += range.outputs;
      }
      EXPECT_EQ(next, outputs);
    }
  }
}

TEST(Shard, HeadsThatDoNotDivideAreRefusedWithTheNumbers) {
  const auto error = [](std::string_view name, int ranks) {
    return config_of_shard(tiny_model_config(name), {0, ranks}).error().detail;
  };
  EXPECT_EQ(error("qwen2", 2),
            "--tensor-parallel 2: the model's 1 KV heads do not divide over 2 ranks");
  EXPECT_EQ(error("llama3", 3),
            "--tensor-parallel 3: the model's 4 query heads do not divide over 3 ranks");
}

}  // namespace
}  // namespace stemma
