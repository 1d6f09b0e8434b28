// CudaRunner of mixtures: logits near those of the CPU, and bits that depend on nothing but a row's
// own text where products are deterministic (I13).
#include <cmath>

#include "cuda/cuda_runner.h"
#include "cuda/cuda_runner_fixture.h"

namespace stemma {
namespace {

constexpr std::int64_t kTokens = 40;

class CudaMixtureRunnerTest : public CudaRunnerFixture {
 protected:
  // The distance of each row's logits from the CPU's, ascending.
  std::vector<double> row_distances(WeightType type, DType dtype, const CudaVariant& variant = {}) {
    write_model("qwen3_moe", type);
    const auto tokens = prompt(kTokens, 3);
    CudaVariant own = variant;
    own.dtype = dtype;
    const auto got = logits_alone(own, tokens, kTokens);
    return distances_of_rows(logits_of_cpu(dtype, tokens), got, kTokens);
  }
};

// Sums of up to 160 terms in another order, in nine products a layer and the head; no two scores of
// these texts are so near to each other.
TEST_F(CudaMixtureRunnerTest, LogitsAreThoseOfTheCpu) {
  const auto distances = row_distances(WeightType::kF32, DType::kF32);
  EXPECT_LT(distances.back(), std::ldexp(std::sqrt(160.0 * (9 * 3 + 1)), -24));
}

// What goes to a product is rounded to 16 bits, eight rows a layer and one before the head, each by
// at most a unit and independently; where that moves two scores past each other, a row goes to
// another expert than on the CPU. That takes scores within a few of 256 parts of each other: fewer
// than one row in ten over two mixtures.
TEST_F(CudaMixtureRunnerTest, Of16BitsRowsAreThoseOfTheCpuButWhereScoresAreNear) {
  const double allowed = std::sqrt(8.0 * 3 + 1);
  for (const bool deterministic : {true, false}) {
    const auto bf16 = row_distances(WeightType::kBf16, DType::kBF16,
                                    {.options = {.deterministic = deterministic}});
    EXPECT_LT(bf16[kTokens * 9 / 10], allowed * std::ldexp(1.0, -8));
  }
  const auto f16 = row_distances(WeightType::kF16, DType::kF16);
  EXPECT_LT(f16[kTokens * 9 / 10], allowed * std::ldexp(1.0, -11));
}

TEST_F(CudaMixtureRunnerTest, BitsDoNotDependOnChunksPagesOrLayouts) {
  write_model("qwen3_moe");
  expect_same_bits_however_cut(kTokens, 11);
}

// Tiles of 16 and of 64 visits.
TEST_F(CudaMixtureRunnerTest, BitsDoNotDependOnTheBatch) {
  write_model("qwen3_moe");
  std::vector<std::vector<TokenId>> prompts;
  for (std::uint64_t i = 0; i < 3; ++i) {
    prompts.push_back(prompt(static_cast<std::int64_t>(5 + 18 * i), 100 + i));
  }
  expect_same_bits_in_a_batch(prompts, 2, 19);
}

// Three requests in graphs of four rows: the row for which there is none disturbs nobody.
TEST_F(CudaMixtureRunnerTest, GraphsGiveTheBitsOfStepsAsTheyAre) {
  write_model("qwen3_moe");
  const auto decoded = [&](bool graphs) {
    const CudaBench decoding = bench({.options = {.deterministic = true, .graphs = graphs}});
    RunnerTrial& trial = *decoding.trial;
    for (std::uint64_t i = 0; i < 3; ++i) trial.add(prompt(9, 20 + i));
    EXPECT_TRUE(trial.step({{{0, 6}, {1, 5}, {2, 5}}}).ok());
    for (int step = 0; step < 3; ++step) {
      EXPECT_TRUE(trial.step({{{0, 1}, {1, 1}, {2, 1}}}).ok());
    }
    std::vector<float> logits;
    for (std::size_t i = 0; i < 3; ++i) {
      logits.insert(logits.end(), trial.logits(i).begin(), trial.logits(i).end());
    }
    return logits;
  };
  expect_same_bits(decoded(false), decoded(true));
}

}  // namespace
}  // namespace stemma
