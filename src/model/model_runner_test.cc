// ModelRunner: I13 at the level of the runner (logits equal bit for bit over pages, chunks,
// batches, threads, layouts, for every family and KV type), the errors of load and forward, and the
// fields of the namespace.
#include "model/model_runner.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/faulty_files.h"
#include "base/math_library.h"
#include "base/temp_directory.h"
#include "model/random_model.h"
#include "model/runner_trial.h"
#include "pool/kv_pool_factory.h"

namespace stemma {
namespace {

// How one run of the same requests may differ from another.
struct Variant {
  std::int64_t page_size = 16;
  KvLayout layout = KvLayout::kLayerFirst;
  DType dtype = DType::kF32;
  int threads = 1;
  std::uint64_t seed = 1;  // of the order of pages
};

// A model on disk, and runners of it.
class Model {
 public:
  explicit Model(std::string_view name, WeightType type = WeightType::kBf16)
      : config_(tiny_model_config(name)) {
    const Status written = write_random_model(directory_.path(), {.config = config_, .type = type});
    STEMMA_CHECK(written.ok(), "the temporary directory can be written");
  }

  const ModelConfig& config() const { return config_; }
  const std::string& path() const { return directory_.path(); }

 private:
  TempDirectory directory_;
  ModelConfig config_;
};

// A runner with its threads and a pool for `tokens_max` tokens.
class Bench {
 public:
  Bench(const Model& model, const Variant& variant, std::int64_t tokens_max)
      : threads_(variant.threads) {
    ModelRunnerOptions options;
    options.rows_max = 1024;
    options.outputs_max = 1024;
    auto runner = ModelRunner::load(model.path(), options, threads_);
    STEMMA_CHECK(runner.ok(), "the model loads");
    runner_ = std::move(runner).value();
    KvShape shape = runner_->pool_shape();
    shape.page_size = variant.page_size;
    shape.pages = ceil_div(tokens_max, variant.page_size) + 40;
    shape.dtype = variant.dtype;
    auto pool = make_kv_pool(shape, variant.layout, threads_);
    STEMMA_CHECK(pool.ok(), "the pool fits");
    pool_ = std::move(pool).value();
  }

  ModelRunner& runner() { return *runner_; }
  KvPool& pool() { return *pool_; }

 private:
  ThreadPool threads_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<KvPool> pool_;
};

// The logits of every token of one request, computed alone, `chunk_tokens` at a time.
std::vector<float> logits_alone(const Model& model, const Variant& variant,
                                const std::vector<TokenId>& tokens, std::int64_t chunk_tokens) {
  Bench bench(model, variant, static_cast<std::int64_t>(tokens.size()));
  RunnerTrial trial(bench.runner(), bench.pool(), variant.seed);
  const std::size_t request = trial.add(tokens);
  const Status finished = trial.finish(request, chunk_tokens);
  EXPECT_TRUE(finished.ok()) << to_string(finished.error());
  return trial.logits(request);
}

void expect_same_bits(const std::vector<float>& expected, const std::vector<float>& got) {
  ASSERT_EQ(expected.size(), got.size());
  EXPECT_EQ(std::memcmp(expected.data(), got.data(), expected.size() * sizeof(float)), 0);
}

class RunnerBits : public ::testing::TestWithParam<std::string_view> {};

TEST_P(RunnerBits, SameForEveryPageSizeLayoutAndThreadCount) {
  const Model model(GetParam());
  const auto tokens = random_tokens(150, model.config().vocab_tokens, 3);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const auto expected = logits_alone(model, {.dtype = dtype}, tokens, 150);
    for (const float value : expected) {
      ASSERT_TRUE(std::isfinite(value));
    }
    for (const std::int64_t page_size : {1, 16, 64}) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " page " + std::to_string(page_size));
      expect_same_bits(expected, logits_alone(model,
                                              {.page_size = page_size,
                                               .layout = KvLayout::kPageFirst,
                                               .dtype = dtype,
                                               .threads = 2,
                                               .seed = 7},
                                              tokens, 150));
    }
  }
}

TEST_P(RunnerBits, SameForEveryChunkSize) {
  const Model model(GetParam());
  const auto tokens = random_tokens(37, model.config().vocab_tokens, 5);
  Bench bench(model, {.page_size = 16, .dtype = DType::kBF16, .threads = 2}, 37 * 40);
  RunnerTrial trial(bench.runner(), bench.pool());
  std::vector<float> expected;
  for (std::int64_t chunk = 37; chunk >= 1; --chunk) {
    SCOPED_TRACE(chunk);
    const std::size_t request = trial.add(tokens);
    ASSERT_TRUE(trial.finish(request, chunk).ok());
    if (expected.empty()) {
      expected = trial.logits(request);
    }
    expect_same_bits(expected, trial.logits(request));
  }
}

