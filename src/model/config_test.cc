// Config: the files that the families publish are read as they mean; what is wrong or cannot be
// computed is one line that names the file and the field.
#include "model/config.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "model/config_fixture.h"
#include "model/rope.h"

namespace stemma {
namespace {

TEST(Config, Llama2) {
  const ModelConfig config = parse(config_text("LlamaForCausalLM", R"(,"rms_norm_eps":1e-05,
      "bos_token_id":1,"eos_token_id":2,"hidden_act":"silu","torch_dtype":"float16",
      "rope_scaling":null,"pretraining_tp":1,"use_cache":true,"tie_word_embeddings":false)"));
  EXPECT_EQ(config.family, ModelFamily::kLlama);
  EXPECT_EQ(config.vocab_tokens, 1000);
  EXPECT_EQ(config.hidden, 128);
  EXPECT_EQ(config.intermediate, 256);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.query_heads, 4);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.context_tokens_max, 512);
  EXPECT_EQ(config.norm_epsilon, 1e-5);
  EXPECT_EQ(config.rope, RopeConfig{});
  EXPECT_FALSE(config.qkv_bias || config.output_bias || config.mlp_bias || config.head_norms);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_EQ(config.weights_dtype, DType::kF16);
  EXPECT_EQ(config.begin_token, 1);
  EXPECT_EQ(config.end_tokens, std::vector<TokenId>{2});
}

TEST(Config, Llama31RopeScalingAndSeveralEndTokens) {
  const ModelConfig config =
      parse(config_text("LlamaForCausalLM", R"(,"num_key_value_heads":2,"rope_theta":500000.0,
      "eos_token_id":[1,8,9],"tie_word_embeddings":true,"torch_dtype":"bfloat16",
      "rope_scaling":{"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
                      "original_max_position_embeddings":64,"rope_type":"llama3"})"));
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(config.end_tokens, (std::vector<TokenId>{1, 8, 9}));
  EXPECT_EQ(config.rope, (RopeConfig{.theta = 500000.0,
                                     .scaling = RopeConfig::Scaling::kLlama3,
                                     .factor = 8.0,
                                     .low_frequency_factor = 1.0,
                                     .high_frequency_factor = 4.0,
                                     .original_context_tokens = 64}));
}

TEST(Config, YarnStatesOrImpliesItsFactors) {
  const auto rope_of = [](const std::string& extra) {
    return parse(config_text("Qwen2ForCausalLM", R"(,"rope_scaling":{"type":"yarn","factor":4.0,
        "original_max_position_embeddings":128)" + extra +
                                                     "}"))
        .rope;
  };
  const double length = 0.1 * std::log(4.0) + 1.0;
  EXPECT_EQ(rope_of("").scaling, RopeConfig::Scaling::kYarn);
  EXPECT_EQ(rope_of("").fast_turns, 32.0);
  EXPECT_DOUBLE_EQ(vector_length(rope_of("")), length);
  EXPECT_EQ(score_factor(rope_of("")), 1.0);
  EXPECT_EQ(vector_length(rope_of(R"(,"attention_factor":1.5)")), 1.5);
  const RopeConfig level = rope_of(R"(,"attn_factor":0.8782488562869419)");
  EXPECT_DOUBLE_EQ(vector_length(level), 1.0) << "as DeepSeek-R1-0528-Qwen3-8B has it";
  EXPECT_NE(rope_text(level), rope_text(rope_of("")));
  EXPECT_EQ(rope_of(R"(,"beta_fast":1.0,"beta_slow":1.0)").fast_turns, 1.0);
  const RopeConfig ratio = rope_of(R"(,"beta_fast":16,"mscale":1.0,"mscale_all_dim":0.5)");
  EXPECT_EQ(ratio.fast_turns, 16.0);
  EXPECT_DOUBLE_EQ(vector_length(ratio), length / (0.05 * std::log(4.0) + 1.0));
  EXPECT_DOUBLE_EQ(score_factor(ratio), std::pow(0.05 * std::log(4.0) + 1.0, 2));
}

TEST(Config, RopeInTheNewForm) {
  const ModelConfig config = parse(config_text("LlamaForCausalLM", R"(,"dtype":"float32",
      "rope_parameters":{"rope_theta":1000.0,"rope_type":"linear","factor":2.0})"));
  EXPECT_EQ(config.rope.theta, 1000.0);
  EXPECT_EQ(config.rope.scaling, RopeConfig::Scaling::kLinear);
  EXPECT_EQ(config.rope.factor, 2.0);
  EXPECT_EQ(config.weights_dtype, DType::kF32);
}

TEST(Config, RopeScalingBesideTheNewFormSaysHow) {
  const auto text = [](const std::string& extra) {
    return config_text("Qwen3ForCausalLM", R"(,"rope_parameters":{"rope_type":"default",
        "rope_theta":1000000.0},"rope_scaling":)" +
                                               extra);
  };
  const RopeConfig rope = parse(text(R"({"rope_type":"yarn","factor":4.0,
      "original_max_position_embeddings":128})"))
                              .rope;
  EXPECT_EQ(rope.scaling, RopeConfig::Scaling::kYarn);
  EXPECT_EQ(rope.factor, 4.0);
  EXPECT_EQ(rope.theta, 1e6) << "which the other says alone";
  EXPECT_EQ(parse(text("{}")).rope.theta, 1e6);
  EXPECT_EQ(parse(text("null")).rope.scaling, RopeConfig::Scaling::kNone);
  EXPECT_THAT(error_of(text(R"({"rope_type":"linear","factor":2.0,"rope_theta":5})")),
              testing::HasSubstr("rope_scaling: contradicts rope_parameters"));
}

