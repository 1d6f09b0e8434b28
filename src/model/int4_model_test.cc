// Models whose files store matrices in 4 bits: codes that int4 can keep are kept, and what they
// stand for is what the files say; of others, and where it is asked for, the bits of the logits are
// those of the same model written as the values that its codes stand for.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/temp_directory.h"
#include "model/model_runner.h"
#include "model/random_model.h"
#include "model/runner_trial.h"
#include "model/weight_files.h"

namespace stemma {
namespace {

using Layout = Int4Config::Layout;

constexpr std::int64_t kTokens = 40;

// One model in two directories.
class Int4Models : public ::testing::TestWithParam<std::tuple<std::string_view, Layout>> {
 protected:
  void write(WeightType scale_type, bool is_symmetric) {
    const Int4Storage storage = {scale_type};
    type_ = scale_type;
    config_ = tiny_model_config(std::get<0>(GetParam()));
    const Layout layout = std::get<1>(GetParam());
    int4_ = {.layout = layout,
             .group_inputs = group_inputs_,
             .zeros_less_one = layout == Layout::kGptq,
             .is_symmetric = is_symmetric};
    ASSERT_TRUE(write_random_model(wide_.path(), {.config = config_, .type = type_}).ok());
    ModelConfig coded = config_;
    coded.coded = int4_;
    ASSERT_TRUE(
        write_random_model(coded_.path(), {.config = coded, .type = type_, .int4 = storage}).ok());
    std::vector<TensorValues> tensors;
    for (const TensorSpec& spec : needed_tensors(config_)) {
      TensorValues tensor = {spec, random_weights(config_, spec, 1)};
      if (spec.name.ends_with("_proj.weight") || spec.name.ends_with("_mqa.weight")) {
        tensor.values = to_int4(tensor, int4_, storage).values;
      }
      tensors.push_back(std::move(tensor));
    }
    ASSERT_TRUE(write_safetensors(wide_.file("model.safetensors"), tensors, type_).ok());
  }

  std::unique_ptr<ModelRunner> load(const TempDirectory& directory, WeightRounding rounding) {
    ModelRunnerOptions options;
    options.outputs_max = options.rows_max = kTokens;
    options.weights = rounding;
    auto runner = ModelRunner::load(directory.path(), options, threads_);
    EXPECT_TRUE(runner.ok()) << to_string(runner.error());
    return std::move(runner).value();
  }

  // Of every row.
  std::vector<float> logits(const TempDirectory& directory, WeightRounding rounding) {
    const auto runner = load(directory, rounding);
    KvShape shape = runner->pool_shape();
    shape.page_size = 16;
    shape.pages = 8;
    const auto pool = make_kv_pool(shape, KvLayout::kLayerFirst, threads_);
    RunnerTrial trial(*runner, **pool);
    std::vector<TokenId> tokens;
    for (TokenId token = 0; token < kTokens; ++token) tokens.push_back(token * 5 % 200);
    EXPECT_TRUE(trial.finish(trial.add(std::move(tokens)), kTokens).ok());
    return trial.logits(0);
  }

  // Of the coded files and, as they are or rounded likewise, of the wide ones.
  void expect_same_logits(WeightRounding rounding, WeightRounding of_wide) {
    const auto expected = logits(wide_, of_wide);
    const auto got = logits(coded_, rounding);
    ASSERT_EQ(expected.size(), got.size());
    EXPECT_EQ(std::memcmp(expected.data(), got.data(), got.size() * sizeof(float)), 0);
  }

  ModelWeights weights(const TempDirectory& directory, const CodedConfig& coded,
                       const WeightOptions& options) {
    auto opened = WeightFiles::open(files_, directory.path(), coded);
    EXPECT_TRUE(opened.ok()) << to_string(opened.error());
    auto loaded = load_weights(config_, *opened, threads_, options);
    EXPECT_TRUE(loaded.ok()) << to_string(loaded.error());
    return std::move(loaded).value();
  }

