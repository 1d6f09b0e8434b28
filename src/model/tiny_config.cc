#include "model/tiny_config.h"

#include <utility>

#include "base/check.h"

namespace stemma {
namespace {

ModelConfig plain_config() {
  ModelConfig config;
  config.vocab_tokens = 291;  // not a multiple of any panel
  config.hidden = 64;
  config.intermediate = 160;
  config.layers = 2;
  config.query_heads = 2;
  config.kv_heads = 2;
  config.head_dim = 32;
  config.context_tokens_max = 4096;
  config.norm_epsilon = 1e-5;
  config.weights_dtype = DType::kF32;
  config.begin_token = kTinyEndToken;
  config.end_tokens = {kTinyEndToken};
  return config;
}

ModelConfig llama3_config() {
  ModelConfig config = plain_config();
  config.hidden = 128;
  config.query_heads = 4;
  config.tied_embeddings = true;
  config.rope.theta = 500000.0;
  config.rope.scaling = RopeConfig::Scaling::kLlama3;
  config.rope.factor = 8.0;
  config.rope.original_context_tokens = 256;  // all three bands occur
  return config;
}

ModelConfig llama_bias_config() {
  ModelConfig config = plain_config();
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.rope.scaling = RopeConfig::Scaling::kLinear;
  config.rope.factor = 4.0;
  return config;
}

ModelConfig qwen2_config() {
  ModelConfig config = plain_config();
  config.family = ModelFamily::kQwen2;
  config.hidden = 128;
  config.query_heads = 4;
  config.kv_heads = 1;
  config.norm_epsilon = 1e-6;
  config.rope.theta = 1e6;
  config.qkv_bias = true;
  config.tied_embeddings = true;
  return config;
}

// The ramp lies within the pairs.
void set_yarn(RopeConfig& rope) {
  rope.scaling = RopeConfig::Scaling::kYarn;
  rope.factor = 4.0;
  rope.original_context_tokens = 64;
  rope.fast_turns = 4.0;
  rope.slow_turns = 0.05;
}

ModelConfig qwen2_yarn_config() {
  ModelConfig config = qwen2_config();
  config.tied_embeddings = false;
  config.rope.theta = 10000.0;
  set_yarn(config.rope);
  return config;
}

ModelConfig qwen3_config() {
  ModelConfig config = plain_config();
  config.family = ModelFamily::kQwen3;
  config.layers = 3;
  config.query_heads = 4;
  config.norm_epsilon = 1e-6;
  config.rope.theta = 1e6;
  config.head_norms = true;
  return config;
}

ModelConfig qwen3_moe_config() {
  ModelConfig config = qwen3_config();
  config.family = ModelFamily::kQwen3Moe;
  config.mixture.experts = 8;
  config.mixture.experts_per_token = 2;
  config.mixture.width = 96;
  config.mixture.normalised = true;
  config.mixture.layers = {true, false, true};
  return config;
}

ModelConfig deepseek_config(ModelFamily family) {
  ModelConfig config = plain_config();
  config.family = family;
  config.layers = 3;
  config.query_heads = 4;
  config.norm_epsilon = 1e-6;
  config.latent = {.rank = 48, .query_rank = 40, .plain_dim = 24, .rope_dim = 16, .value_dim = 20};
  config.kv_heads = 1;
  config.head_dim = config.latent.row_dim();
  config.mixture.experts = 8;
  config.mixture.experts_per_token = 3;
  config.mixture.width = 48;
  config.mixture.shared_width = 48;
  config.mixture.layers = {false, true, true};
  return config;
}

ModelConfig deepseek_v2_config() {
  ModelConfig config = deepseek_config(ModelFamily::kDeepseekV2);
  set_yarn(config.rope);
  config.rope.mscale = 0.707;
  config.rope.mscale_all_dim = 0.5;
  config.mixture.choice = MixtureConfig::Choice::kSoftmaxGroups;
  config.mixture.groups = 4;
  config.mixture.groups_per_token = 2;
  config.mixture.shared_width = 96;  // two experts
  config.mixture.scaling = 2.0;
  return config;
}

ModelConfig deepseek_v2_lite_config() {
  ModelConfig config = deepseek_config(ModelFamily::kDeepseekV2);
  config.latent.query_rank = 0;
  config.qkv_bias = config.output_bias = true;
  config.mixture.normalised = true;
  return config;
}

ModelConfig deepseek_v3_config() {
  ModelConfig config = deepseek_config(ModelFamily::kDeepseekV3);
  set_yarn(config.rope);
  config.rope.mscale = config.rope.mscale_all_dim = 1.0;
  config.mixture.choice = MixtureConfig::Choice::kCorrectedGroups;
  config.mixture.groups = 2;
  config.mixture.groups_per_token = 1;
  config.mixture.normalised = true;
  config.mixture.scaling = 2.5;
  return config;
}

// Every layer has a window, shorter than the texts of the tests.
ModelConfig mistral_config() {
  ModelConfig config = plain_config();
  config.family = ModelFamily::kMistral;
  config.kv_heads = 1;
  config.windows = {.tokens = 40, .layers = {true, true}};
  return config;
}

ModelConfig gemma_config(ModelFamily family) {
  ModelConfig config = plain_config();
  config.family = family;
  config.query_heads = 4;
  config.kv_heads = 2;
  config.tied_embeddings = true;
  config.norm_epsilon = 1e-6;
  config.activation = Activation::kGeluTanh;
  config.norms_add_one = config.branch_norms = config.scaled_embeddings = true;
  config.score_dim = 24;
  return config;
}

ModelConfig gemma2_config() {
  ModelConfig config = gemma_config(ModelFamily::kGemma2);
  config.layers = 3;
  config.windows = {.tokens = 50, .layers = {true, false, true}};
  config.score_cap = 50.0;
  config.logit_cap = 30.0;
  return config;
}

ModelConfig gemma3_config() {
  ModelConfig config = gemma_config(ModelFamily::kGemma3);
  config.layers = 4;
  config.head_norms = true;
  config.windows = {.tokens = 20, .layers = {true, true, false, true}};
  config.rope.theta = 1e6;
  config.rope.scaling = RopeConfig::Scaling::kLinear;
  config.rope.factor = 8.0;
  config.windowed_rope = RopeConfig();
  return config;
}

struct Tiny {
  std::string_view name;
  ModelConfig (*config)();
};
constexpr Tiny kTiny[] = {
    {"llama2", plain_config},
    {"llama3", llama3_config},
    {"llama_bias", llama_bias_config},
    {"qwen2", qwen2_config},
    {"qwen2_yarn", qwen2_yarn_config},
    {"qwen3", qwen3_config},
    {"qwen3_moe", qwen3_moe_config},
    {"deepseek_v2", deepseek_v2_config},
    {"deepseek_v2_lite", deepseek_v2_lite_config},
    {"deepseek_v3", deepseek_v3_config},
    {"mistral", mistral_config},
    {"gemma2", gemma2_config},
    {"gemma3", gemma3_config},
};

}  // namespace

std::vector<std::string_view> tiny_model_names() {
  std::vector<std::string_view> names;
  for (const Tiny& tiny : kTiny) {
    names.push_back(tiny.name);
  }
  return names;
}

std::vector<std::string_view> tiny_names_without_windows() {
  std::vector<std::string_view> names = tiny_model_names();
  std::erase_if(names, [](auto name) { return tiny_model_config(name).windows.tokens > 0; });
  return names;
}

ModelConfig tiny_model_config(std::string_view name) {
  for (const Tiny& tiny : kTiny) {
    if (tiny.name == name) {
      return tiny.config();
    }
  }
  STEMMA_CHECK(false, "one of tiny_model_names()");
}

}  // namespace stemma
