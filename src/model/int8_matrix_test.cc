// Matrices of whole numbers of 8 bits: values by their definition, whatever the scales are of;
// models whose codes are kept, to the last one; what is wrong beside codes is one line that names
// the tensor.
#include "model/int8_matrix.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/temp_directory.h"
#include "model/model_runner.h"
#include "model/random_model.h"
#include "model/runner_trial.h"
#include "model/weight_files.h"

namespace stemma {
namespace {

constexpr char kMatrix[] = "model.layers.0.mlp.up_proj.weight";

class Int8Files : public ::testing::Test {
 protected:
  static TensorValues matrix() {
    const std::vector<std::int64_t> shape = {70, 100};
    return {{kMatrix, shape}, random_tensor(kMatrix, shape, 7)};
  }

  void write(const std::vector<TensorValues>& tensors) {
    ASSERT_TRUE(
        write_safetensors(directory_.file("model.safetensors"), tensors, WeightType::kF32).ok());
  }

  std::vector<float> read(WeightType type) {
    auto opened = WeightFiles::open(files_, directory_.path(), Int8Config{});
    EXPECT_TRUE(opened.ok()) << to_string(opened.error());
    std::vector<float> values;
    const auto digest = opened->read_all(
        threads_, [&](const TensorEntry& tensor, std::span<const std::byte> bytes) -> Status {
          if (tensor.name != kMatrix) return {};
          EXPECT_EQ(tensor.weight_type(), type);
          values = to_floats(type, bytes);
          return {};
        });
    EXPECT_TRUE(digest.ok()) << to_string(digest.error());
    return values;
  }

  std::string error() {
    const auto opened = WeightFiles::open(files_, directory_.path(), Int8Config{});
    EXPECT_FALSE(opened.ok());
    return opened.ok() ? "" : to_string(opened.error());
  }

  TempDirectory directory_;
  PosixFiles files_;
  ThreadPool threads_{2};
};

TEST_F(Int8Files, ValuesAreCodesTimesTheScaleOfTheirOutput) {
  for (const WeightType type : {WeightType::kF32, WeightType::kF16, WeightType::kBf16}) {
    const Int8Tensors coded = to_int8(matrix(), type);
    write(coded.tensors);
    std::vector<float> expected;
    for (const float value : coded.values) expected.push_back(stored_value(value, type));
    EXPECT_EQ(read(type), expected);
  }
}

TEST_F(Int8Files, OneScaleServesTheTensor) {
  std::vector<TensorValues> tensors = to_int8(matrix(), WeightType::kF32).tensors;
  tensors[0].values = {0.5f};
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{}, {1}, {1, 1}}) {
    tensors[0].spec.shape = shape;
    write(tensors);
    const std::vector<float> values = read(WeightType::kF32);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i],
                0.5f * static_cast<float>(static_cast<std::int8_t>(tensors[1].bytes[i])));
    }
  }
}

TEST_F(Int8Files, WhatIsWrongBesideCodesIsNamed) {
  std::vector<TensorValues> tensors = to_int8(matrix(), WeightType::kF32).tensors;
  write({tensors[1]});
  EXPECT_NE(error().find("model.safetensors: tensor 'model.layers.0.mlp.up_proj.weight': has codes "
                         "of 8 bits, and no scales with its name"),
            std::string::npos);
  tensors[0].spec.shape = {69, 1};
  tensors[0].values.pop_back();
  write(tensors);
  EXPECT_NE(error().find("expected 70 scales or one, found 69"), std::string::npos);
}