TEST(Config, TwoRopeScalingsMustAgree) {
  const auto text = [](const std::string& factor) {
    return config_text("LlamaForCausalLM",
                       R"(,"rope_parameters":{"rope_type":"linear","factor":2.0},
        "rope_scaling":{"type":"linear","factor":)" +
                           factor + "}");
  };
  EXPECT_EQ(parse(text("2")).rope.factor, 2.0);
  EXPECT_THAT(error_of(text("4")), testing::HasSubstr("rope_scaling: contradicts"));
}

TEST(Config, WhatATypeOfRopeDoesNotHaveIsRefusedByName) {
  const std::string yarn =
      R"("rope_type":"yarn","factor":4.0,"original_max_position_embeddings":128,)";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("factor":8.0)", "factor: is nothing that the type default has"},
      {R"("rope_type":"linear","factor":2,"beta_fast":8)", "beta_fast: is nothing"},
      {R"("rope_type":"default","mrope_section":[1])", "mrope_section: is nothing"},
      {R"("rope_type":"default","type":"linear","factor":2)", "type: is another than rope_type"},
      {R"("partial_rotary_factor":0.5)", "partial_rotary_factor: only 1.0"},
      {R"("rope_type":"linear","factor":2,"attn_factor":2.0)", "attn_factor: only 1.0"},
      {yarn + R"("attn_factor":2.0,"attention_factor":1.5)", "attn_factor: only 1.0"},
      {yarn + R"("attn_factor":0)", "attn_factor: must be a number above 0"},
      {yarn + R"("extrapolation_factor":0.5)", "extrapolation_factor: only 1.0"},
      {yarn + R"("llama_4_scaling_beta":0.1)", "llama_4_scaling_beta: only 0.0"},
      {R"("full_attention":{"rope_type":"default"})", "full_attention: is nothing"},
  };
  for (const char* const name : {"rope_parameters", "rope_scaling"}) {
    for (const auto& [object, expected] : cases) {
      EXPECT_THAT(error_of(config_text("LlamaForCausalLM",
                                       R"(,")" + std::string(name) + R"(":{)" + object + "}")),
                  testing::HasSubstr(std::string(name) + "." + expected));
    }
  }
  EXPECT_EQ(parse(config_text("LlamaForCausalLM", R"(,"rope_scaling":{)" + yarn +
                                                      R"("type":"yarn","attn_factor":1,
      "mscale":null,"finetuned":true,"partial_rotary_factor":1.0})"))
                .rope.scaling,
            RopeConfig::Scaling::kYarn)
      << "what changes nothing is taken";
}

