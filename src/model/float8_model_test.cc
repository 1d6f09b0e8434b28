// Models whose files store matrices in 8 bits: the bits of the logits are those of the same model
// written as the bf16 values that codes and scales stand for, in every family, rounded or cut too.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "model/coded_fixture.h"

namespace stemma {
namespace {

constexpr Float8Config kTiles = {.tile_outputs = 24, .tile_inputs = 16};

// Codes times their scales, one by one.
std::vector<float> widened(const TensorValues& tensor, const Float8Config& float8,
                           const Float8Storage& storage) {
  const auto parts = to_float8(tensor, float8, storage);
  const std::int64_t inputs = tensor.spec.shape[1];
  const std::int64_t scale_columns = parts[1].spec.shape[1];
  const std::int64_t high = float8.tile_outputs > 0 ? float8.tile_outputs : 1;
  const std::int64_t wide = float8.tile_inputs > 0 ? float8.tile_inputs : inputs;
  std::vector<float> values = parts[0].values;
  for (std::int64_t i = 0; i < std::ssize(values); ++i) {
    const std::int64_t tile = i / inputs / high * scale_columns + i % inputs / wide;
    values[static_cast<std::size_t>(i)] *= parts[1].values[static_cast<std::size_t>(tile)];
  }
  return values;
}

class Float8Models : public CodedModels, public ::testing::WithParamInterface<std::string_view> {
 protected:
  void write(const Float8Config& float8, const Float8Storage& storage) {
    RandomModelOptions options = {.type = WeightType::kBf16, .float8 = storage};
    options.config.coded = float8;
    write_both(GetParam(), options,
               [&](const TensorValues& tensor) { return widened(tensor, float8, storage); });
  }
};

TEST_P(Float8Models, LogitsAreThoseOfTheWidenedFiles) {
  write(kTiles, {.scale_type = WeightType::kBf16});
  expect_same_logits(WeightRounding::kNone, WeightRounding::kNone);
}

TEST_P(Float8Models, SoAreLogitsOfScalesOfOutputs) {
  write({}, {.scale_ending = "_scale", .by_output = true});
  expect_same_logits(WeightRounding::kNone, WeightRounding::kNone);
}

TEST_P(Float8Models, SoAreLogitsOfRoundedWeights) {
  write(kTiles, {});
  expect_same_logits(WeightRounding::kInt8, WeightRounding::kInt8);
}

TEST_P(Float8Models, ARankHoldsItsOutputsOfBoth) {
  write(kTiles, {});
  if (!can_be_cut()) GTEST_SKIP() << "cannot be cut";
  const ModelWeights expected = weights_of(wide_, {.shard = {1, 2}});
  const ModelWeights got = weights_of(coded_, {.shard = {1, 2}});
  const PackedWeights& output = expected.layers[1].output;
  for (std::int64_t i = 0; i < output.n(); ++i) {
    ASSERT_EQ(row_of(output, i), row_of(got.layers[1].output, i)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Float8Models,
                         ::testing::Values("llama_bias", "qwen3", "qwen3_moe", "deepseek_v2",
                                           "deepseek_v3", "gemma3"),
                         [](const auto& models) { return std::string(models.param); });

}  // namespace
}  // namespace stemma