class Int8Models : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    config_ = tiny_model_config(GetParam());
    ASSERT_TRUE(
        write_random_model(wide_.path(), {.config = config_, .type = WeightType::kBf16}).ok());
    ModelConfig coded = config_;
    coded.coded = Int8Config{};
    ASSERT_TRUE(
        write_random_model(coded_.path(), {.config = coded, .type = WeightType::kBf16}).ok());
    std::vector<TensorValues> tensors;
    for (const TensorSpec& spec : needed_tensors(config_)) {
      TensorValues tensor = {spec, random_weights(config_, spec, 1)};
      if (spec.name.ends_with("_proj.weight") || spec.name.ends_with("_mqa.weight")) {
        tensor.values = to_int8(tensor, WeightType::kBf16).values;
      }
      tensors.push_back(std::move(tensor));
    }
    ASSERT_TRUE(
        write_safetensors(wide_.file("model.safetensors"), tensors, WeightType::kBf16).ok());
  }

  ModelWeights weights(WeightRounding rounding) {
    auto opened = WeightFiles::open(files_, coded_.path(), Int8Config{});
    EXPECT_TRUE(opened.ok()) << to_string(opened.error());
    auto loaded = load_weights(config_, *opened, threads_, {.rounding = rounding});
    EXPECT_TRUE(loaded.ok()) << to_string(loaded.error());
    return std::move(loaded).value();
  }

  // Of every row.
  std::vector<float> logits(const TempDirectory& directory, WeightRounding rounding) {
    ModelRunnerOptions options;
    options.outputs_max = options.rows_max = 40;
    options.weights = rounding;
    const auto runner = ModelRunner::load(directory.path(), options, threads_);
    EXPECT_TRUE(runner.ok()) << to_string(runner.error());
    KvShape shape = (*runner)->pool_shape();
    shape.page_size = 16;
    shape.pages = 8;
    const auto pool = make_kv_pool(shape, KvLayout::kLayerFirst, threads_);
    RunnerTrial trial(**runner, **pool);
    std::vector<TokenId> tokens;
    for (TokenId token = 0; token < 40; ++token) tokens.push_back(token * 5 % 200);
    EXPECT_TRUE(trial.finish(trial.add(std::move(tokens)), 40).ok());
    return trial.logits(0);
  }

  TempDirectory wide_;
  TempDirectory coded_;
  PosixFiles files_;
  ThreadPool threads_{2};
  ModelConfig config_;
};

// What is computed with are codes times scales, not even rounded to bf16.
TEST_P(Int8Models, CodesAreKeptInEightBits) {
  const std::string name = "model.layers.1.self_attn.o_proj.weight";
  for (const WeightRounding rounding : {WeightRounding::kNone, WeightRounding::kInt8}) {
    const ModelWeights kept = weights(rounding);
    const PackedWeights& output = kept.layers[1].output;
    ASSERT_EQ(output.format(), WeightFormat::kInt8);
    const std::vector<std::int64_t> shape = {output.n(), output.k()};
    const auto expected =
        to_int8({{name, shape}, random_tensor(name, shape, 1)}, WeightType::kBf16).values;
    std::vector<float> row(static_cast<std::size_t>(output.k()));
    for (std::int64_t i = 0; i < output.n(); ++i) {
      output.unpack_row(i, row);
      const auto first = expected.begin() + i * output.k();
      ASSERT_EQ(row, std::vector<float>(first, first + output.k())) << i;
    }
  }
  EXPECT_EQ(weights(WeightRounding::kInt4).layers[1].output.format(), WeightFormat::kInt4);
}

TEST_P(Int8Models, WideLogitsAreThoseOfTheWidenedFiles) {
  const auto expected = logits(wide_, WeightRounding::kNone);
  const auto got = logits(coded_, WeightRounding::kWide);
  ASSERT_EQ(expected.size(), got.size());
  EXPECT_EQ(std::memcmp(expected.data(), got.data(), got.size() * sizeof(float)), 0);
}

INSTANTIATE_TEST_SUITE_P(Families, Int8Models,
                         ::testing::Values("llama_bias", "qwen3_moe", "deepseek_v3", "gemma3"),
                         [](const auto& models) { return std::string(models.param); });

}  // namespace
}  // namespace stemma
