// CudaRunner of models whose matrices have several types: logits near those of the CPU whichever
// matrix has another one, and bits that depend on nothing but a row's own text (I13).
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "cuda/cuda_runner_fixture.h"
#include "model/random_adapter.h"

namespace stemma {
namespace {

constexpr std::int64_t kTokens = 40;

// A matrix in f32, in all layers or in one.
const OtherType kRouter = {"mlp.gate.weight"};
const OtherType kHead = {"lm_head.weight"};
const OtherType kEmbeddings = {"embed_tokens.weight"};
const OtherType kHeadsUp = {"kv_b_proj.weight"};

// Rows that the GPU rounds to bf16 and the CPU does not, before products: each by at most a unit
// and independently, so that the distance stays below the unit times the root of their number, with
// one more before the head. They are as many as where all matrices are of that type: two norms, q,
// weights of attention, what it gives, gate, up and their product; of latent attention three more.
constexpr int kHeadsRows = 8;
constexpr int kLatentRows = 11;

class CudaTypesTest : public CudaRunnerFixture {
 protected:
  double distance_allowed(int layer_rows) const {
    return std::ldexp(std::sqrt(static_cast<double>(layer_rows * config().layers + 1)), -8);
  }

  void expect_logits_of_cpu(const ModelConfig& config, const std::vector<OtherType>& others,
                            int layer_rows, const CudaVariant& variant = {}) {
    SCOPED_TRACE(others.front().ending);
    write_model(config, WeightType::kBf16, others);
    const auto tokens = prompt(kTokens, 3);
    const auto got = logits_alone(variant, tokens, kTokens);
    EXPECT_LT(relative_distance(logits_of_cpu(DType::kBF16, tokens), got),
              distance_allowed(layer_rows));
  }

  // Of nine rows in ten: of the others two scores are so near to each other that rows in 16 bits go
  // to another expert than the CPU's do.
  void expect_most_logits_of_cpu(std::string_view name, const std::vector<OtherType>& others,
                                 int layer_rows, const CodedConfig& coded = {}) {
    SCOPED_TRACE(others.front().ending);
    ModelConfig written = tiny_model_config(name);
    written.coded = coded;
    write_model(written, WeightType::kBf16, others);
    const auto tokens = prompt(kTokens, 3);
    const auto got = logits_alone({}, tokens, kTokens);
    const auto expected = logits_of_cpu(DType::kBF16, tokens);
    std::vector<double> distances;
    for (std::int64_t row = 0; row < kTokens; ++row) {
      distances.push_back(relative_distance(row_of(expected, row), row_of(got, row)));
    }
    std::sort(distances.begin(), distances.end());
    EXPECT_LT(distances[kTokens * 9 / 10], distance_allowed(layer_rows));
  }

  void expect_bits_of_a_row_alone(std::string_view name, const std::vector<OtherType>& others,
                                  const CodedConfig& coded = {}) {
    SCOPED_TRACE(name);
    ModelConfig written = tiny_model_config(name);
    written.coded = coded;
    write_model(written, WeightType::kBf16, others);
    expect_same_bits_however_cut(kTokens, 17);
    std::vector<std::vector<TokenId>> prompts;
    for (std::uint64_t i = 0; i < 3; ++i) {
      prompts.push_back(prompt(static_cast<std::int64_t>(5 + 18 * i), 100 + i));
    }
    expect_same_bits_in_a_batch(prompts, 2, 19);
  }

