// CudaRunner of rounded weights: the codes and scales of a CPU on the device, in as few bytes;
// logits near the CPU's of the same codes for every kind of layer; bits that depend on nothing but
// a row's own text (I13), with and without deterministic products.
#include <cmath>
#include <string>

#include "cuda/cuda_runner_fixture.h"
#include "device/rounded_strips.h"

namespace stemma {
namespace {

constexpr std::int64_t kTokens = 40;
constexpr WeightRounding kRoundings[] = {WeightRounding::kInt8, WeightRounding::kInt4};

// What one of the two rounds and the other does not, each independently, so that the distance stays
// below the unit times the root of their number. Of 16-bit weights the GPU rounds, each by at most
// a unit of its type, `rows` a layer and one before the head; what the CPU rounds is 256 times
// less. Of f32 weights and pools it is the CPU: what meets rounded weights, four rows a layer and
// one before the head, to multiples of 1/32767 of the largest of 64, which is at most 8 times their
// root mean square; a uniform error of one multiple has a root mean square of 1/√12.
double distance_allowed(WeightType type, double rows, std::int64_t layers) {
  if (type == WeightType::kF32) {
    return 8 / (32767 * std::sqrt(12.0)) * std::sqrt(static_cast<double>(4 * layers + 1));
  }
  return 0x1p-8 * std::sqrt(rows * static_cast<double>(layers) + 1);
}

class CudaRoundedTest : public CudaRunnerFixture {
 protected:
  // Of f32 and of bf16. `rows`: see distance_allowed.
  void expect_logits_of_cpu(const ModelConfig& config, double rows) {
    for (const WeightRounding rounding : kRoundings) {
      round_weights(rounding);
      for (const WeightType type : {WeightType::kF32, WeightType::kBf16}) {
        write_model(config, type);
        const DType dtype = type == WeightType::kF32 ? DType::kF32 : DType::kBF16;
        const auto tokens = prompt(kTokens, 3);
        const auto got = logits_alone({.dtype = dtype}, tokens, kTokens);
        EXPECT_LT(relative_distance(logits_of_cpu(dtype, tokens), got),
                  distance_allowed(type, rows, config.layers))
            << weight_type_name(type) << " " << static_cast<int>(rounding);
      }
    }
  }
};

class CudaRoundedFamilies : public CudaRoundedTest,
                            public ::testing::WithParamInterface<std::string_view> {};

// Eight rows a layer: two norms, q, weights of attention, what it gives, gate, up, their product.
TEST_P(CudaRoundedFamilies, LogitsAreThoseOfTheCpuOfTheSameCodes) {
  expect_logits_of_cpu(tiny_model_config(GetParam()), 8);
}

INSTANTIATE_TEST_SUITE_P(Dense, CudaRoundedFamilies,
                         ::testing::Values("llama3", "llama_bias", "qwen2", "qwen3", "gemma3"),
                         [](const auto& family) { return std::string(family.param); });

// Eleven rows a layer: also the compressed q, its heads and values.
TEST_F(CudaRoundedTest, LogitsOfLatentAttentionAreThoseOfTheCpuToo) {
  expect_logits_of_cpu(dense_config("deepseek_v2"), 11);
  expect_logits_of_cpu(dense_config("deepseek_v3"), 11);
}

// What a layer of experts gives is compared where no score is near another one: with f32.
TEST_F(CudaRoundedTest, LogitsOfMixturesAreThoseOfTheCpuToo) {
  for (const WeightRounding rounding : kRoundings) {
    round_weights(rounding);
    for (const char* const name : {"qwen3_moe", "deepseek_v3"}) {
      write_model(name, WeightType::kF32);
      const auto tokens = prompt(kTokens, 3);
      const auto got = logits_alone({.dtype = DType::kF32}, tokens, kTokens);
      EXPECT_LT(relative_distance(logits_of_cpu(DType::kF32, tokens), got),
                distance_allowed(WeightType::kF32, 0, config().layers))
          << name;
    }
  }
}

TEST_F(CudaRoundedTest, BitsDoNotDependOnChunksPagesLayoutsOrGraphs) {
  for (const char* const name : {"gemma3", "qwen3_moe", "deepseek_v3"}) {
    SCOPED_TRACE(name);
    write_model(name);
    for (const WeightRounding rounding : kRoundings) {
      round_weights(rounding);
      expect_same_bits_however_cut(kTokens, 17);
    }
  }
}

// Tiles of 8, 16 and 64 rows.
TEST_F(CudaRoundedTest, BitsDoNotDependOnTheBatch) {
  write_model("llama3");
  std::vector<std::vector<TokenId>> prompts;
  for (std::uint64_t i = 0; i < 3; ++i) {
    prompts.push_back(prompt(static_cast<std::int64_t>(4 + 15 * i), 100 + i));
  }
  for (const WeightRounding rounding : kRoundings) {
    round_weights(rounding);
    expect_same_bits_in_a_batch(prompts, 3, 7);
  }
}

// All products are of rounded weights.
TEST_F(CudaRoundedTest, BitsAreTheSameWithTheVendorsLibrary) {
  write_model("qwen2");
  const auto tokens = prompt(30, 5);
  for (const WeightRounding rounding : kRoundings) {
    round_weights(rounding);
    expect_same_bits(logits_alone({}, tokens, 30),
                     logits_alone({.options = {.deterministic = false}}, tokens, 7));
  }
}

// And so do pages of one mean nothing to the other.
TEST_F(CudaRoundedTest, FormatsAndWhatRoundingCostAreThoseOfTheCpu) {
  for (const char* const name : {"llama3", "qwen3_moe", "deepseek_v3"}) {
    write_model(name);
    for (const WeightRounding rounding :
         {WeightRounding::kNone, WeightRounding::kInt8, WeightRounding::kInt4}) {
      const ModelRunnerOptions options = {.weights = rounding};
      const auto runner = try_load(options, {.deterministic = true});
      ASSERT_TRUE(runner.ok()) << to_string(runner.error());
      const auto on_cpu = ModelRunner::load(directory(), options, threads());
      ASSERT_TRUE(on_cpu.ok());
      EXPECT_EQ((*runner)->compute_format(), (*on_cpu)->compute_format());
      const RoundingReport& report = (*runner)->rounding();
      const RoundingReport& expected = (*on_cpu)->rounding();
      EXPECT_EQ(report.empty(), rounding == WeightRounding::kNone);
      EXPECT_EQ(report.worst_tensor, expected.worst_tensor);
      EXPECT_EQ(report.stored_bytes, expected.stored_bytes);
      EXPECT_LE(report.packed_bytes, expected.packed_bytes);  // whose panels are wider
      ASSERT_EQ(report.kinds.size(), expected.kinds.size());
      for (const auto& [kind, error] : expected.kinds) {
        EXPECT_NEAR(report.kinds.at(kind).relative(), error.relative(), 1e-9) << kind;
      }
    }
  }
}

TEST_F(CudaRoundedTest, AWeightThatIsNoNumberIsRefusedByName) {
  const ModelConfig config = tiny_model_config("llama3");
  TempDirectory broken;
  std::vector<TensorValues> tensors;
  for (const TensorSpec& tensor : needed_tensors(config)) {
    tensors.push_back({tensor, random_weights(config, tensor, 1)});
    if (tensor.name == "model.layers.1.mlp.up_proj.weight") {
      tensors.back().values[7] = std::numeric_limits<float>::infinity();
    }
  }
  const std::string path = broken.file("model.safetensors");
  ASSERT_TRUE(write_safetensors(path, tensors, WeightType::kF32).ok());
  PosixFiles files;
  auto opened = WeightFiles::open(files, broken.path());
  ASSERT_TRUE(opened.ok());
  const auto weights = load_cuda_weights(config, *opened, device(), stream(), threads(),
                                         {.rounding = WeightRounding::kInt4});
  ASSERT_FALSE(weights.ok());
  EXPECT_EQ(to_string(weights.error()),
            "unsupported: " + path +
                ": tensor 'model.layers.1.mlp.up_proj.weight': holds infinity or NaN, which int4 "
                "cannot");
}

// A rank's outputs begin with a strip.
TEST_F(CudaRoundedTest, TiedEmbeddingsThatRanksCannotCutAreRefusedByTheFlag) {
  ModelConfig tied = tiny_model_config("qwen2");
  tied.vocab_tokens = 260;  // 130 on each of two ranks
  write_model(tied, WeightType::kBf16);
  PosixFiles files;
  auto opened = WeightFiles::open(files, directory());
  ASSERT_TRUE(opened.ok());
  const WeightOptions second = {.rounding = WeightRounding::kInt4, .shard = {1, 2}};
  const auto weights = load_cuda_weights(tied, *opened, device(), stream(), threads(), second);
  ASSERT_FALSE(weights.ok());
  EXPECT_EQ(
      to_string(weights.error()),
      "unsupported: --weights int4: tied embeddings of 260 tokens do not divide into multiples "
      "of 8 over 2 GPUs");
}

}  // namespace
}  // namespace stemma
