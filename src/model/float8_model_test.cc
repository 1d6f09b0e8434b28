// Models whose files store matrices in 8 bits: the bits of the logits are those of the same model
// written as the bf16 values that codes and scales stand for, in every family, rounded or cut too.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/float16.h"
#include "base/temp_directory.h"
#include "model/model_runner.h"
#include "model/random_model.h"
#include "model/runner_trial.h"
#include "model/weight_files.h"

namespace stemma {
namespace {

constexpr Float8Config kTiles = {.tile_outputs = 24, .tile_inputs = 16};
constexpr std::int64_t kTokens = 40;

// One model in two directories.
class Float8Models : public ::testing::TestWithParam<std::string_view> {
 protected:
  void write(const Float8Config& float8, const Float8Storage& storage) {
    config_ = tiny_model_config(GetParam());
    ASSERT_TRUE(write_random_model(wide_.path(), {.config = config_, .type = kType}).ok());
    ModelConfig coded = config_;
    coded.coded = float8;
    ASSERT_TRUE(
        write_random_model(coded_.path(), {.config = coded, .type = kType, .float8 = storage})
            .ok());
    std::vector<TensorValues> tensors;
    for (const TensorSpec& spec : needed_tensors(config_)) {
      tensors.push_back(widened(spec, float8, storage));
    }
    ASSERT_TRUE(write_safetensors(wide_.file("model.safetensors"), tensors, kType).ok());
  }

  // Of every row; with weights rounded once more while they are loaded.
  std::vector<float> logits(const TempDirectory& directory, WeightRounding rounding) {
    ModelRunnerOptions options;
    options.outputs_max = options.rows_max = kTokens;
    options.weights = rounding;
    const auto runner = ModelRunner::load(directory.path(), options, threads_);
    EXPECT_TRUE(runner.ok()) << to_string(runner.error());
    if (!runner.ok()) return {};
    KvShape shape = (*runner)->pool_shape();
    shape.page_size = 16;
    shape.pages = 8;
    const auto pool = make_kv_pool(shape, KvLayout::kLayerFirst, threads_);
    RunnerTrial trial(**runner, **pool);
    std::vector<TokenId> tokens;
    for (TokenId token = 0; token < kTokens; ++token) tokens.push_back(token * 5 % 200);
    EXPECT_TRUE(trial.finish(trial.add(std::move(tokens)), kTokens).ok());
    return trial.logits(0);
  }

  void expect_same_logits(WeightRounding rounding = WeightRounding::kNone) {
    const auto expected = logits(wide_, rounding);
    const auto got = logits(coded_, rounding);
    ASSERT_EQ(expected.size(), got.size());
    EXPECT_EQ(std::memcmp(expected.data(), got.data(), got.size() * sizeof(float)), 0);
  }

  // What a rank of two holds of either.
  ModelWeights half(const TempDirectory& directory, const CodedConfig& coded) {
    auto opened = WeightFiles::open(files_, directory.path(), coded);
    EXPECT_TRUE(opened.ok()) << to_string(opened.error());
    auto weights = load_weights(config_, *opened, threads_, {.shard = {1, 2}});
    EXPECT_TRUE(weights.ok()) << to_string(weights.error());
    return std::move(weights).value();
  }

  static constexpr WeightType kType = WeightType::kBf16;
  TempDirectory wide_;
  TempDirectory coded_;
  PosixFiles files_;
  ThreadPool threads_{2};
  ModelConfig config_;

 private:
  // Codes times their scales, one by one.
  TensorValues widened(const TensorSpec& spec, const Float8Config& float8,
                       const Float8Storage& storage) const {
    TensorValues tensor = {spec, random_weights(config_, spec, 1)};
    if (!spec.name.ends_with("_proj.weight") && !spec.name.ends_with("_mqa.weight")) return tensor;
    const auto parts = to_float8(tensor, float8, storage);
    const std::int64_t inputs = spec.shape[1];
    const std::int64_t scale_columns = parts[1].spec.shape[1];
    const std::int64_t high = float8.tile_outputs > 0 ? float8.tile_outputs : 1;
    const std::int64_t wide = float8.tile_inputs > 0 ? float8.tile_inputs : inputs;
    for (std::int64_t i = 0; i < std::ssize(tensor.values); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const std::int64_t tile = i / inputs / high * scale_columns + i % inputs / wide;
      tensor.values[at] = parts[0].values[at] * parts[1].values[static_cast<std::size_t>(tile)];
    }
    return tensor;
  }
};

TEST_P(Float8Models, LogitsAreThoseOfTheWidenedFiles) {
  write(kTiles, {.scale_type = WeightType::kBf16});
  expect_same_logits();
}

TEST_P(Float8Models, SoAreLogitsOfScalesOfOutputs) {
  write({}, {.scale_ending = "_scale", .by_output = true});
  expect_same_logits();
}

TEST_P(Float8Models, SoAreLogitsOfRoundedWeights) {
  write(kTiles, {});
  expect_same_logits(WeightRounding::kInt8);
}

TEST_P(Float8Models, ARankHoldsItsOutputsOfBoth) {
  write(kTiles, {});
  if (config_.kv_heads % 2 != 0 && config_.latent.rank == 0) GTEST_SKIP() << "cannot be cut";
  const ModelWeights expected = half(wide_, {});
  const ModelWeights got = half(coded_, kTiles);
  const PackedWeights& output = expected.layers[1].output;
  std::vector<float> expected_row(static_cast<std::size_t>(output.k()));
  std::vector<float> got_row(expected_row.size());
  for (std::int64_t i = 0; i < output.n(); ++i) {
    output.unpack_row(i, expected_row);
    got.layers[1].output.unpack_row(i, got_row);
    ASSERT_EQ(expected_row, got_row) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Float8Models,
                         ::testing::Values("llama_bias", "qwen3", "qwen3_moe", "deepseek_v2",
                                           "deepseek_v3", "gemma3"),
                         [](const auto& models) { return std::string(models.param); });

}  // namespace
}  // namespace stemma
