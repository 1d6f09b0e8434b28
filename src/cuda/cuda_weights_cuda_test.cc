// CudaWeights: tensors where kernels look for them, with the bytes of the files; the digest is that
// of the CPU's loader; what a GPU cannot hold is refused by name.
#include <cstring>
#include <string>

#include "base/float16.h"
#include "base/temp_directory.h"
#include "cuda/cuda_weights.h"
#include "device/cuda_fixture.h"
#include "model/random_model.h"

namespace stemma {
namespace {

constexpr std::uint64_t kSeed = 5;

class CudaWeightsTest : public CudaFixture {
 protected:
  void TearDown() override {
    weights_ = {};
    CudaFixture::TearDown();
  }

  // A random model on disk and on the device.
  const CudaWeights& load(const ModelConfig& config, WeightType type,
                          const std::vector<OtherType>& others = {}) {
    weights_ = load_another(config, type, others);
    return weights_;
  }
  // The same, in memory that is the caller's.
  CudaWeights load_another(const ModelConfig& config, WeightType type,
                           const std::vector<OtherType>& others = {}) {
    const Status written = write_random_model(
        directory_.path(), {.config = config, .type = type, .seed = kSeed, .others = others});
    EXPECT_TRUE(written.ok());
    auto files = WeightFiles::open(files_, directory_.path());
    EXPECT_TRUE(files.ok());
    auto weights = load_cuda_weights(config, *files, device(), stream(), threads_, {});
    EXPECT_TRUE(weights.ok()) << to_string(weights.error());
    return std::move(weights).value();
  }

  std::vector<float> values_of(const ModelConfig& config, const std::string& name) const {
    for (const TensorSpec& tensor : needed_tensors(config)) {
      if (tensor.name == name) return random_weights(config, tensor, kSeed);
    }
    ADD_FAILURE() << name;
    return {};
  }

  std::string directory() const { return directory_.path(); }
  Files& files() { return files_; }
  ThreadPool& threads() { return threads_; }