TEST(Config, Gemma3WindowsAreNotScaled) {
  const auto text = [](const std::string& own) {
    return config_text("Gemma3ForCausalLM", R"(,"sliding_window":512,"head_dim":64,
        "layer_types":["sliding_attention","full_attention"],
        "rope_parameters":{"sliding_attention":)" +
                                                own + "}");
  };
  EXPECT_THAT(error_of(text(R"({"type":"linear","factor":8.0})")),
              testing::HasSubstr("rope_parameters.sliding_attention.rope_type: only default"));
  EXPECT_THAT(error_of(text(R"({"factor":8.0})")),
              testing::HasSubstr("rope_parameters.sliding_attention.factor: is nothing"));
  EXPECT_EQ(parse(text(R"({"rope_theta":5.0})")).windowed_rope->theta, 5.0);
  EXPECT_EQ(parse(text(R"({"rope_theta":5.0})")).rope.theta, 1e6) << "the other layers' own";
}

TEST(Config, AStretchedContextCanBeAskedForAndIsNotTheUsualOne) {
  const auto bound = [](const std::string& scaling) {
    const ModelConfig config =
        parse(config_text("LlamaForCausalLM", R"(,"rope_scaling":)" + scaling));
    EXPECT_EQ(config.context_tokens_max, 512);
    return config.context_tokens_bound();
  };
  EXPECT_EQ(bound("null"), 512);
  EXPECT_EQ(bound(R"({"type":"linear","factor":4})"), 2048);
  const auto yarn = [](const std::string& original, const std::string& factor) {
    return R"({"type":"yarn","original_max_position_embeddings":)" + original + R"(,"factor":)" +
           factor + "}";
  };
  EXPECT_EQ(bound(yarn("512", "4")), 2048);
  EXPECT_EQ(bound(yarn("128", "4")), 512) << "the file says the stretched one";
  EXPECT_EQ(bound(yarn("128", "2.5")), 512) << "never less than it says";
  EXPECT_EQ(bound(yarn("512", "1e300")), 1 << 28);
  EXPECT_EQ(bound(R"({"type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,
                      "original_max_position_embeddings":64})"),
            512);
}

