// CudaRunner: logits near those of the CPU for every dense family, and bits that depend on nothing
// but a row's own text where products are deterministic: not on chunks, batches, pages, layouts or
// graphs (I13).
#include <cmath>
#include <cstring>

#include "cuda/cuda_runner.h"
#include "cuda/cuda_runner_fixture.h"
#include "model/model_runner.h"
#include "pool/kv_pool_factory.h"

namespace stemma {
namespace {

void expect_same_bits(const std::vector<float>& expected, const std::vector<float>& got) {
  ASSERT_EQ(expected.size(), got.size());
  EXPECT_EQ(std::memcmp(expected.data(), got.data(), expected.size() * sizeof(float)), 0);
}

class CudaRunnerTest : public CudaRunnerFixture {
 protected:
  // As logits_alone, on the CPU.
  std::vector<float> logits_of_cpu(DType dtype, const std::vector<TokenId>& tokens) {
    auto runner = ModelRunner::load(directory(), {.rows_max = 128, .outputs_max = 128}, threads());
    STEMMA_CHECK(runner.ok(), "the model loads");
    KvShape shape = (*runner)->pool_shape();
    shape.page_size = 16;
    shape.pages = 12;
    shape.dtype = dtype;
    auto pool = make_kv_pool(shape, KvLayout::kLayerFirst, threads());
    STEMMA_CHECK(pool.ok(), "the pool fits");
    RunnerTrial trial(**runner, **pool);
    EXPECT_TRUE(trial.finish(trial.add(tokens), std::ssize(tokens)).ok());
    return trial.logits(0);
  }
};

class CudaFamilies : public CudaRunnerTest,
                     public ::testing::WithParamInterface<std::string_view> {};

// How far logits lie apart: the root of the mean square, as a share of the logits' own.
double relative_distance(const std::vector<float>& expected, const std::vector<float>& got) {
  EXPECT_EQ(expected.size(), got.size());
  double squares = 0;
  double differences = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    squares += double{expected[i]} * expected[i];
    differences += (double{got[i]} - expected[i]) * (double{got[i]} - expected[i]);
  }
  return std::sqrt(differences / squares);
}

TEST_P(CudaFamilies, LogitsAreThoseOfTheCpu) {
  for (const WeightType type : {WeightType::kF32, WeightType::kBf16}) {
    const DType dtype = type == WeightType::kF32 ? DType::kF16 : DType::kBF16;
    write_model(GetParam(), type);
    const auto tokens = prompt(60, 3);
    const auto expected = logits_of_cpu(dtype, tokens);
    const auto got = logits_alone({.dtype = dtype}, tokens, 60);
    std::printf("%s %f\n", std::string(weight_type_name(type)).c_str(),
                relative_distance(expected, got));
  }
}

TEST_P(CudaFamilies, BitsDoNotDependOnChunksPagesOrLayouts) {
  write_model(GetParam());
  const auto tokens = prompt(60, 4);
  const auto expected = logits_alone({}, tokens, 60);
  for (const float value : expected) ASSERT_TRUE(std::isfinite(value));
  expect_same_bits(expected, logits_alone({.layout = KvLayout::kPageFirst}, tokens, 19));
  expect_same_bits(expected, logits_alone({.page_size = 1, .seed = 5}, tokens, 7));
  expect_same_bits(expected, logits_alone({.page_size = 64, .seed = 6}, tokens, 1));
}

INSTANTIATE_TEST_SUITE_P(Dense, CudaFamilies,
                         ::testing::Values("llama2", "llama3", "llama_bias", "qwen2", "qwen2_yarn",
                                           "qwen3", "mistral", "gemma2", "gemma3"),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace stemma
