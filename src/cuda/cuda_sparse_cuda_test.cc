// CudaRunner with sparse attention: the logits of the CPU's sparse attention, bits that depend on a
// row's own text alone (I13), and namespaces that tell heavy channels and dials apart.
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cuda/cuda_runner_fixture.h"

namespace stemma {
namespace {

constexpr std::int64_t kTokens = 52;
constexpr SparseDial kQuarter = {.dense_tokens = 16, .kept_tokens = 1, .kept_of = 4};

class CudaSparseRunnerTest : public CudaRunnerFixture {
 protected:
  void write(const char* name, WeightType type = WeightType::kBf16) {
    write_model(name, type);
    write_calibration();
  }
  std::vector<std::pair<std::string, std::string>> fields(const SparseDial& dial) {
    return bench({.dial = dial}).runner->namespace_fields();
  }
  std::string error_of(const SparseOptions& sparse) {
    auto runner = try_load({.sparse = sparse}, {});
    return runner.ok() ? "none" : to_string(runner.error());
  }
};

// In f32 throughout only the order of sums differs, as it does of dense rows: up to 160 terms, each
// sum of eight a layer and one before the head off by 2^-24 of its root. A choice of other tokens
// would be farther away by orders of magnitude, and so is dense attention.
TEST_F(CudaSparseRunnerTest, LogitsAreThoseOfTheCpusSparseAttention) {
  for (const char* name : {"llama3", "qwen3"}) {
    SCOPED_TRACE(name);
    write(name, WeightType::kF32);
    const auto tokens = prompt(kTokens, 3);
    const auto got = logits_alone({.dtype = DType::kF32, .dial = kQuarter}, tokens, kTokens);
    const double allowed =
        std::ldexp(std::sqrt(160.0), -24) * std::sqrt(static_cast<double>(8 * config().layers + 1));
    EXPECT_LT(
        relative_distance(
            logits_of_cpu(DType::kF32, tokens, {.sparse = sparse_options(kQuarter)}, {}), got),
        allowed);
    EXPECT_GT(relative_distance(logits_of_cpu(DType::kF32, tokens), got), 100 * allowed);
  }
}

// A prompt as a whole, in chunks, and then its last tokens one by one, of which most are graphs.
TEST_F(CudaSparseRunnerTest, BitsDoNotDependOnChunksPagesLayoutsOrGraphs) {
  write("qwen2");
  const auto tokens = prompt(kTokens, 4);
  const auto expected = logits_alone({.dial = kQuarter}, tokens, kTokens);
  for (const float value : expected) ASSERT_TRUE(std::isfinite(value));
  expect_same_bits(expected,
                   logits_alone({.layout = KvLayout::kPageFirst, .dial = kQuarter}, tokens, 19));
  const CudaBench decoding = bench({.page_size = 1, .seed = 5, .dial = kQuarter});
  ASSERT_TRUE(decoding.trial->step({{{decoding.trial->add(tokens), kTokens - 5}}}).ok());
  ASSERT_TRUE(decoding.trial->finish(0, 1).ok());
  expect_same_bits(expected, decoding.trial->logits(0));
}

// Dense and sparse rows in one batch, chunks beside single rows.
TEST_F(CudaSparseRunnerTest, BitsDoNotDependOnTheBatch) {
  write("llama2");
  const std::vector<std::vector<TokenId>> prompts = {prompt(40, 1), prompt(12, 2), prompt(30, 3)};
  const CudaBench together = bench({.dial = kQuarter});
  RunnerTrial& trial = *together.trial;
  for (const auto& tokens : prompts) trial.add(tokens);
  ASSERT_TRUE(trial.step({{{0, 33}, {1, 5}, {2, 10}}}).ok());
  ASSERT_TRUE(trial.step({{{0, 1}, {1, 1}, {2, 15}}}).ok());
  for (int step = 0; step < 5; ++step) ASSERT_TRUE(trial.step({{{0, 1}, {1, 1}, {2, 1}}}).ok());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    ASSERT_TRUE(trial.finish(i, 3).ok());
    SCOPED_TRACE(i);
    expect_same_bits(logits_alone({.dial = kQuarter}, prompts[i], 64), trial.logits(i));
  }
}

TEST_F(CudaSparseRunnerTest, TheDenseEndHasTheBitsOfDenseAttention) {
  write("llama3");
  const auto tokens = prompt(30, 5);
  const auto dense = logits_alone({}, tokens, 30);
  expect_same_bits(dense, logits_alone({.dial = SparseDial{0, 1, 1}}, tokens, 30));
  expect_same_bits(dense, logits_alone({.dial = SparseDial{64, 1, 8}}, tokens, 30));
  EXPECT_NE(dense, logits_alone({.dial = kQuarter}, tokens, 30));
}

TEST_F(CudaSparseRunnerTest, NamespaceFieldsTellDialsAndChannelsApart) {
  write("llama2");
  const auto sparse = fields(kQuarter);
  EXPECT_EQ(sparse, fields(kQuarter));
  EXPECT_NE(sparse, fields({.dense_tokens = 17, .kept_tokens = 1, .kept_of = 4}));
  EXPECT_NE(sparse, fields({.dense_tokens = 16, .kept_tokens = 1, .kept_of = 8}));
  const auto on_cpu =
      ModelRunner::load(directory(), {.sparse = SparseOptions{kQuarter, ""}}, threads());
  ASSERT_TRUE(on_cpu.ok());
  const auto of_cpu = (*on_cpu)->namespace_fields();
  EXPECT_TRUE(std::equal(sparse.end() - 4, sparse.end(), of_cpu.end() - 4));
  write_calibration(2);
  EXPECT_NE(sparse, fields(kQuarter));
}

TEST_F(CudaSparseRunnerTest, ModelsWithoutWhatItNeedsAreRefused) {
  write_model("llama2");
  EXPECT_EQ(error_of({kQuarter, ""}),
            "not_found: " + directory() +
                "/double_sparsity.json: there is no such file; `stemma calibrate` writes one");
  write_model("gemma3");
  EXPECT_EQ(error_of({kQuarter, ""}),
            "unsupported: " + directory() +
                "/config.json: sparse attention is not for latent rows, windows or capped scores");
}

}  // namespace
}  // namespace stemma