TEST(Config, Gemma3SaysTheStretchedContextItself) {
  EXPECT_EQ(parse(config_text("Gemma3ForCausalLM", R"(,"sliding_window":64,"head_dim":64,
      "rope_scaling":{"rope_type":"linear","factor":8.0})"))
                .context_tokens_bound(),
            512);
}

TEST(Config, LlamaBiases) {
  const ModelConfig config =
      parse(config_text("LlamaForCausalLM", R"(,"attention_bias":true,"mlp_bias":true)"));
  EXPECT_TRUE(config.qkv_bias && config.output_bias && config.mlp_bias);
}

TEST(Config, Qwen2HasQkvBiasAndItsWindowMayBeOff) {
  const ModelConfig config = parse(config_text("Qwen2ForCausalLM", R"(,"use_sliding_window":false,
      "sliding_window":32768,"max_window_layers":21,"rope_theta":1000000.0)"));
  EXPECT_EQ(config.family, ModelFamily::kQwen2);
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.output_bias || config.head_norms);
}

TEST(Config, QwenWindowsBeginAtALayerWhereTheyAreSwitchedOn) {
  const ModelConfig config = parse(config_text("Qwen2ForCausalLM", R"(,"use_sliding_window":true,
      "sliding_window":4096,"max_window_layers":1)"));
  EXPECT_EQ(config.windows, (WindowConfig{.tokens = 4096, .layers = {false, true}}));
  EXPECT_EQ(config.pool_shape().layers, 1);
  EXPECT_EQ(config.windowed_pool_shape().layers, 1);
}

TEST(Config, Qwen3MoeHasItsWindowInAllLayersWhereItIsSwitchedOn) {
  const auto text = [](const std::string& more) {
    return config_text("Qwen3MoeForCausalLM", R"(,"num_experts":4,"num_experts_per_tok":2,
        "moe_intermediate_size":96,"sliding_window":8,)" +
                                                  more);
  };
  const std::string on = R"("use_sliding_window":true)";
  const WindowConfig all = {.tokens = 8, .layers = {true, true}};
  EXPECT_EQ(parse(text(on)).windows, all);
  EXPECT_EQ(parse(text(on + R"(,"max_window_layers":1)")).windows, all) << "Qwen2's and Qwen3's";
  EXPECT_EQ(parse(text(on + R"(,"layer_types":["sliding_attention","sliding_attention"])")).windows,
            all);
  EXPECT_THAT(error_of(text(on + R"(,"layer_types":["full_attention","sliding_attention"])")),
              testing::HasSubstr("layer_types: only sliding_attention"));
  EXPECT_THAT(error_of(text(on + R"(,"layer_types":["full_attention","full_attention"])")),
              testing::HasSubstr("layer_types: only sliding_attention"));
  EXPECT_EQ(parse(text(R"("layer_types":["full_attention","full_attention"])")).windows,
            WindowConfig());
}

TEST(Config, MistralLooksBackOverItsWindowInEveryLayerOrHasNone) {
  const ModelConfig config =
      parse(config_text("MistralForCausalLM", R"(,"sliding_window":4096,"head_dim":64)"));
  EXPECT_EQ(config.family, ModelFamily::kMistral);
  EXPECT_EQ(config.windows, (WindowConfig{.tokens = 4096, .layers = {true, true}}));
  EXPECT_EQ(config.pool_shape().layers, 0);
  const ModelConfig later =
      parse(config_text("MistralForCausalLM", R"(,"sliding_window":null,"head_dim":64)"));
  EXPECT_EQ(later.windows, WindowConfig());
  const ModelConfig silent = parse(config_text("MistralForCausalLM", R"(,"head_dim":64)"));
  EXPECT_EQ(silent.windows, config.windows) << "as the family does where the file does not say";
}

// Hugging Face's class has the window all the same, vLLM has none.
TEST(Config, MistralThatSwitchesItsWindowOffIsRefused) {
  const auto text = [](const std::string& fields) {
    return config_text("MistralForCausalLM", R"(,"head_dim":64,)" + fields);
  };
  for (const char* const window : {R"("sliding_window":4096,)", ""}) {
    EXPECT_THAT(error_of(text(std::string(window) + R"("use_sliding_window":false)")),
                testing::HasSubstr("use_sliding_window: only true is supported"));
  }
  EXPECT_EQ(parse(text(R"("sliding_window":8,"use_sliding_window":true)")).windows.count(), 2);
  for (const char* const flag : {"true", "false"}) {
    EXPECT_EQ(
        parse(text(R"("sliding_window":null,"use_sliding_window":)" + std::string(flag))).windows,
        WindowConfig());
  }
}

// Hugging Face's class has the window in all layers then, vLLM in those that are listed.
TEST(Config, MistralThatListsOtherLayersThanAllIsRefused) {
  const auto text = [](const std::string& window, const std::string& types) {
    return config_text("MistralForCausalLM",
                       R"(,"sliding_window":)" + window + R"(,"layer_types":[)" + types + "]");
  };
  const std::string full = R"("full_attention")";
  const std::string windowed = R"("sliding_attention")";
  EXPECT_EQ(parse(text("8", windowed + "," + windowed)).windows.count(), 2);
  EXPECT_EQ(parse(text("null", full + "," + full)).windows, WindowConfig());
  for (const std::string& first : {full, windowed}) {
    EXPECT_THAT(error_of(text("8", first + "," + full)),
                testing::HasSubstr("layer_types: only sliding_attention"));
  }
}

// null is said; what is not there is what the family has.
TEST(Config, GemmaCapsAndRopeAreTheFamilysWhereTheFileDoesNotSay) {
  const ModelConfig silent =
      parse(config_text("Gemma2ForCausalLM", R"(,"sliding_window":8,"head_dim":64)"));
  EXPECT_EQ(silent.score_cap, 50);
  EXPECT_EQ(silent.logit_cap, 30);
  const ModelConfig none = parse(config_text("Gemma2ForCausalLM", R"(,"sliding_window":8,
      "head_dim":64,"attn_logit_softcapping":null,"final_logit_softcapping":null)"));
  EXPECT_EQ(none.score_cap, 0);
  EXPECT_EQ(none.logit_cap, 0);
  const ModelConfig gemma3 =
      parse(config_text("Gemma3ForCausalLM", R"(,"sliding_window":8,"head_dim":64)"));
  EXPECT_EQ(gemma3.score_cap, 0);
  EXPECT_EQ(gemma3.logit_cap, 0);
  EXPECT_EQ(gemma3.rope.theta, 1e6);
  EXPECT_EQ(gemma3.windowed_rope->theta, 1e4);
  EXPECT_EQ(error_of(config_text("Gemma3ForCausalLM", R"(,"use_bidirectional_attention":true)")),
            "unsupported: m/config.json: use_bidirectional_attention: only false is supported");
}

// Hugging Face's Gemma3Attention has the cap of scores in its settings and applies none.
TEST(Config, Gemma3CapsLogitsWhereTheFileSaysSoAndNeverScores) {
  const ModelConfig config = parse(config_text("Gemma3ForCausalLM", R"(,"sliding_window":8,
      "head_dim":64,"attn_logit_softcapping":50.0,"final_logit_softcapping":30.0)"));
  EXPECT_EQ(config.score_cap, 0);
  EXPECT_EQ(config.logit_cap, 30);
}

TEST(Config, Gemma2AlternatesAndCaps) {
  const ModelConfig config = parse(config_text("Gemma2ForCausalLM", R"(,
      "sliding_window":4096,"head_dim":64,"query_pre_attn_scalar":144,
      "hidden_act":"gelu_pytorch_tanh",
      "hidden_activation":"gelu_pytorch_tanh","attn_logit_softcapping":50.0,
      "final_logit_softcapping":30.0)",
                                               3));
  EXPECT_EQ(config.windows, (WindowConfig{.tokens = 4096, .layers = {true, false, true}}));
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  EXPECT_TRUE(config.norms_add_one && config.branch_norms && config.scaled_embeddings);
  EXPECT_TRUE(config.tied_embeddings) << "as the family does where the file does not say";
  EXPECT_EQ(config.score_dim, 144);
  EXPECT_EQ(config.score_cap, 50);
  EXPECT_EQ(config.logit_cap, 30);
}

TEST(Config, Gemma3HasAWindowInAllLayersButEverySixthAndARopeForIt) {
  const ModelConfig config = parse(config_text("Gemma3ForCausalLM", R"(,
      "sliding_window":512,"head_dim":64,"rope_theta":1000000.0,"rope_local_base_freq":20000.0,
      "rope_scaling":{"rope_type":"linear","factor":8.0})",
                                               7));
  EXPECT_EQ(config.windows.count(), 6);
  EXPECT_FALSE(config.windows.at_layer(5));
  EXPECT_EQ(config.windows.place(6), 5);
  EXPECT_EQ(config.windows.place(5), 0);
  EXPECT_TRUE(config.head_norms);
  EXPECT_EQ(config.rope.scaling, RopeConfig::Scaling::kLinear);
  ASSERT_TRUE(config.windowed_rope.has_value());
  EXPECT_EQ(config.windowed_rope->theta, 20000.0);
  EXPECT_EQ(config.windowed_rope->scaling, RopeConfig::Scaling::kNone);
}

TEST(Config, NewestGemmaFilesHaveRopeParametersForEachTypeOfLayer) {
  const ModelConfig config = parse(config_text("Gemma3ForCausalLM", R"(,"sliding_window":512,
      "head_dim":64,"layer_types":["sliding_attention","full_attention"],"rope_parameters":{
      "full_attention":{"rope_type":"linear","factor":8.0,"rope_theta":1000000.0},
      "sliding_attention":{"rope_type":"default","rope_theta":10000.0}})"));
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.rope.factor, 8.0);
  EXPECT_EQ(config.windowed_rope->theta, 1e4);
}

TEST(Config, Qwen3HasHeadNormsAndItsOwnHeadDim) {
  const ModelConfig config = parse(config_text("Qwen3ForCausalLM", R"(,"head_dim":64,
      "attention_bias":false,"num_key_value_heads":2,
      "layer_types":["full_attention","full_attention"])"));
  EXPECT_EQ(config.family, ModelFamily::kQwen3);
  EXPECT_TRUE(config.head_norms);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.query_columns(), 256);
  EXPECT_EQ(config.kv_columns(), 128);
}

TEST(Config, AnUnknownArchitectureListsTheKnown) {
  EXPECT_EQ(error_of(config_text("GPT2LMHeadModel")),
            "unsupported: m/config.json: architectures: 'GPT2LMHeadModel' is not supported; known "
            "are LlamaForCausalLM Qwen2ForCausalLM Qwen3ForCausalLM Qwen3MoeForCausalLM "
            "DeepseekV2ForCausalLM DeepseekV3ForCausalLM MistralForCausalLM Gemma2ForCausalLM "
            "Gemma3ForCausalLM");
  EXPECT_NE(error_of(R"({"architectures":[]})").find("architectures: must be a list"),
            std::string::npos);
}

TEST(Config, WhatCannotBeComputedIsRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"(,"hidden_act":"gelu")", "hidden_act: 'gelu' is not supported; known is silu"},
      {R"(,"sliding_window":4096)", "sliding_window: sliding-window attention is not supported"},
      {R"(,"use_sliding_window":true)", "sliding_window: sliding-window attention"},
      {R"(,"layer_types":["full_attention","sliding_attention"])",
       "layer_types: sliding_attention, where the file switches no window on"},
      {R"(,"layer_types":["full_attention","chunked_attention"])",
       "layer_types: 'chunked_attention' is not supported"},
      {R"(,"layer_types":["full_attention"])", "layer_types: must list the 2 layers"},
      {R"(,"quantization_config":{"quant_method":"aqlm"})",
       "quantization_config.quant_method: 'aqlm' is not supported; known are fp8"},
      {R"(,"partial_rotary_factor":0.5)", "partial_rotary_factor: only 1"},
      {R"(,"rope_scaling":{"type":"longrope","factor":4})",
       "rope_scaling.type: 'longrope' is not supported; known are default linear llama3 yarn"},
      {R"(,"rope_scaling":{"type":"yarn","factor":4,"original_max_position_embeddings":64,
          "truncate":false})",
       "rope_scaling.truncate: only true"},
      {R"(,"rope_scaling":{"type":"yarn","factor":4,"original_max_position_embeddings":64,
          "mscale":1.0})",
       "rope_scaling.mscale_all_dim: missing"},
      {R"(,"rope_parameters":{"rope_type":"dynamic"})", "rope_parameters.rope_type: 'dynamic'"},
      {R"(,"is_causal":false)", "is_causal: only true"},
      {R"(,"dual_chunk_attention_config":{"chunk_size":64})", "dual_chunk_attention_config: only"},
      {R"(,"logit_scale":0.0625)", "logit_scale: only 1.0"},
      {R"(,"embedding_multiplier":12.0)", "embedding_multiplier: only 1.0"},
      {R"(,"attn_logit_softcapping":50.0)", "attn_logit_softcapping: only null"},
      {R"(,"no_rope_layers":[1,0])", "no_rope_layers: only []"},
      {R"(,"use_qk_norm":true)", "use_qk_norm: only false"},
      {R"(,"hidden_act":"gelu","hidden_activation":"silu")", "hidden_act: 'gelu'"},
      {R"(,"hidden_act":"silu","hidden_activation":"gelu")", "hidden_activation: 'gelu'"},
      {R"(,"torch_dtype":"float8_e4m3fn")", "torch_dtype: 'float8_e4m3fn' is not supported"},
  };
  for (const auto& [extra, expected] : cases) {
    EXPECT_NE(error_of(config_text("LlamaForCausalLM", extra)).find(expected), std::string::npos)
        << extra << " gave " << error_of(config_text("LlamaForCausalLM", extra));
  }
}

