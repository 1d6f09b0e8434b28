// Matrices of whole numbers of 8 bits: values by their definition, whatever the scales are of;
// models whose codes are kept, to the last one; what is wrong beside codes is one line that names
// the tensor.
#include "model/int8_matrix.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "model/coded_fixture.h"

namespace stemma {
namespace {

constexpr char kMatrix[] = "model.layers.0.mlp.up_proj.weight";

class Int8Files : public CodedFiles {
 protected:
  static TensorValues matrix() {
    const std::vector<std::int64_t> shape = {70, 100};
    return {{kMatrix, shape}, random_tensor(kMatrix, shape, 7)};
  }
};

TEST_F(Int8Files, ValuesAreCodesTimesTheScaleOfTheirOutput) {
  for (const WeightType type : {WeightType::kF32, WeightType::kF16, WeightType::kBf16}) {
    const Int8Tensors coded = to_int8(matrix(), type);
    write(coded.tensors);
    std::vector<float> expected;
    for (const float value : coded.values) expected.push_back(stored_value(value, type));
    EXPECT_EQ(read_numbers(Int8Config{}, kMatrix, type), expected);
  }
}

TEST_F(Int8Files, OneScaleServesTheTensor) {
  std::vector<TensorValues> tensors = to_int8(matrix(), WeightType::kF32).tensors;
  tensors[0].values = {0.5f};
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{}, {1}, {1, 1}}) {
    tensors[0].spec.shape = shape;
    write(tensors);
    const auto values = read_numbers(Int8Config{}, kMatrix, WeightType::kF32);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i],
                0.5f * static_cast<float>(static_cast<std::int8_t>(tensors[1].bytes[i])));
    }
  }
}

TEST_F(Int8Files, WhatIsWrongBesideCodesIsNamed) {
  std::vector<TensorValues> tensors = to_int8(matrix(), WeightType::kF32).tensors;
  write({tensors[1]});
  EXPECT_NE(error(Int8Config{})
                .find("model.safetensors: tensor 'model.layers.0.mlp.up_proj.weight': has codes "
                      "of 8 bits, and no scales with its name"),
            std::string::npos);
  tensors[0].spec.shape = {69, 1};
  tensors[0].values.pop_back();
  write(tensors);
  EXPECT_NE(error(Int8Config{}).find("expected 70 scales or one, found 69"), std::string::npos);
}

class Int8Models : public CodedModels, public ::testing::WithParamInterface<std::string_view> {
 protected:
  void SetUp() override {
    RandomModelOptions options = {.type = WeightType::kBf16};
    options.config.coded = Int8Config{};
    write_both(GetParam(), options, [](const TensorValues& tensor) {
      return to_int8(tensor, WeightType::kBf16).values;
    });
  }
};

// What is computed with are codes times scales, not even rounded to bf16.
TEST_P(Int8Models, CodesAreKeptInEightBits) {
  const std::string name = "model.layers.1.self_attn.o_proj.weight";
  for (const WeightRounding rounding : {WeightRounding::kNone, WeightRounding::kInt8}) {
    const ModelWeights kept = weights_of(coded_, {.rounding = rounding});
    const PackedWeights& output = kept.layers[1].output;
    ASSERT_EQ(output.format(), WeightFormat::kInt8);
    const std::vector<std::int64_t> shape = {output.n(), output.k()};
    const auto expected =
        to_int8({{name, shape}, random_tensor(name, shape, 1)}, WeightType::kBf16).values;
    for (std::int64_t i = 0; i < output.n(); ++i) {
      const auto first = expected.begin() + i * output.k();
      ASSERT_EQ(row_of(output, i), std::vector<float>(first, first + output.k())) << i;
    }
  }
  EXPECT_EQ(weights_of(coded_, {.rounding = WeightRounding::kInt4}).layers[1].output.format(),
            WeightFormat::kInt4);
}

TEST_P(Int8Models, WideLogitsAreThoseOfTheWidenedFiles) {
  expect_same_logits(WeightRounding::kWide, WeightRounding::kNone);
}

INSTANTIATE_TEST_SUITE_P(Families, Int8Models,
                         ::testing::Values("llama_bias", "qwen3_moe", "deepseek_v3", "gemma3"),
                         [](const auto& models) { return std::string(models.param); });

}  // namespace
}  // namespace stemma