TEST_P(RunnerBits, SameInEveryBatch) {
  const Model model(GetParam());
  const Variant variant = {.page_size = 16, .dtype = DType::kBF16};
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::vector<float>> expected;
  for (std::uint64_t i = 0; i < 16; ++i) {
    prompts.push_back(
        random_tokens(static_cast<std::int64_t>(5 + 7 * i), model.config().vocab_tokens, 100 + i));
    expected.push_back(logits_alone(model, variant, prompts.back(), 1024));
  }
  for (const int batch : {1, 2, 3, 8, 16}) {
    SCOPED_TRACE(batch);
    Bench bench(model, {.page_size = 16, .dtype = DType::kBF16, .threads = 2}, 1200);
    RunnerTrial trial(bench.runner(), bench.pool(), 9);
    for (const auto& prompt : prompts) {
      trial.add(prompt);
    }
    // Uneven pieces, so that prefill and single tokens mix.
    for (std::size_t first = 0; first < prompts.size(); first += static_cast<std::size_t>(batch)) {
      for (std::int64_t round = 0;; ++round) {
        std::vector<RunnerTrial::Piece> pieces;
        for (std::size_t i = first;
             i < std::min(prompts.size(), first + static_cast<std::size_t>(batch)); ++i) {
          const std::int64_t wanted = 1 + (round + static_cast<std::int64_t>(i)) % 3 * 11;
          if (trial.remaining_tokens(i) > 0) {
            pieces.push_back({i, std::min(wanted, trial.remaining_tokens(i))});
          }
        }
        if (pieces.empty()) {
          break;
        }
        ASSERT_TRUE(trial.step(pieces).ok());
      }
    }
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      SCOPED_TRACE(i);
      expect_same_bits(expected[i], trial.logits(i));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, RunnerBits, ::testing::ValuesIn(tiny_model_names()),
                         [](const auto& family) { return std::string(family.param); });

TEST(ModelRunner, LongContextsKeepTheirBitsAcrossPartitions) {
  const Model model("llama3");
  const auto tokens = random_tokens(700, model.config().vocab_tokens, 6);
  const auto expected = logits_alone(model, {.dtype = DType::kBF16}, tokens, 700);
  expect_same_bits(
      expected,
      logits_alone(model, {.page_size = 1, .dtype = DType::kBF16, .threads = 2}, tokens, 129));
  expect_same_bits(
      expected,
      logits_alone(model, {.page_size = 64, .dtype = DType::kBF16, .threads = 2}, tokens, 64));
}

TEST(ModelRunner, ShardsComputeTheSame) {
  const Model model("qwen3", WeightType::kF16);
  TempDirectory sharded;
  ASSERT_TRUE(write_random_model(sharded.path(),
                                 {.config = model.config(), .type = WeightType::kF16, .shards = 4})
                  .ok());
  const auto tokens = random_tokens(20, model.config().vocab_tokens, 8);
  const auto expected = logits_alone(model, {}, tokens, 20);
  ThreadPool threads(1);
  const auto runner = ModelRunner::load(sharded.path(), {.outputs_max = 512}, threads);
  ASSERT_TRUE(runner.ok()) << to_string(runner.error());
  KvShape shape = (*runner)->pool_shape();
  shape.pages = shape.page_size = 16;
  const auto pool = make_kv_pool(shape, KvLayout::kLayerFirst, threads);
  RunnerTrial trial(**runner, **pool);
  ASSERT_TRUE(trial.finish(trial.add(tokens), 20).ok());
  expect_same_bits(expected, trial.logits(0));
}

TEST(ModelRunner, LoadErrorsNameFileAndField) {
  ThreadPool threads(1);
  TempDirectory empty;
  const auto error_of = [&](const std::string& path, const ModelRunnerOptions& options = {}) {
    const auto runner = ModelRunner::load(path, options, threads);
    EXPECT_FALSE(runner.ok());
    return runner.ok() ? "" : to_string(runner.error());
  };
  EXPECT_EQ(error_of(empty.path()), "not_found: " + empty.file("config.json") +
                                        ": cannot open (No such file or directory)");
  const Model model("llama2");
  EXPECT_EQ(error_of(model.path(), {.rows_max = 0}),
            "invalid_argument: rows_max: must be from 1 to 1048576 (got 0)");
  EXPECT_NE(error_of(model.path(), {.attention = "magic"}).find("magic"), std::string::npos);
  std::ofstream(model.path() + "/config.json") << R"({"architectures":["BertModel"]})";
  EXPECT_NE(error_of(model.path()).find("config.json: architectures: 'BertModel'"),
            std::string::npos);
  std::filesystem::remove(model.path() + "/config.json");
  ASSERT_TRUE(std::filesystem::create_directory(model.path() + "/config.json"));
  EXPECT_NE(error_of(model.path()).find("config.json: not a regular file"), std::string::npos);
}

TEST(ModelRunner, EveryFailedReadOfLoadIsReported) {
  const Model model("llama2");
  ThreadPool threads(1);
  PosixFiles files;
  for (std::int64_t fail_at = 0;; ++fail_at) {
    FaultyFiles faulty(files, fail_at);
    const auto runner = ModelRunner::load(model.path(), {.files = &faulty}, threads);
    ASSERT_EQ(runner.ok(), !faulty.failed()) << "operation " << fail_at;
    if (runner.ok()) {
      break;
    }
  }
}

TEST(ModelRunner, ForwardRefusesWhatDoesNotFit) {
  const Model model("llama2");
  ThreadPool threads(1);
  const auto runner = ModelRunner::load(
      model.path(), {.rows_max = 8, .outputs_max = 8, .requests_max = 2, .context_tokens_max = 10},
      threads);
  ASSERT_TRUE(runner.ok());
  EXPECT_EQ((*runner)->context_tokens_max(), 10);
  KvShape shape = (*runner)->pool_shape();
  shape.pages = shape.page_size = 16;
  const auto pool = make_kv_pool(shape, KvLayout::kLayerFirst, threads);
  const auto error_of = [&](std::vector<TokenId> tokens, std::int64_t chunk_tokens) {
    RunnerTrial trial(**runner, **pool);
    const Status status = trial.finish(trial.add(std::move(tokens)), chunk_tokens);
    return status.ok() ? "" : to_string(status.error());
  };
  EXPECT_EQ(error_of({1, 2, 3}, 8), "");
  EXPECT_EQ(error_of({1, 291}, 8),
            "invalid_argument: batch: token 291 of row 1 is outside the vocabulary of 291");
  EXPECT_EQ(error_of({-1}, 8),
            "invalid_argument: batch: token -1 of row 0 is outside the vocabulary of 291");
  EXPECT_EQ(error_of(std::vector<TokenId>(9, 1), 9), "too_large: batch: 9 rows; at most 8 fit");
  EXPECT_EQ(error_of(std::vector<TokenId>(11, 1), 8),
            "too_large: batch: 11 tokens in a request; at most 10 fit");
  shape.heads += 1;
  const auto other = make_kv_pool(shape, KvLayout::kLayerFirst, threads);
  RunnerTrial trial(**runner, **other);
  EXPECT_EQ(trial.finish(trial.add({1}), 1).error().code, ErrorCode::kInvalidArgument);
}

TEST(ModelRunner, ALongerContextThanTheModelCanHaveIsRefusedByTheFlag) {
  const auto load = [](const Model& model, std::int64_t context_tokens) {
    ThreadPool threads(1);
    return ModelRunner::load(model.path(), {.context_tokens_max = context_tokens}, threads);
  };
  const Model plain("llama2");
  EXPECT_TRUE(load(plain, 4096).ok());
  const auto refused = load(plain, 4097);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(to_string(refused.error()),
            "invalid_argument: --context-tokens (context_tokens_max) must be at most 4096, which "
            "is what config.json says this model can have (got 4097)");
}

TEST(ModelRunner, NamespaceFieldsTellModelsApart) {
  ThreadPool threads(1);
  const auto fields_of = [&](const Model& model) {
    const auto runner = ModelRunner::load(model.path(), {}, threads);
    STEMMA_CHECK(runner.ok(), "the model loads");
    return (*runner)->namespace_fields();
  };
  const Model bf16("llama2");
  const Model f16("llama2", WeightType::kF16);
  EXPECT_EQ(fields_of(bf16), fields_of(bf16));
  EXPECT_NE(fields_of(bf16), fields_of(f16));
  std::ofstream(bf16.path() + "/config.json", std::ios::app) << " ";
  const auto original = fields_of(Model("llama2"));
  const auto touched = fields_of(bf16);
  ASSERT_EQ(original.size(), touched.size());
  EXPECT_EQ(original[0], touched[0]);  // the same weights
  EXPECT_NE(original[1], touched[1]);  // another text of the configuration
  EXPECT_THAT(original, testing::Contains(testing::Pair("math_library", math_library_name())));
  EXPECT_THAT(original, testing::Not(testing::Contains(testing::Key("experts"))));
  EXPECT_THAT(fields_of(Model("qwen3_moe")), testing::Contains(testing::Key("experts")));
}

}  // namespace
}  // namespace stemma