TEST(Config, WhatChangesNothingIsTaken) {
  parse(config_text("Qwen2ForCausalLM", R"(,"is_causal":true,"dual_chunk_attention_config":null,
      "logit_scale":1,"residual_multiplier":1.0,"final_logit_softcapping":null,
      "hidden_act":"silu","hidden_activation":null,"use_qk_norm":false)"));
  EXPECT_EQ(parse(config_text("Gemma2ForCausalLM", R"(,"hidden_activation":"gelu_pytorch_tanh",
      "hidden_act":"gelu","sliding_window":512)"))
                .activation,
            Activation::kGeluTanh)
      << "the family reads the first alone";
}

TEST(Config, MinusOneIsNoToken) {
  const ModelConfig none =
      parse(config_text("LlamaForCausalLM", R"(,"bos_token_id":-1,"eos_token_id":-1)"));
  EXPECT_FALSE(none.begin_token.has_value());
  EXPECT_EQ(none.end_tokens, std::vector<TokenId>());
  EXPECT_EQ(parse(config_text("LlamaForCausalLM", R"(,"eos_token_id":[5,-1])")).end_tokens,
            std::vector<TokenId>{5});
}

TEST(Config, TokensThatTheModelDoesNotHaveAreNone) {
  const ModelConfig config =
      parse(config_text("LlamaForCausalLM", R"(,"bos_token_id":1000,"eos_token_id":[999,1000,5])"));
  EXPECT_FALSE(config.begin_token.has_value());
  EXPECT_EQ(config.end_tokens, (std::vector<TokenId>{999, 5}));
  EXPECT_EQ(parse(config_text("LlamaForCausalLM", R"(,"eos_token_id":1000)")).end_tokens,
            std::vector<TokenId>());
}

TEST(Config, WrongFieldsAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"(,"num_key_value_heads":3)", "num_key_value_heads: 3 does not divide"},
      {R"(,"num_key_value_heads":0)", "num_key_value_heads: must be an integer from 1 to 4096"},
      {R"(,"num_key_value_heads":18446744073709551615)", "num_key_value_heads: must be an integer"},
      {R"(,"head_dim":33)", "head_dim: must be even"},
      {R"(,"head_dim":-2)", "head_dim: must be an integer from 2"},
      {R"(,"head_dim":"big")", R"(head_dim: must be an integer from 2 to 1024 (got "big"))"},
      {R"(,"rms_norm_eps":0)", "rms_norm_eps: must be a number above 0 (got 0)"},
      {R"(,"rope_theta":-1)", "rope_theta: must be a number above 0"},
      {R"(,"rope_scaling":5)", "rope_scaling: must be an object"},
      {R"(,"rope_scaling":{"type":"linear"})", "rope_scaling.factor: missing"},
      {R"(,"rope_scaling":{"type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4,
          "original_max_position_embeddings":9})",
       "rope_scaling.high_freq_factor: must exceed"},
      {R"(,"rope_scaling":{"type":"yarn","factor":4})",
       "rope_scaling.original_max_position_embeddings: missing"},
      {R"(,"rope_scaling":{"type":"yarn","factor":4,"original_max_position_embeddings":64,
          "beta_fast":0.5})",
       "rope_scaling.beta_fast: must not be below beta_slow"},
      {R"(,"rope_theta":1,"rope_scaling":{"type":"yarn","factor":4,
          "original_max_position_embeddings":64})",
       "rope_scaling.rope_theta: must exceed 1"},
      {R"(,"tie_word_embeddings":1)", "tie_word_embeddings: must be true or false"},
      {R"(,"hidden_act":7)", "hidden_act: must be a string"},
      {R"(,"eos_token_id":2147483648)",
       "eos_token_id: must be an integer from 0 to 2147483647 (got 2147483648)"},
      {R"(,"eos_token_id":[5,null])", "eos_token_id: missing"},
      {R"(,"bos_token_id":-2)", "bos_token_id: must be an integer from 0 to 2147483647"},
  };
  for (const auto& [extra, expected] : cases) {
    EXPECT_NE(error_of(config_text("LlamaForCausalLM", extra)).find(expected), std::string::npos)
        << extra << " gave " << error_of(config_text("LlamaForCausalLM", extra));
  }
  EXPECT_EQ(error_of(R"({"architectures":["LlamaForCausalLM"]})"),
            "invalid_argument: m/config.json: vocab_size: missing");
}

