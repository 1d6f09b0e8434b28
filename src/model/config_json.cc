#include "model/config_json.h"

#include <nlohmann/json.hpp>
#include <string_view>

namespace stemma {
namespace {

using Json = nlohmann::json;

std::string_view architecture_name(ModelFamily family) {
  switch (family) {
    case ModelFamily::kLlama:
      return "LlamaForCausalLM";
    case ModelFamily::kQwen2:
      return "Qwen2ForCausalLM";
    case ModelFamily::kQwen3:
      return "Qwen3ForCausalLM";
    case ModelFamily::kQwen3Moe:
      return "Qwen3MoeForCausalLM";
    case ModelFamily::kDeepseekV2:
      return "DeepseekV2ForCausalLM";
    case ModelFamily::kDeepseekV3:
      return "DeepseekV3ForCausalLM";
    case ModelFamily::kMistral:
      return "MistralForCausalLM";
    case ModelFamily::kGemma2:
      return "Gemma2ForCausalLM";
    case ModelFamily::kGemma3:
      return "Gemma3ForCausalLM";
  }
  return "unknown";
}

std::string_view torch_dtype_name(DType dtype) {
  if (dtype == DType::kF32) {
    return "float32";
  }
  return dtype == DType::kF16 ? "float16" : "bfloat16";
}

Json rope_scaling_json(const RopeConfig& rope) {
  if (rope.scaling == RopeConfig::Scaling::kNone) {
    return nullptr;
  }
  Json scaling = {{"rope_type", rope_scaling_name(rope.scaling)}, {"factor", rope.factor}};
  if (rope.scaling == RopeConfig::Scaling::kLlama3) {
    scaling["low_freq_factor"] = rope.low_frequency_factor;
    scaling["high_freq_factor"] = rope.high_frequency_factor;
  }
  if (rope.scaling != RopeConfig::Scaling::kLinear) {
    scaling["original_max_position_embeddings"] = rope.original_context_tokens;
  }
  if (rope.scaling == RopeConfig::Scaling::kYarn) {
    scaling["beta_fast"] = rope.fast_turns;
    scaling["beta_slow"] = rope.slow_turns;
    if (rope.mscale_all_dim > 0.0) {
      scaling["mscale"] = rope.mscale;
      scaling["mscale_all_dim"] = rope.mscale_all_dim;
    }
    if (rope.attention_factor > 0.0) {
      scaling["attention_factor"] = rope.attention_factor;
    }
    if (rope.length_factor != 1.0) scaling["attn_factor"] = rope.length_factor;
  }
  return scaling;
}

void add_latent(const ModelConfig& config, Json& object) {
  const LatentConfig& latent = config.latent;
  object["num_key_value_heads"] = config.query_heads;
  object["kv_lora_rank"] = latent.rank;
  object["q_lora_rank"] = latent.query_rank > 0 ? Json(latent.query_rank) : Json(nullptr);
  object["qk_nope_head_dim"] = latent.plain_dim;
  object["qk_rope_head_dim"] = latent.rope_dim;
  object["v_head_dim"] = latent.value_dim;
}

void add_heads(const ModelConfig& config, Json& object) {
  object["num_key_value_heads"] = config.kv_heads;
  object["head_dim"] = config.head_dim;
}

void add_deepseek_mixture(const ModelConfig& config, Json& object) {
  const MixtureConfig& mixture = config.mixture;
  const bool corrected = mixture.choice == MixtureConfig::Choice::kCorrectedGroups;
  std::int64_t dense = 0;
  while (dense < config.layers && !mixture.at_layer(dense)) {
    ++dense;
  }
  object["n_routed_experts"] = mixture.experts;
  object["n_shared_experts"] = mixture.shared_width / mixture.width;
  object["scoring_func"] = corrected ? "sigmoid" : "softmax";
  object["topk_method"] = choice_name(mixture.choice);
  object["n_group"] = mixture.groups;
  object["topk_group"] = mixture.groups_per_token;
  object["routed_scaling_factor"] = mixture.scaling;
  object["first_k_dense_replace"] = dense;
  object["moe_layer_freq"] = 1;
}

void add_qwen_mixture(const ModelConfig& config, Json& object) {
  Json dense = Json::array();
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    if (!config.mixture.at_layer(layer)) {
      dense.push_back(layer);
    }
  }
  object["num_experts"] = config.mixture.experts;
  object["mlp_only_layers"] = dense;
}

void add_mixture(const ModelConfig& config, Json& object) {
  object["num_experts_per_tok"] = config.mixture.experts_per_token;
  object["moe_intermediate_size"] = config.mixture.width;
  object["norm_topk_prob"] = config.mixture.normalised;
  if (config.family == ModelFamily::kQwen3Moe) {
    add_qwen_mixture(config, object);
  } else {
    add_deepseek_mixture(config, object);
  }
}

void add_windows(const ModelConfig& config, Json& object) {
  Json types = Json::array();
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    types.push_back(config.windows.at_layer(layer) ? "sliding_attention" : "full_attention");
  }
  object["sliding_window"] = config.windows.tokens;
  object["layer_types"] = types;
  if (config.windowed_rope.has_value()) {
    object["rope_local_base_freq"] = config.windowed_rope->theta;
  }
}

