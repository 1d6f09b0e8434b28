// CudaRunner with latent attention, of layers that are dense and that are mixtures: logits near
// those of the CPU, and bits that depend on nothing but a row's own text where products are
// deterministic (I13).
#include <cmath>

#include "cuda/cuda_runner_fixture.h"

namespace stemma {
namespace {

constexpr std::int64_t kTokens = 40;

// What the GPU rounds and the CPU does not, each by at most a unit and independently, so that the
// distance stays below the unit times the root of their number. Of 16-bit weights these are eleven
// rows a layer (two norms, the compressed q, its heads, what is compared, weights of attention,
// what it gives, values, gate, up, their product) and one before the head. Of f32 weights and pools
// nothing is rounded: sums of up to 160 terms are added in another order. No two scores of experts
// are then so near to each other that a row goes to another one; 16-bit ones can be, so that those
// models are dense here.
double distance_allowed(WeightType type, std::int64_t layers) {
  const double operand = type == WeightType::kF16 ? 0x1p-11 : 0x1p-8;
  const double unit = type == WeightType::kF32 ? std::sqrt(160.0) * 0x1p-24 : operand;
  return unit * std::sqrt(static_cast<double>(11 * layers + 1));
}

DType dtype_of(WeightType type) {
  if (type == WeightType::kF32) return DType::kF32;
  return type == WeightType::kF16 ? DType::kF16 : DType::kBF16;
}

class CudaLatentModels : public CudaRunnerFixture,
                         public ::testing::WithParamInterface<std::string_view> {};

TEST_P(CudaLatentModels, LogitsAreThoseOfTheCpu) {
  for (const WeightType type : {WeightType::kF32, WeightType::kBf16, WeightType::kF16}) {
    write_model(type == WeightType::kF32 ? tiny_model_config(GetParam()) : dense_config(GetParam()),
                type);
    const auto tokens = prompt(kTokens, 3);
    const auto got = logits_alone({.dtype = dtype_of(type)}, tokens, kTokens);
    EXPECT_LT(relative_distance(logits_of_cpu(dtype_of(type), tokens), got),
              distance_allowed(type, config().layers))
        << weight_type_name(type);
  }
}

TEST_P(CudaLatentModels, BitsDoNotDependOnChunksPagesOrLayouts) {
  write_model(GetParam());
  expect_same_bits_however_cut(kTokens, 19);
}

INSTANTIATE_TEST_SUITE_P(Deepseek, CudaLatentModels,
                         ::testing::Values("deepseek_v2", "deepseek_v2_lite", "deepseek_v3"),
                         [](const auto& family) { return std::string(family.param); });

using CudaLatentBatches = CudaRunnerFixture;

// Rows long enough for products of warpgroups; where the GPU has none, both are the same products.
TEST_F(CudaLatentBatches, ProductsOfWarpgroupsGiveTheBitsOfOthers) {
  ModelConfig long_rows = dense_config("deepseek_v3");
  long_rows.latent.rank = 256;
  long_rows.head_dim = long_rows.latent.row_dim();
  write_model(long_rows, WeightType::kBf16);
  const auto tokens = prompt(kTokens, 29);
  expect_same_bits(
      logits_alone({.options = {.deterministic = true, .hopper_latent = true}}, tokens, kTokens),
      logits_alone({.options = {.deterministic = true}}, tokens, kTokens));
}

// Decode steps of three requests, recorded for four rows, and then of two, with prefill between.
TEST_F(CudaLatentBatches, BitsDoNotDependOnTheBatchNorOnGraphs) {
  write_model("deepseek_v3");
  std::vector<std::vector<TokenId>> prompts;
  for (std::uint64_t i = 0; i < 3; ++i) prompts.push_back(prompt(10 + std::int64_t(i), 20 + i));
  for (const bool graphs : {false, true}) {
    const CudaBench together = bench({.options = {.deterministic = true, .graphs = graphs}});
    RunnerTrial& trial = *together.trial;
    for (const auto& tokens : prompts) trial.add(tokens);
    ASSERT_TRUE(trial.step({{{0, 6}, {1, 2}, {2, 3}}}).ok());
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(trial.step({{{0, 1}, {1, 1}, {2, 1}}}).ok());
    }
    ASSERT_TRUE(trial.step({{{0, 1}, {1, 5}, {2, 1}}}).ok());
    ASSERT_TRUE(trial.step({{{1, 1}, {2, 1}}}).ok());
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      ASSERT_TRUE(trial.finish(i, 2).ok());
      expect_same_bits(logits_alone({}, prompts[i], 64), trial.logits(i));
    }
  }
}

}  // namespace
}  // namespace stemma