TEST(Config, BrokenJsonIsOneLine) {
  EXPECT_EQ(error_of(""), "corrupt: m/config.json: not valid JSON at byte 1");
  EXPECT_EQ(error_of("[1]"), "corrupt: m/config.json: must be a JSON object");
  EXPECT_EQ(error_of(R"({"a":1,"a":2})"), "corrupt: m/config.json: key 'a' appears twice");
  EXPECT_EQ(error_of("{\"a\":\"\xff\"}"), "corrupt: m/config.json: not valid JSON at byte 7");
  EXPECT_EQ(error_of(R"({"a":1e999})").find('\n'), std::string::npos);
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_EQ(error_of(R"({"a":)" + deep + "}"),
            "too_large: m/config.json: JSON nested deeper than 16 levels");
  EXPECT_NE(error_of(std::string(2 << 20, ' ')).find("bytes of JSON"), std::string::npos);
}

TEST(Config, AnyDamageIsAnErrorOrAConfigNeverACrash) {
  const std::vector<std::string> good = {
      config_text("LlamaForCausalLM", R"(,"rope_scaling":{"type":"linear",
          "factor":2},"eos_token_id":[1,2],"layer_types":["full_attention"])"),
      config_text("Qwen3MoeForCausalLM", R"(,"num_experts":16,"num_experts_per_tok":4,
          "moe_intermediate_size":96,"mlp_only_layers":[0])"),
      deepseek_text("DeepseekV3ForCausalLM", R"({"rope_scaling":{"type":"yarn","factor":4,
          "original_max_position_embeddings":64,"mscale":1.0,"mscale_all_dim":1.0}})")};
  constexpr std::uint64_t kSeed = 7;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Prng random(kSeed);
  for (int round = 0; round < 20000; ++round) {
    std::string text = good[static_cast<std::size_t>(round) % good.size()];
    for (int change = 0; change < 1 + round % 4; ++change) {
      const auto at =
          static_cast<std::size_t>(random.below(static_cast<std::int64_t>(text.size())));
      text[at] = static_cast<char>(random.below(256));
    }
    const auto config = parse_config(text, "config.json");
    if (!config.ok()) {
      EXPECT_EQ(config.error().detail.find('\n'), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace stemma
