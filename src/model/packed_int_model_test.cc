// Models whose files store matrices in packed whole numbers: codes that int4 or int8 can keep are
// kept, and what they stand for is what the files say; of others, and where it is asked for, the
// bits of the logits are those of the same model written as the values that its codes stand for.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "model/coded_fixture.h"

namespace stemma {
namespace {

using Layout = PackedIntConfig::Layout;

class PackedIntModels : public CodedModels,
                        public ::testing::WithParamInterface<std::tuple<std::string_view, Layout>> {
 protected:
  void write(WeightType scale_type, bool is_symmetric) {
    const auto& [name, layout] = GetParam();
    packed_ = {.layout = layout,
               .group_inputs = group_inputs_,
               .zeros_less_one = layout == Layout::kGptq,
               .is_symmetric = is_symmetric,
               .bits = bits_};
    RandomModelOptions options = {.type = scale_type, .packed = {scale_type}};
    options.config.coded = packed_;
    write_both(name, options, [&](const TensorValues& tensor) {
      return to_packed_int(tensor, packed_, {scale_type}).values;
    });
  }

  std::int64_t group_inputs_ = 64;
  int bits_ = 4;
  PackedIntConfig packed_;
};

// Of the layouts that have them.
class EightBitModels : public PackedIntModels {
 protected:
  EightBitModels() { bits_ = 8; }
};

// A bf16 scale is kept as it is: what is computed with are codes times scales, not even rounded.
TEST_P(PackedIntModels, CodesAreKeptInFourBits) {
  for (const bool is_symmetric : {true, false}) {
    write(WeightType::kBf16, is_symmetric);
    const ModelWeights kept = weights_of(coded_, {});
    const PackedWeights& output = kept.layers[1].output;
    ASSERT_EQ(output.format(), is_symmetric ? WeightFormat::kInt4 : WeightFormat::kInt4Shifted);
    const std::string name = "model.layers.1.self_attn.o_proj.weight";
    const std::vector<std::int64_t> shape = {output.n(), output.k()};
    const auto expected =
        to_packed_int({{name, shape}, random_tensor(name, shape, 1)}, packed_, {WeightType::kBf16})
            .values;
    for (std::int64_t i = 0; i < output.n(); ++i) {
      const auto first = expected.begin() + i * output.k();
      ASSERT_EQ(row_of(output, i), std::vector<float>(first, first + output.k())) << i;
    }
    EXPECT_NE(kept.compute_format().find(is_symmetric ? "int4" : "int4_shifted"),
              std::string::npos);
    EXPECT_LT(kept.rounding.total().relative(), 2e-3) << "values were rounded to bf16, codes not";
  }
}

TEST_P(PackedIntModels, KeptCodesGiveNearlyTheLogitsOfTheirValues) {
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
TEST_P(PackedIntModels, Int4KeepsCodesToo) {
  write(WeightType::kF16, false);
  const ModelWeights rounded = weights_of(coded_, {.rounding = WeightRounding::kInt4});
  const ModelWeights kept = weights_of(coded_, {});
  EXPECT_EQ(rounded.layers[1].output.format(), WeightFormat::kInt4Shifted);
  EXPECT_EQ(row_of(rounded.layers[1].output, 3), row_of(kept.layers[1].output, 3));
  EXPECT_EQ(rounded.embeddings.format(), WeightFormat::kInt8);
}

TEST_P(PackedIntModels, WideLogitsAreThoseOfTheWidenedFiles) {
  write(WeightType::kBf16, true);
  expect_same_logits(WeightRounding::kWide, WeightRounding::kNone);
  EXPECT_EQ(load(coded_, WeightRounding::kWide)->compute_format(), "bf16");
}

TEST_P(PackedIntModels, SoAreThoseOfCodesThatCannotBeKept) {
  group_inputs_ = 32;
  write(WeightType::kF16, false);
  expect_same_logits(WeightRounding::kNone, WeightRounding::kNone);
  expect_same_logits(WeightRounding::kInt4, WeightRounding::kInt4);
}

TEST_P(EightBitModels, CodesAreKeptWhereAnOutputIsOneGroup) {
  group_inputs_ = 0;
  write(WeightType::kBf16, true);
  const ModelWeights kept = weights_of(coded_, {});
  const PackedWeights& output = kept.layers[1].output;
  ASSERT_EQ(output.format(), WeightFormat::kInt8);
  const std::string name = "model.layers.1.self_attn.o_proj.weight";
  const std::vector<std::int64_t> shape = {output.n(), output.k()};
  const auto expected =
      to_packed_int({{name, shape}, random_tensor(name, shape, 1)}, packed_, {WeightType::kBf16})
          .values;
  for (std::int64_t i = 0; i < output.n(); ++i) {
    const auto first = expected.begin() + i * output.k();
    ASSERT_EQ(row_of(output, i), std::vector<float>(first, first + output.k())) << i;
  }
  expect_same_logits(WeightRounding::kWide, WeightRounding::kNone);
}

TEST_P(EightBitModels, CodesBecomeNumbersWhereGroupsHaveScalesOfTheirOwn) {
  write(WeightType::kF16, false);
  expect_same_logits(WeightRounding::kNone, WeightRounding::kNone);
}

TEST_P(PackedIntModels, SoAreThoseOfWeightsRoundedToEightBits) {
  write(WeightType::kF16, false);
  expect_same_logits(WeightRounding::kInt8, WeightRounding::kInt8);
}

TEST_P(PackedIntModels, ARankHoldsItsOutputsOfWhatIsKept) {
  write(WeightType::kF16, false);
  if (!can_be_cut()) GTEST_SKIP() << "cannot be cut";
  const ModelWeights whole = weights_of(coded_, {});
  const ModelWeights half = weights_of(coded_, {.shard = {1, 2}});
  const PackedWeights& all = whole.layers[1].output;
  const PackedWeights& own = half.layers[1].output;
  ASSERT_EQ(own.format(), WeightFormat::kInt4Shifted);
  const std::int64_t first = all.n() - own.n();
  ASSERT_GT(first, 0);
  for (std::int64_t i = 0; i < own.n(); ++i) {
    ASSERT_EQ(row_of(own, i), row_of(all, first + i)) << i;
  }
}

std::string name_of(const ::testing::TestParamInfo<PackedIntModels::ParamType>& info) {
  constexpr std::array<const char*, 3> kLayouts = {"gptq", "awq", "compressed_tensors"};
  return std::string(std::get<0>(info.param)) + "_" +
         kLayouts[static_cast<std::size_t>(std::get<1>(info.param))];
}

constexpr std::array<std::string_view, 6> kFamilies = {"llama_bias",  "qwen3",       "qwen3_moe",
                                                       "deepseek_v2", "deepseek_v3", "gemma3"};

INSTANTIATE_TEST_SUITE_P(Families, PackedIntModels,
                         ::testing::Combine(::testing::ValuesIn(kFamilies),
                                            ::testing::Values(Layout::kGptq, Layout::kAwq,
                                                              Layout::kCompressedTensors)),
                         name_of);

INSTANTIATE_TEST_SUITE_P(Families, EightBitModels,
                         ::testing::Combine(::testing::ValuesIn(kFamilies),
                                            ::testing::Values(Layout::kGptq,
                                                              Layout::kCompressedTensors)),
                         name_of);

}  // namespace
}  // namespace stemma
