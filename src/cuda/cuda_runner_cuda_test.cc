// CudaRunner: logits near those of the CPU for every dense family, and bits that depend on nothing
// but a row's own text where products are deterministic: not on chunks, batches, pages, layouts or
// graphs (I13).
#include <algorithm>
#include <cmath>

#include "cuda/cuda_runner.h"
#include "cuda/cuda_runner_fixture.h"

namespace stemma {
namespace {

constexpr std::int64_t kTokens = 52;  // longer than the windows of all families

// What the GPU rounds and the CPU does not, each by at most a unit and independently, so that the
// distance stays below the unit times the root of their number. Of 16-bit weights these are eight
// rows a layer (two norms, q, weights of attention, what it gives, gate, up, their product) and one
// before the head. Of f32 weights they are attention's operands q and weights, and what that
// changes in K and V. With f32 pools too nothing is: sums of up to 160 terms are added in another
// order.
double distance_allowed(WeightType type, DType dtype, std::int64_t layers) {
  const double operand = dtype == DType::kF16 ? std::ldexp(1.0, -11) : std::ldexp(1.0, -8);
  const double sums = std::ldexp(std::sqrt(160.0), -24);
  const double unit = dtype == DType::kF32 ? sums : operand;
  const bool many = type != WeightType::kF32 || dtype == DType::kF32;
  return unit * std::sqrt(static_cast<double>(many ? 8 * layers + 1 : 4 * layers));
}

class CudaRunnerTest : public CudaRunnerFixture {
 protected:
  void expect_logits_of_cpu(std::string_view name, WeightType type, DType dtype) {
    write_model(name, type);
    const auto tokens = prompt(kTokens, 3);
    const auto got = logits_alone({.dtype = dtype}, tokens, kTokens);
    EXPECT_LT(relative_distance(logits_of_cpu(dtype, tokens), got),
              distance_allowed(type, dtype, config().layers))
        << weight_type_name(type) << " " << dtype_name(dtype);
  }
};

class CudaFamilies : public CudaRunnerTest,
                     public ::testing::WithParamInterface<std::string_view> {};

TEST_P(CudaFamilies, LogitsAreThoseOfTheCpu) {
  expect_logits_of_cpu(GetParam(), WeightType::kF32, DType::kF32);
  expect_logits_of_cpu(GetParam(), WeightType::kBf16, DType::kBF16);
}

TEST_F(CudaRunnerTest, OtherTypesOfWeightsAndPoolsGiveTheLogitsOfTheCpuToo) {
  expect_logits_of_cpu("qwen2", WeightType::kF32, DType::kF16);
  expect_logits_of_cpu("qwen2", WeightType::kF16, DType::kF16);
}

TEST_P(CudaFamilies, BitsDoNotDependOnChunksPagesOrLayouts) {
  write_model(GetParam());
  expect_same_bits_however_cut(kTokens, 19);
}

INSTANTIATE_TEST_SUITE_P(Dense, CudaFamilies,
                         ::testing::Values("llama2", "llama3", "llama_bias", "qwen2", "qwen2_yarn",
                                           "qwen3", "mistral", "gemma2", "gemma3"),
                         [](const auto& family) { return std::string(family.param); });

TEST_F(CudaRunnerTest, BitsDoNotDependOnTheBatch) {
  write_model("qwen3");
  std::vector<std::vector<TokenId>> prompts;
  for (std::uint64_t i = 0; i < 4; ++i) {
    prompts.push_back(prompt(static_cast<std::int64_t>(3 + 5 * i), 100 + i));
  }
  expect_same_bits_in_a_batch(prompts, 3, 5);
}

// Batches of three, which graphs of four rows compute, and then of two.
TEST_F(CudaRunnerTest, GraphsGiveTheBitsOfStepsAsTheyAre) {
  write_model("gemma3");
  const auto decoded = [&](bool graphs) {
    const CudaBench decoding = bench({.options = {.deterministic = true, .graphs = graphs}});
    RunnerTrial& trial = *decoding.trial;
    for (std::uint64_t i = 0; i < 3; ++i) trial.add(prompt(10 + std::int64_t(i), 20 + i));
    EXPECT_TRUE(trial.step({{{0, 6}, {1, 2}, {2, 3}}}).ok());
    for (int step = 0; step < 4; ++step) {
      EXPECT_TRUE(trial.step({{{0, 1}, {1, 1}, {2, 1}}}).ok());
    }
    for (int step = 0; step < 3; ++step) EXPECT_TRUE(trial.step({{{1, 1}, {2, 1}}}).ok());
    std::vector<float> logits;
    for (std::size_t i = 0; i < 3; ++i) {
      logits.insert(logits.end(), trial.logits(i).begin(), trial.logits(i).end());
    }
    return logits;
  };
  expect_same_bits(decoded(false), decoded(true));
}

// Other pools are other addresses, which a graph must not remember.
TEST_F(CudaRunnerTest, GraphsAreForgottenWithThePoolsTheyWereRecordedFor) {
  write_model("llama3");
  const auto tokens = prompt(24, 9);
  const auto expected = logits_alone({}, tokens, 24);
  const CudaBench first = bench();
  ASSERT_TRUE(first.trial->finish(first.trial->add(tokens), 4).ok());
  for (const std::int64_t page_size : {16, 4}) {
    const CudaBench other = bench({.page_size = page_size});
    RunnerTrial trial(*first.runner, *other.pool, nullptr, 3);
    ASSERT_TRUE(trial.step({{{trial.add(tokens), 12}}}).ok());
    ASSERT_TRUE(trial.finish(0, 1).ok());
    expect_same_bits(expected, trial.logits(0));
  }
}

TEST_F(CudaRunnerTest, TheVendorsProductsAreNearThoseOfTheCpu) {
  write_model("llama3");
  const auto tokens = prompt(40, 13);
  const auto got = logits_alone({.options = {.deterministic = false}}, tokens, 40);
  EXPECT_LT(relative_distance(logits_of_cpu(DType::kBF16, tokens), got),
            distance_allowed(WeightType::kBf16, DType::kBF16, config().layers));
}

// Where the GPU has none, both are the same products.
TEST_F(CudaRunnerTest, HopperChunksGiveLogitsNearThoseOfOthers) {
  write_model("llama3");
  const auto tokens = prompt(100, 17);
  const auto got =
      logits_alone({.options = {.deterministic = true, .hopper_chunks = true}}, tokens, 100);
  const auto others =
      logits_alone({.options = {.deterministic = true, .hopper_chunks = false}}, tokens, 100);
  EXPECT_LT(relative_distance(others, got),
            distance_allowed(WeightType::kBf16, DType::kBF16, config().layers));
}

}  // namespace
}  // namespace stemma