 private:
  TempDirectory directory_;
  PosixFiles files_;
  ThreadPool threads_{2};
  CudaWeights weights_;
};

std::vector<float> one_behind_the_other(const std::vector<std::vector<float>>& parts) {
  std::vector<float> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// As a file of that type has them.
std::vector<float> rounded(std::vector<float> values, WeightType type) {
  for (float& value : values) {
    if (type == WeightType::kBf16) value = to_float(to_bfloat16(value));
    if (type == WeightType::kF16) value = to_float(to_float16(value));
  }
  return values;
}

TEST_F(CudaWeightsTest, WhatOneProductComputesLiesInOneMatrix) {
  const ModelConfig config = tiny_model_config("qwen2");
  const CudaWeights& weights = load(config, WeightType::kF32);
  ASSERT_EQ(weights.layers.size(), 2u);
  const std::string attention = "model.layers.1.self_attn.";
  const auto qkv = one_behind_the_other({values_of(config, attention + "q_proj.weight"),
                                         values_of(config, attention + "k_proj.weight"),
                                         values_of(config, attention + "v_proj.weight")});
  EXPECT_EQ(download<float>(weights.layers[1].qkv.values, qkv.size()), qkv);
  const auto bias = one_behind_the_other({values_of(config, attention + "q_proj.bias"),
                                          values_of(config, attention + "k_proj.bias"),
                                          values_of(config, attention + "v_proj.bias")});
  EXPECT_EQ(download<float>(weights.layers[1].qkv_bias, bias.size()), bias);
  const std::string mlp = "model.layers.0.mlp.";
  const auto gate_up = one_behind_the_other(
      {values_of(config, mlp + "gate_proj.weight"), values_of(config, mlp + "up_proj.weight")});
  EXPECT_EQ(download<float>(weights.layers[0].gate_up.values, gate_up.size()), gate_up);
  EXPECT_EQ(weights.head.values, weights.embeddings.values);
}

TEST_F(CudaWeightsTest, MatricesKeepTheirTypeAndVectorsBecomeF32) {
  const ModelConfig config = tiny_model_config("llama_bias");
  const CudaWeights& weights = load(config, WeightType::kBf16);
  EXPECT_EQ(weights.type, WeightType::kBf16);
  const auto down = values_of(config, "model.layers.1.mlp.down_proj.weight");
  const auto found = download<BFloat16>(weights.layers[1].down.values, down.size());
  for (std::size_t i = 0; i < down.size(); ++i) {
    ASSERT_EQ(found[i].bits, to_bfloat16(down[i]).bits) << i;
  }
  const auto bias = values_of(config, "model.layers.1.mlp.down_proj.bias");
  const auto found_bias = download<float>(weights.layers[1].down_bias, bias.size());
  for (std::size_t i = 0; i < bias.size(); ++i) {
    ASSERT_EQ(found_bias[i], to_float(to_bfloat16(bias[i]))) << i;
  }
  EXPECT_NE(weights.head.values, weights.embeddings.values);
}

TEST_F(CudaWeightsTest, NormsThatAddOneHaveItAdded) {
  const ModelConfig config = tiny_model_config("gemma3");
  const CudaWeights& weights = load(config, WeightType::kF32);
  const auto expect_norm = [&](const float* found, const std::string& name) {
    auto expected = values_of(config, name);
    for (float& value : expected) value += 1.0f;
    EXPECT_EQ(download<float>(found, expected.size()), expected) << name;
  };
  const CudaLayerWeights& layer = weights.layers[2];
  const std::string prefix = "model.layers.2.";
  expect_norm(layer.attention_norm, prefix + "input_layernorm.weight");
  expect_norm(layer.attention_branch_norm, prefix + "post_attention_layernorm.weight");
  expect_norm(layer.mlp_norm, prefix + "pre_feedforward_layernorm.weight");
  expect_norm(layer.mlp_branch_norm, prefix + "post_feedforward_layernorm.weight");
  expect_norm(layer.key_norm, prefix + "self_attn.k_norm.weight");
  expect_norm(weights.final_norm, "model.norm.weight");
}

TEST_F(CudaWeightsTest, TheDigestIsThatOfTheCpu) {
  const ModelConfig config = tiny_model_config("llama3");
  const CudaWeights& weights = load(config, WeightType::kF16);
  auto opened = WeightFiles::open(files(), directory());
  ASSERT_TRUE(opened.ok());
  const auto expected = load_weights(config, *opened, threads(), {});
  ASSERT_TRUE(expected.ok());
  EXPECT_EQ(weights.digest, expected->digest);
}

// Of two that one product computes the other becomes f32 too; both are what the files have.
TEST_F(CudaWeightsTest, AMatrixOfAnotherTypeIsF32WithAllThatOneProductComputes) {
  const ModelConfig config = tiny_model_config("llama3");
  for (const WeightType other : {WeightType::kF32, WeightType::kF16}) {
    const CudaWeights& weights = load(config, WeightType::kBf16, {{"0.mlp.up_proj.weight", other}});
    const CudaMatrix& gate_up = weights.layers[0].gate_up;
    EXPECT_EQ(gate_up.type, WeightType::kF32);
    const std::string mlp = "model.layers.0.mlp.";
    const auto expected = one_behind_the_other(
        {rounded(values_of(config, mlp + "gate_proj.weight"), WeightType::kBf16),
         rounded(values_of(config, mlp + "up_proj.weight"), other)});
    EXPECT_EQ(download<float>(gate_up.values, expected.size()), expected);
    EXPECT_EQ(weights.layers[0].down.type, WeightType::kBf16);
    EXPECT_EQ(weights.layers[1].gate_up.type, WeightType::kBf16);
  }
}

TEST_F(CudaWeightsTest, PartedHeadsOfAnotherTypeAreF32) {
  ModelConfig config = tiny_model_config("deepseek_v3");
  config.mixture.layers = {false, false, false};
  const CudaWeights exact = load_another(config, WeightType::kF32);
  const CudaWeights weights =
      load_another(config, WeightType::kBf16, {{"1.self_attn.kv_b_proj.weight", WeightType::kF32}});
  const CudaMatrix& heads_up = weights.layers[1].latent.heads_up;
  EXPECT_EQ(heads_up.type, WeightType::kF32);
  EXPECT_EQ(weights.layers[0].latent.heads_up.type, WeightType::kBf16);
  const auto count = values_of(config, "model.layers.1.self_attn.kv_b_proj.weight").size();
  EXPECT_EQ(download<float>(heads_up.values, count),
            download<float>(exact.layers[1].latent.heads_up.values, count));
}

// Embeddings are most of this model, but only looked up.
TEST_F(CudaWeightsTest, RowsHaveTheTypeOfMostValuesInLayers) {
  ModelConfig config = tiny_model_config("qwen2");
  config.vocab_tokens = 4096;
  const WeightType bf16 = load(config, WeightType::kBf16, {{"embed_tokens.weight"}}).type;
  EXPECT_EQ(bf16, WeightType::kBf16);
  const CudaWeights& weights = load(
      config, WeightType::kF32,
      {{"self_attn.o_proj.weight", WeightType::kBf16}, {"mlp.down_proj.weight", WeightType::kF16}});
  EXPECT_EQ(weights.type, WeightType::kF32);
  const auto down =
      rounded(values_of(config, "model.layers.1.mlp.down_proj.weight"), WeightType::kF16);
  EXPECT_EQ(download<float>(weights.layers[1].down.values, down.size()), down);
}

TEST_F(CudaWeightsTest, ATiedHeadHasTheTypeOfTheEmbeddings) {
  const CudaWeights& weights =
      load(tiny_model_config("qwen2"), WeightType::kF16, {{"embed_tokens.weight"}});
  EXPECT_EQ(weights.head.values, weights.embeddings.values);
  EXPECT_EQ(weights.head.type, WeightType::kF32);
  EXPECT_EQ(weights.embeddings_type, WeightType::kF32);
}

TEST_F(CudaWeightsTest, TheFormatNamesAllTypesThatMatricesHaveHere) {
  const ModelConfig mixture = tiny_model_config("qwen3_moe");
  const auto format = [&](const std::vector<OtherType>& others) {
    return compute_format_of(load(mixture, WeightType::kBf16, others));
  };
  EXPECT_EQ(format({}), "bf16");
  EXPECT_EQ(format({{"mlp.gate.weight"}}), "bf16+f32");
  EXPECT_EQ(format({{"0.self_attn.v_proj.weight", WeightType::kF16}}), "bf16+f32");
  EXPECT_EQ(format({{"embed_tokens.weight"}}), "f32+bf16");
}

TEST_F(CudaWeightsTest, WhatIsNotComputedIsRefusedByName) {
  ModelConfig config = tiny_model_config("gemma2");
  EXPECT_TRUE(check_computable(config, "m/config.json").ok());
  EXPECT_TRUE(check_computable(tiny_model_config("qwen3_moe"), "m/config.json").ok());
  config.head_dim = 288;
  EXPECT_EQ(to_string(check_computable(config, "m/config.json").error()),
            "unsupported: m/config.json: head_dim that is no multiple of 8 up to 256 is not for a "
            "GPU yet");
}

TEST_F(CudaWeightsTest, LatentRowsThatThereAreNoKernelsForAreRefusedByName) {
  ModelConfig config = tiny_model_config("deepseek_v3");
  EXPECT_TRUE(check_computable(config, "m/config.json").ok());
  const auto refused = [&](auto change) {
    ModelConfig other = config;
    change(other);
    const Status checked = check_computable(other, "m/config.json");
    return checked.ok() ? "" : to_string(checked.error());
  };
  const std::string begin = "unsupported: m/config.json: ";
  EXPECT_EQ(refused([](ModelConfig& other) { other.latent.query_rank = 44; }),
            begin + "q_lora_rank that is no multiple of 8 is not for a GPU yet");
  EXPECT_EQ(refused([](ModelConfig& other) { other.latent.plain_dim = 20; }),
            begin + "qk_nope_head_dim that is no multiple of 8 is not for a GPU yet");
  EXPECT_EQ(refused([](ModelConfig& other) { other.latent.value_dim = 21; }),
            begin + "v_head_dim of which all heads' are no multiple of 8 is not for a GPU yet");
  EXPECT_EQ(refused([](ModelConfig& other) { other.latent.rank = 576; }),
            begin +
                "a latent row of more than 576 columns, 512 of them kv_lora_rank, is not for a "
                "GPU yet");
}

TEST_F(CudaWeightsTest, HeadsOfLatentAttentionArePartedAndTheirKeysTransposed) {
  ModelConfig config = tiny_model_config("deepseek_v3");
  config.mixture.layers = {false, false, false};
  const CudaWeights& weights = load(config, WeightType::kF32);
  const CudaLatentWeights& latent = weights.layers[2].latent;
  const std::string attention = "model.layers.2.self_attn.";
  const auto down =
      one_behind_the_other({values_of(config, attention + "q_a_proj.weight"),
                            values_of(config, attention + "kv_a_proj_with_mqa.weight")});
  EXPECT_EQ(download<float>(latent.down.values, down.size()), down);
  const auto up = values_of(config, attention + "kv_b_proj.weight");
  const auto rank = static_cast<std::size_t>(config.latent.rank);
  const auto plain_dim = static_cast<std::size_t>(config.latent.plain_dim);
  const auto value_dim = static_cast<std::size_t>(config.latent.value_dim);
  const auto heads = static_cast<std::size_t>(config.query_heads);
  const auto found = download<float>(latent.heads_up.values, up.size());
  const float* const keys = found.data();
  const float* const values = keys + heads * rank * plain_dim;
  for (std::size_t head = 0; head < heads; ++head) {
    const float* const own = &up[head * (plain_dim + value_dim) * rank];
    for (std::size_t i = 0; i < rank; ++i) {
      for (std::size_t j = 0; j < plain_dim; ++j) {
        ASSERT_EQ(keys[(head * rank + i) * plain_dim + j], own[j * rank + i]) << head;
      }
      for (std::size_t j = 0; j < value_dim; ++j) {
        ASSERT_EQ(values[(head * value_dim + j) * rank + i], own[(plain_dim + j) * rank + i])
            << head;
      }
    }
  }
}

TEST_F(CudaWeightsTest, MixturesThatKernelsCannotComputeAreRefusedByName) {
  ModelConfig config = tiny_model_config("qwen3_moe");
  const auto refused = [&] { return to_string(check_computable(config, "c").error()); };
  config.mixture.width = 100;
  EXPECT_EQ(refused(),
            "unsupported: c: moe_intermediate_size that is no multiple of 8 is not for a GPU yet");
  config.mixture.width = 96;
  config.mixture.shared_width = 20;
  EXPECT_EQ(refused(),
            "unsupported: c: a width of shared experts that is no multiple of 8 is not "
            "for a GPU yet");
  config.mixture.shared_width = 0;
  config.mixture.experts = config.mixture.experts_per_token = 40;
  EXPECT_EQ(refused(), "unsupported: c: num_experts_per_tok above 32 is not for a GPU yet");
}

TEST_F(CudaWeightsTest, ExpertsLieOneBehindTheOther) {
  const ModelConfig config = tiny_model_config("qwen3_moe");
  const CudaWeights& weights = load(config, WeightType::kF32);
  const std::string mlp = "model.layers.2.mlp.";
  std::vector<std::vector<float>> gate_up;
  std::vector<std::vector<float>> down;
  for (int expert = 0; expert < 8; ++expert) {
    const std::string own = mlp + "experts." + std::to_string(expert) + ".";
    gate_up.push_back(values_of(config, own + "gate_proj.weight"));
    gate_up.push_back(values_of(config, own + "up_proj.weight"));
    down.push_back(values_of(config, own + "down_proj.weight"));
  }
  const CudaLayerWeights& layer = weights.layers[2];
  const auto expect = [&](const CudaMatrix& found, const std::vector<float>& expected) {
    EXPECT_EQ(download<float>(found.values, expected.size()), expected);
  };
  expect(layer.mixture.gate_up, one_behind_the_other(gate_up));
  expect(layer.mixture.down, one_behind_the_other(down));
  expect(layer.mixture.router, values_of(config, mlp + "gate.weight"));
  EXPECT_EQ(layer.mixture.correction, nullptr);
  EXPECT_TRUE(layer.mixture.shared_gate_up.empty());
  EXPECT_TRUE(layer.gate_up.empty());
  EXPECT_TRUE(weights.layers[1].mixture.router.empty());  // a dense layer
  EXPECT_FALSE(weights.layers[1].gate_up.empty());
}

TEST_F(CudaWeightsTest, SharedExpertsAndACorrectionAreBesideTheExperts) {
  ModelConfig config = tiny_model_config("qwen3_moe");
  config.mixture.choice = MixtureConfig::Choice::kCorrectedGroups;
  config.mixture.shared_width = 24;
  const CudaWeights& weights = load(config, WeightType::kF16);
  const std::string mlp = "model.layers.0.mlp.";
  const CudaMixtureWeights& mixture = weights.layers[0].mixture;
  auto correction = values_of(config, mlp + "gate.e_score_correction_bias");
  for (float& value : correction) value = to_float(to_float16(value));
  EXPECT_EQ(download<float>(mixture.correction, correction.size()), correction);
  const auto expect = [&](const CudaMatrix& found, const std::vector<float>& expected) {
    const auto values = download<Float16>(found.values, expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(values[i].bits, to_float16(expected[i]).bits) << i;
    }
  };
  const std::string shared = mlp + "shared_experts.";
  expect(mixture.shared_gate_up,
         one_behind_the_other({values_of(config, shared + "gate_proj.weight"),
                               values_of(config, shared + "up_proj.weight")}));
  expect(mixture.shared_down, values_of(config, shared + "down_proj.weight"));
}

}  // namespace
}  // namespace stemma