  std::int64_t group_inputs_ = 64;
  WeightType type_ = WeightType::kBf16;
  TempDirectory wide_;
  TempDirectory coded_;
  PosixFiles files_;
  ThreadPool threads_{2};
  ModelConfig config_;
  Int4Config int4_;
};

std::vector<float> row_of(const PackedWeights& matrix, std::int64_t row) {
  std::vector<float> values(static_cast<std::size_t>(matrix.k()));
  matrix.unpack_row(row, values);
  return values;
}

// A bf16 scale is kept as it is: what is computed with are codes times scales, not even rounded.
TEST_P(Int4Models, CodesAreKeptInFourBits) {
  for (const bool is_symmetric : {true, false}) {
    write(WeightType::kBf16, is_symmetric);
    const ModelWeights kept = weights(coded_, int4_, {});
    const PackedWeights& output = kept.layers[1].output;
    ASSERT_EQ(output.format(), is_symmetric ? WeightFormat::kInt4 : WeightFormat::kInt4Shifted);
    const std::string name = "model.layers.1.self_attn.o_proj.weight";
    const std::vector<std::int64_t> shape = {output.n(), output.k()};
    const auto expected =
        to_int4({{name, shape}, random_tensor(name, shape, 1)}, int4_, {WeightType::kBf16}).values;
    for (std::int64_t i = 0; i < output.n(); ++i) {
      const auto first = expected.begin() + i * output.k();
      ASSERT_EQ(row_of(output, i), std::vector<float>(first, first + output.k())) << i;
    }
    EXPECT_NE(kept.compute_format().find(is_symmetric ? "int4" : "int4_shifted"),
              std::string::npos);
    EXPECT_LT(kept.rounding.total().relative(), 2e-3) << "values were rounded to bf16, codes not";
  }
}

TEST_P(Int4Models, KeptCodesGiveNearlyTheLogitsOfTheirValues) {
  for (const bool is_symmetric : {true, false}) {
    write(WeightType::kF16, is_symmetric);
    if (config_.mixture.experts > 0) GTEST_SKIP() << "a row may go to another expert";
    const auto expected = logits(wide_, WeightRounding::kNone);
    const auto got = logits(coded_, WeightRounding::kNone);
    double error = 0;
    double norm = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      error += std::pow(expected[i] - got[i], 2);
      norm += std::pow(expected[i], 2);
    }
    EXPECT_LT(std::sqrt(error / norm), 1e-2) << "scales are rounded to bf16";
  }
}

// Nothing is rounded a second time.
TEST_P(Int4Models, Int4KeepsCodesToo) {
  write(WeightType::kF16, false);
  const ModelWeights rounded = weights(coded_, int4_, {.rounding = WeightRounding::kInt4});
  const ModelWeights kept = weights(coded_, int4_, {});
  EXPECT_EQ(rounded.layers[1].output.format(), WeightFormat::kInt4Shifted);
  EXPECT_EQ(row_of(rounded.layers[1].output, 3), row_of(kept.layers[1].output, 3));
  EXPECT_EQ(rounded.embeddings.format(), WeightFormat::kInt8);
}

TEST_P(Int4Models, WideLogitsAreThoseOfTheWidenedFiles) {
  write(WeightType::kBf16, true);
  expect_same_logits(WeightRounding::kWide, WeightRounding::kNone);
  EXPECT_EQ(load(coded_, WeightRounding::kWide)->compute_format(), "bf16");
}

TEST_P(Int4Models, SoAreThoseOfCodesThatCannotBeKept) {
  group_inputs_ = 32;
  write(WeightType::kF16, false);
  expect_same_logits(WeightRounding::kNone, WeightRounding::kNone);
  expect_same_logits(WeightRounding::kInt4, WeightRounding::kInt4);
}

TEST_P(Int4Models, SoAreThoseOfWeightsRoundedToEightBits) {
  write(WeightType::kF16, false);
  expect_same_logits(WeightRounding::kInt8, WeightRounding::kInt8);
}

TEST_P(Int4Models, ARankHoldsItsOutputsOfWhatIsKept) {
  write(WeightType::kF16, false);
  if (config_.kv_heads % 2 != 0 && config_.latent.rank == 0) GTEST_SKIP() << "cannot be cut";
  const ModelWeights whole = weights(coded_, int4_, {});
  const ModelWeights half = weights(coded_, int4_, {.shard = {1, 2}});
  const PackedWeights& all = whole.layers[1].output;
  const PackedWeights& own = half.layers[1].output;
  ASSERT_EQ(own.format(), WeightFormat::kInt4Shifted);
  const std::int64_t first = all.n() - own.n();
  ASSERT_GT(first, 0);
  for (std::int64_t i = 0; i < own.n(); ++i) {
    ASSERT_EQ(row_of(own, i), row_of(all, first + i)) << i;
  }
}

std::string name_of(const ::testing::TestParamInfo<Int4Models::ParamType>& info) {
  constexpr std::array<const char*, 3> kLayouts = {"gptq", "awq", "compressed_tensors"};
  return std::string(std::get<0>(info.param)) + "_" +
         kLayouts[static_cast<std::size_t>(std::get<1>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(
    Families, Int4Models,
    ::testing::Combine(::testing::Values("llama_bias", "qwen3", "qwen3_moe", "deepseek_v2",
                                         "deepseek_v3", "gemma3"),
                       ::testing::Values(Layout::kGptq, Layout::kAwq, Layout::kCompressedTensors)),
    name_of);

}  // namespace
}  // namespace stemma