void add_gemma(const ModelConfig& config, Json& object) {
  object["hidden_activation"] = "gelu_pytorch_tanh";
  object["query_pre_attn_scalar"] = config.score_dim;
  const auto cap_json = [](double cap) { return cap > 0 ? Json(cap) : Json(nullptr); };
  object["attn_logit_softcapping"] = cap_json(config.score_cap);
  object["final_logit_softcapping"] = cap_json(config.logit_cap);
}

// As DeepSeek's and Qwen's files say it.
void add_float8(const Float8Config& float8, Json& object) {
  Json section = {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"activation_scheme", "dynamic"}};
  if (float8.tile_outputs > 0) {
    section["weight_block_size"] = {float8.tile_outputs, float8.tile_inputs};
  }
  object["quantization_config"] = section;
}

Json compressed_json(const char* format, const Json& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"config_groups", {{"group_0", {{"weights", weights}}}}}};
}

void add_int8(Json& object) {
  const Json weights = {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}};
  object["quantization_config"] = compressed_json("int-quantized", weights);
}

// As the libraries that write such files say it.
void add_packed_int(const PackedIntConfig& packed, Json& object) {
  const std::int64_t group_inputs = packed.group_inputs == 0 ? -1 : packed.group_inputs;
  switch (packed.layout) {
    case PackedIntConfig::Layout::kGptq:
      object["quantization_config"] = {
          {"quant_method", "gptq"},
          {"bits", packed.bits},
          {"group_size", group_inputs},
          {"sym", packed.is_symmetric},
          {"checkpoint_format", packed.zeros_less_one ? "gptq" : "gptq_v2"}};
      return;
    case PackedIntConfig::Layout::kAwq:
      object["quantization_config"] = {{"quant_method", "awq"},
                                       {"bits", 4},
                                       {"group_size", group_inputs},
                                       {"zero_point", true},
                                       {"version", "gemm"}};
      return;
    case PackedIntConfig::Layout::kCompressedTensors:
      break;
  }
  Json weights = {{"num_bits", packed.bits},
                  {"type", "int"},
                  {"symmetric", packed.is_symmetric},
                  {"strategy", "channel"}};
  if (packed.group_inputs != 0) {
    weights["strategy"] = "group";
    weights["group_size"] = packed.group_inputs;
  }
  object["quantization_config"] = compressed_json("pack-quantized", weights);
}

}  // namespace

std::string config_json(const ModelConfig& config) {
  Json object = {{"architectures", {architecture_name(config.family)}},
                 {"vocab_size", config.vocab_tokens},
                 {"hidden_size", config.hidden},
                 {"intermediate_size", config.intermediate},
                 {"num_hidden_layers", config.layers},
                 {"num_attention_heads", config.query_heads},
                 {"max_position_embeddings", config.context_tokens_max},
                 {"rms_norm_eps", config.norm_epsilon},
                 {"rope_theta", config.rope.theta},
                 {"rope_scaling", rope_scaling_json(config.rope)},
                 {"tie_word_embeddings", config.tied_embeddings},
                 {"attention_bias", config.output_bias},
                 {"mlp_bias", config.mlp_bias},
                 {"hidden_act", "silu"},
                 {"eos_token_id", config.end_tokens}};
  config.latent.rank > 0 ? add_latent(config, object) : add_heads(config, object);
  if (config.mixture.experts > 0) {
    add_mixture(config, object);
  }
  if (config.windows.tokens > 0) {
    add_windows(config, object);
  } else {
    object["sliding_window"] = nullptr;
  }
  if (config.activation == Activation::kGeluTanh) {
    add_gemma(config, object);
  }
  if (const auto* const float8 = std::get_if<Float8Config>(&config.coded)) {
    add_float8(*float8, object);
  } else if (std::holds_alternative<Int8Config>(config.coded)) {
    add_int8(object);
  } else if (const auto* const packed = std::get_if<PackedIntConfig>(&config.coded)) {
    add_packed_int(*packed, object);
  }
  if (config.begin_token.has_value()) {
    object["bos_token_id"] = *config.begin_token;
  }
  if (config.weights_dtype.has_value()) {
    object["torch_dtype"] = torch_dtype_name(*config.weights_dtype);
  }
  return object.dump(1);
}

}  // namespace stemma