 private:
  std::vector<float> row_of(const std::vector<float>& logits, std::int64_t row) const {
    const auto begin = logits.begin() + row * config().vocab_tokens;
    return {begin, begin + config().vocab_tokens};
  }
};

TEST_F(CudaTypesTest, AProjectionOfAnotherTypeGivesTheLogitsOfTheCpu) {
  for (const char* const name : {"0.self_attn.q_proj.weight", "1.self_attn.o_proj.weight",
                                 "mlp.up_proj.weight", "1.mlp.down_proj.weight"}) {
    for (const WeightType type : {WeightType::kF32, WeightType::kF16}) {
      expect_logits_of_cpu(tiny_model_config("llama3"), {{name, type}}, kHeadsRows);
    }
  }
}

TEST_F(CudaTypesTest, AHeadInF32GivesTheLogitsOfTheCpu) {
  expect_logits_of_cpu(tiny_model_config("llama_bias"), {kHead}, kHeadsRows);
}

// Those of this model are tied to the head, and what they are scaled by is rounded to their type.
TEST_F(CudaTypesTest, EmbeddingsOfAnotherTypeGiveTheLogitsOfTheCpu) {
  for (const WeightType type : {WeightType::kF32, WeightType::kF16}) {
    expect_logits_of_cpu(tiny_model_config("gemma3"), {{kEmbeddings.ending, type}}, kHeadsRows);
  }
}

TEST_F(CudaTypesTest, ARouterInF32GivesTheLogitsOfTheCpu) {
  expect_most_logits_of_cpu("qwen3_moe", {kRouter}, kHeadsRows);
  expect_most_logits_of_cpu("deepseek_v3", {kRouter}, kLatentRows);
}

// One expert's matrix makes those of all experts of its layer f32.
TEST_F(CudaTypesTest, ExpertsInF32GiveTheLogitsOfTheCpu) {
  for (const char* const name : {"experts.3.up_proj.weight", "experts.0.down_proj.weight"}) {
    expect_most_logits_of_cpu("qwen3_moe", {{name}}, kHeadsRows);
  }
  expect_most_logits_of_cpu("deepseek_v3", {{"shared_experts.gate_proj.weight"}}, kLatentRows);
}

TEST_F(CudaTypesTest, LatentAttentionWithAMatrixOfAnotherTypeGivesTheLogitsOfTheCpu) {
  for (const char* const name : {"kv_b_proj.weight", "q_b_proj.weight", "kv_a_proj_with_mqa.weight",
                                 "self_attn.o_proj.weight"}) {
    expect_logits_of_cpu(dense_config("deepseek_v3"), {{name}}, kLatentRows);
  }
  expect_logits_of_cpu(dense_config("deepseek_v2_lite"),
                       {{"q_proj.weight", WeightType::kF16}, kHeadsUp}, kLatentRows);
}

// Of layers in f32 nothing is rounded, whatever type some matrices had: sums of up to 160 terms are
// added in another order. What embeddings are scaled by is rounded to the type that they had.
TEST_F(CudaTypesTest, WhereMostIsF32AllIs) {
  for (const char* const name : {"qwen3", "gemma3"}) {
    SCOPED_TRACE(name);
    ModelConfig config = tiny_model_config(name);
    config.hidden = 72;  // of which bf16 does not have the root
    write_model(config, WeightType::kF32,
                {{"v_proj.weight", WeightType::kF16}, {"embed_tokens.weight", WeightType::kBf16}});
    const auto tokens = prompt(kTokens, 3);
    const auto got = logits_alone({.dtype = DType::kF32}, tokens, kTokens);
    const auto sums = 160.0 * static_cast<double>(8 * config.layers + 1);
    EXPECT_LT(relative_distance(logits_of_cpu(DType::kF32, tokens), got),
              std::ldexp(std::sqrt(sums), -24));
    EXPECT_EQ(bench().runner->compute_format(), "f32");
  }
}

TEST_F(CudaTypesTest, TheVendorsProductsAreNearThoseOfTheCpu) {
  expect_logits_of_cpu(tiny_model_config("llama3"), {{"mlp.up_proj.weight"}, {"q_proj.weight"}},
                       kHeadsRows, {.options = {.deterministic = false}});
}

TEST_F(CudaTypesTest, BitsDoNotDependOnChunksPagesGraphsOrTheBatch) {
  expect_bits_of_a_row_alone("llama_bias", {kHead, {"o_proj.weight", WeightType::kF16}});
  expect_bits_of_a_row_alone("qwen3_moe", {kRouter, {"0.experts.3.up_proj.weight"}});
  expect_bits_of_a_row_alone("deepseek_v3", {kRouter, kHeadsUp, {"q_a_proj.weight"}, kEmbeddings});
}

// What is added is added to rows and products that have the types of others.
TEST_F(CudaTypesTest, AdaptersChangeProductsOfAnotherTypeToo) {
  write_model(tiny_model_config("llama3"), WeightType::kBf16,
              {{"q_proj.weight"}, {"gate_proj.weight"}, {"down_proj.weight"}});
  TempDirectory adapter;
  ASSERT_TRUE(
      write_random_adapter(adapter.path(), {.config = config(), .rank = 4, .alpha = 2}).ok());
  const std::vector<AdapterSource> sources = {{"all", adapter.path()}};
  const auto tokens = prompt(kTokens, 3);
  const CudaBench adapted = bench({.adapters = sources});
  ASSERT_TRUE(adapted.trial->finish(adapted.trial->add(tokens, AdapterId(0)), kTokens).ok());
  const auto expected = logits_of_cpu(DType::kBF16, tokens, {.adapters = sources}, AdapterId(0));
  // What is added to gate and up is rounded, too.
  EXPECT_LT(relative_distance(expected, adapted.trial->logits(0)), distance_allowed(10));
}

// Files of 8 bits: both widen what they read to the same bf16.
TEST_F(CudaTypesTest, FilesOfEightBitsGiveTheLogitsOfTheCpu) {
  ModelConfig config = dense_config("deepseek_v3");
  config.coded = Float8Config{.tile_outputs = 24, .tile_inputs = 16};
  expect_logits_of_cpu(config, {kHead}, kLatentRows);
}

// Files of 4 bits: both keep the codes of whole groups, and widen others to the same bf16.
TEST_F(CudaTypesTest, FilesOfFourBitsGiveTheLogitsOfTheCpu) {
  struct Case {
    std::int64_t group_inputs;
    bool is_symmetric;
    const char* formats;
  };
  for (const Case& one :
       {Case{64, true, "bf16+int4"}, {64, false, "bf16+int4_shifted"}, {32, true, "bf16"}}) {
    ModelConfig config = tiny_model_config("llama3");
    config.coded = PackedIntConfig{
        .group_inputs = one.group_inputs, .zeros_less_one = true, .is_symmetric = one.is_symmetric};
    expect_logits_of_cpu(config, {kHead}, kHeadsRows);
    EXPECT_EQ(bench().runner->compute_format(), one.formats);
    EXPECT_FALSE(bench({.options = {.deterministic = false}}).runner->repeats_bits());
  }
  expect_most_logits_of_cpu("qwen3_moe", {kRouter}, kHeadsRows,
                            PackedIntConfig{.group_inputs = 64});
  round_weights(WeightRounding::kWide);
  EXPECT_EQ(bench().runner->compute_format(), "bf16+f32");
}

TEST_F(CudaTypesTest, FilesOfWholeNumbersOfEightBitsGiveTheLogitsOfTheCpu) {
  ModelConfig config = tiny_model_config("llama3");
  config.coded = Int8Config{};
  expect_logits_of_cpu(config, {kHead}, kHeadsRows);
  EXPECT_EQ(bench().runner->compute_format(), "bf16+int8");
  EXPECT_LT(bench().runner->rounding().total().relative(), 2e-3) << "codes are those of the files";
}

// One matrix of those that a product computes is not coded: the others' codes become numbers too,
// or all are rounded.
TEST_F(CudaTypesTest, CodesBesideAMatrixWithoutSomeGiveTheLogitsOfTheCpu) {
  ModelConfig config = tiny_model_config("llama3");
  config.coded = PackedIntConfig{.layout = PackedIntConfig::Layout::kAwq, .group_inputs = 64};
  const std::vector<OtherType> others = {{"k_proj.weight", WeightType::kBf16}};
  expect_logits_of_cpu(config, others, kHeadsRows);
  EXPECT_EQ(bench().runner->compute_format(), "bf16+int4_shifted");
  round_weights(WeightRounding::kInt4);
  write_model(config, WeightType::kBf16, others);
  EXPECT_EQ(bench().runner->compute_format(), "int8+int4+int4_shifted");
}

TEST_F(CudaTypesTest, BitsOfKeptCodesDoNotDependOnChunksPagesGraphsOrTheBatch) {
  for (const bool is_symmetric : {true, false}) {
    expect_bits_of_a_row_alone("qwen3_moe", {kRouter},
                               PackedIntConfig{.group_inputs = 64, .is_symmetric = is_symmetric});
  }
}

// Codes are those of the files' values, whatever their type; a router is not rounded.
TEST_F(CudaTypesTest, RoundedWeightsAreThoseOfTheCpu) {
  for (const WeightRounding rounding : {WeightRounding::kInt8, WeightRounding::kInt4}) {
    round_weights(rounding);
    const std::vector<OtherType> others = {kRouter, {"v_proj.weight"}, {"3.down_proj.weight"}};
    expect_most_logits_of_cpu("qwen3_moe", others, kHeadsRows);
    const auto on_cpu = ModelRunner::load(directory(), {.weights = rounding}, threads());
    ASSERT_TRUE(on_cpu.ok());
    const CudaBench on_gpu = bench();
    EXPECT_EQ(on_gpu.runner->compute_format(), (*on_cpu)->compute_format());
    const RoundingReport& expected = (*on_cpu)->rounding();
    for (const auto& [kind, error] : on_gpu.runner->rounding().kinds) {
      EXPECT_NEAR(error.relative(), expected.kinds.at(kind).relative(), 1e-9) << kind;
    }
  }
}

TEST_F(CudaTypesTest, BitsOfRoundedWeightsDoNotDependOnChunksPagesGraphsOrTheBatch) {
  for (const WeightRounding rounding : {WeightRounding::kInt8, WeightRounding::kInt4}) {
    round_weights(rounding);
    expect_bits_of_a_row_alone("qwen3_moe", {kRouter, {"v_proj.weight"}});
  }
}

}  // namespace
}  // namespace stemma
