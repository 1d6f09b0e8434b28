// MixtureConfig, and the rest of DeepSeek's files: experts, groups and what a file leaves out are
// read as the families mean them; what is wrong is one line that names the field.
#include "model/mixture_config.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model/config_fixture.h"

namespace stemma {
namespace {

TEST(MixtureConfig, Qwen3MoeSaysItsExpertsAndWhichLayersHaveThem) {
  const std::string experts = R"(,"num_experts":16,"num_experts_per_tok":4,
      "moe_intermediate_size":96)";
  const ModelConfig config = parse(config_text("Qwen3MoeForCausalLM", experts));
  EXPECT_EQ(config.family, ModelFamily::kQwen3Moe);
  EXPECT_TRUE(config.head_norms);
  EXPECT_EQ(config.mixture.experts, 16);
  EXPECT_EQ(config.mixture.experts_per_token, 4);
  EXPECT_EQ(config.mixture.width, 96);
  EXPECT_EQ(config.mixture.choice, MixtureConfig::Choice::kSoftmax);
  EXPECT_FALSE(config.mixture.normalised);
  EXPECT_EQ(config.mixture.layers, std::vector<bool>(config.mixture.layers.size(), true));

  std::string six_layers = config_text("Qwen3MoeForCausalLM", experts + R"(,
      "norm_topk_prob":true,"decoder_sparse_step":2,"mlp_only_layers":[3,4])");
  six_layers.replace(six_layers.find(R"(layers":2)"), 9, R"(layers":6)");
  const ModelConfig some = parse(six_layers);
  EXPECT_TRUE(some.mixture.normalised);
  EXPECT_EQ(some.mixture.layers, (std::vector<bool>{false, true, false, false, false, true}));
}

TEST(MixtureConfig, WrongMixturesAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "num_experts: missing"},
      {R"(,"num_experts":0)", "num_experts: must be an integer from 1 to 4096 (got 0)"},
      {R"(,"num_local_experts":"8")", "num_local_experts: must be an integer"},
      {R"(,"num_experts":8)", "num_experts_per_tok: missing"},
      {R"(,"num_experts":8,"num_experts_per_tok":2)", "moe_intermediate_size: missing"},
      {R"(,"num_experts":8,"num_experts_per_tok":9,"moe_intermediate_size":96)",
       "num_experts_per_tok: 9 is more than num_experts 8"},
      {R"(,"num_experts":8,"num_experts_per_tok":2,"moe_intermediate_size":96,
          "decoder_sparse_step":0)",
       "decoder_sparse_step: must be an integer from 1"},
      {R"(,"num_experts":8,"num_experts_per_tok":2,"moe_intermediate_size":96,
          "mlp_only_layers":3)",
       "mlp_only_layers: must be a list"},
      {R"(,"num_experts":8,"num_experts_per_tok":2,"moe_intermediate_size":96,
          "mlp_only_layers":[-1])",
       "mlp_only_layers: must hold layers from 0 to"},
      {R"(,"num_experts":8,"num_experts_per_tok":2,"moe_intermediate_size":96,
          "norm_topk_prob":1)",
       "norm_topk_prob: must be true or false"},
  };
  for (const auto& [extra, expected] : cases) {
    EXPECT_NE(error_of(config_text("Qwen3MoeForCausalLM", extra)).find(expected), std::string::npos)
        << extra << " gave " << error_of(config_text("Qwen3MoeForCausalLM", extra));
  }
}

TEST(MixtureConfig, DeepseekV2) {
  const ModelConfig config = parse(deepseek_text("DeepseekV2ForCausalLM", R"({"q_lora_rank":null,
      "topk_method":"group_limited_greedy","scoring_func":"softmax","norm_topk_prob":false,
      "num_hidden_layers":6,"moe_layer_freq":2,"head_dim":64})"));
  EXPECT_EQ(config.family, ModelFamily::kDeepseekV2);
  EXPECT_EQ(config.latent,
            (LatentConfig{
                .rank = 64, .query_rank = 0, .plain_dim = 32, .rope_dim = 16, .value_dim = 24}));
  EXPECT_EQ(config.head_dim, 80);  // the file's own is of no use
  EXPECT_EQ(config.mixture.choice, MixtureConfig::Choice::kSoftmaxGroups);
  EXPECT_EQ(config.mixture.groups, 4);
  EXPECT_EQ(config.mixture.groups_per_token, 2);
  EXPECT_EQ(config.mixture.shared_width, 96);
  EXPECT_FALSE(config.mixture.normalised);
  EXPECT_EQ(config.mixture.scaling, 2.5);
  EXPECT_EQ(config.mixture.layers, (std::vector<bool>{false, false, true, false, true, false}));
  const KvShape shape = config.pool_shape();
  EXPECT_EQ(shape.kind, KvKind::kMla);
  EXPECT_EQ(shape.heads, 1);
  EXPECT_EQ(shape.head_dim, 80);
  EXPECT_EQ(shape.latent_dim, 64);
}

TEST(MixtureConfig, DeepseekV2NormalisesWhatItDoesNotScale) {
  const ModelConfig config = parse(deepseek_text("DeepseekV2ForCausalLM", R"({
      "topk_method":"greedy","norm_topk_prob":true,"routed_scaling_factor":1.0})"));
  EXPECT_EQ(config.mixture.choice, MixtureConfig::Choice::kSoftmax);
  EXPECT_EQ(config.mixture.groups, 1);  // greedy looks at no groups
  EXPECT_TRUE(config.mixture.normalised);
  EXPECT_EQ(config.mixture.scaling, 1.0);
}

// DeepSeek's own file leaves the factor out then, Hugging Face's class the sum, and vLLM neither.
TEST(MixtureConfig, DeepseekV2ThatWouldDoBothIsRefused) {
  for (const std::string method : {"greedy", "group_limited_greedy"}) {
    EXPECT_THAT(error_of(deepseek_text("DeepseekV2ForCausalLM", R"({"norm_topk_prob":true,
        "topk_method":")" + method + R"("})")),
                testing::HasSubstr("routed_scaling_factor: only 1.0 is supported with "
                                   "norm_topk_prob and topk_method " +
                                   method));
  }
}

TEST(MixtureConfig, DeepseekV2ThatChoosesAsV3DoesBothNormalisesAndScales) {
  const ModelConfig config = parse(deepseek_text("DeepseekV2ForCausalLM", R"({
      "scoring_func":"sigmoid","topk_method":"noaux_tc","norm_topk_prob":true})"));
  EXPECT_EQ(config.mixture.choice, MixtureConfig::Choice::kCorrectedGroups);
  EXPECT_TRUE(config.mixture.normalised);
  EXPECT_EQ(config.mixture.scaling, 2.5);
}

TEST(MixtureConfig, DeepseekV3) {
  const ModelConfig config = parse(deepseek_text("DeepseekV3ForCausalLM", R"({
      "scoring_func":"sigmoid","topk_method":"noaux_tc","norm_topk_prob":true,
      "num_nextn_predict_layers":1})"));
  EXPECT_EQ(config.family, ModelFamily::kDeepseekV3);
  EXPECT_EQ(config.latent.query_rank, 96);
  EXPECT_EQ(config.mixture.choice, MixtureConfig::Choice::kCorrectedGroups);
  EXPECT_TRUE(config.mixture.normalised);
  EXPECT_EQ(config.mixture.scaling, 2.5);
  EXPECT_EQ(config.mixture.layers, (std::vector<bool>{false, true}));
  // As newer files leave them out.
  EXPECT_EQ(parse(deepseek_text("DeepseekV3ForCausalLM")).mixture, config.mixture);
}

// Beside the file's text: a later release may read the same text otherwise.
TEST(MixtureConfig, InWordsTellsWhatItMeans) {
  const MixtureConfig config = parse(deepseek_text("DeepseekV3ForCausalLM")).mixture;
  EXPECT_EQ(mixture_text(config), "noaux_tc groups=4,2 normalised=yes scaling=0x1.4p+1");
  MixtureConfig other = config;
  other.normalised = false;
  EXPECT_NE(mixture_text(other), mixture_text(config));
  other = config;
  other.scaling = 1.0;
  EXPECT_NE(mixture_text(other), mixture_text(config));
}

// A file without these is one of Hugging Face's classes as they are; null says that there are none.
TEST(MixtureConfig, DeepseekV3HasSharedExpertsAndGroupsWhereTheFileDoesNotSay) {
  const ModelConfig silent = parse(deepseek_text("DeepseekV3ForCausalLM", R"({
      "n_shared_experts":null,"n_group":null,"topk_group":null})"));
  EXPECT_EQ(silent.mixture.shared_width, 48) << "one expert";
  EXPECT_EQ(silent.mixture.groups, 8);
  EXPECT_EQ(silent.mixture.groups_per_token, 4);

  nlohmann::json object = nlohmann::json::parse(deepseek_text("DeepseekV3ForCausalLM"));
  for (const char* const name : {"n_shared_experts", "n_group", "topk_group"}) {
    object[name] = nullptr;
  }
  const ModelConfig none = parse(object.dump());
  EXPECT_EQ(none.mixture.shared_width, 0);
  EXPECT_EQ(none.mixture.groups, 1);
  EXPECT_EQ(none.mixture.groups_per_token, 1);
}

// The published class has no shared experts then, Hugging Face's two.
TEST(MixtureConfig, DeepseekV2MustSayItsSharedExpertsAndTheGroupsThatItLooksAt) {
  const auto text = [](const std::string& method, const std::string& absent) {
    return deepseek_text("DeepseekV2ForCausalLM",
                         R"({"topk_method":")" + method + R"(",")" + absent + R"(":null})");
  };
  for (const std::string name : {"n_shared_experts", "n_group", "topk_group"}) {
    EXPECT_THAT(error_of(text("group_limited_greedy", name)),
                testing::HasSubstr(name + ": missing"));
  }
  EXPECT_EQ(parse(text("greedy", "n_group")).mixture.groups, 1);
}

TEST(MixtureConfig, TheWeightOfOneExpertAloneIsOneInDeepseekV3AndItsScoreInV2) {
  const auto mixture = [](const std::string& architecture) {
    return parse(deepseek_text(architecture, R"({"num_experts_per_tok":1,"norm_topk_prob":true})"))
        .mixture;
  };
  EXPECT_TRUE(mixture("DeepseekV3ForCausalLM").normalised);
  EXPECT_FALSE(mixture("DeepseekV2ForCausalLM").normalised);
  EXPECT_EQ(mixture("DeepseekV2ForCausalLM").scaling, 2.5);
}

TEST(MixtureConfig, WrongDeepseekFieldsAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"kv_lora_rank":null})", "kv_lora_rank: missing"},
      {R"({"kv_lora_rank":0})", "kv_lora_rank: must be an integer from 8"},
      {R"({"kv_lora_rank":68})", "kv_lora_rank: must be a multiple of 8 (got 68)"},
      {R"({"kv_lora_rank":1024})",
       "kv_lora_rank: with qk_rope_head_dim it must be from 32 to 1024"},
      {R"({"q_lora_rank":0})", "q_lora_rank: must be an integer from 8"},
      {R"({"qk_nope_head_dim":null})", "qk_nope_head_dim: missing"},
      {R"({"qk_rope_head_dim":15})", "qk_rope_head_dim: must be a multiple of 8 (got 15)"},
      {R"({"v_head_dim":"x"})", "v_head_dim: must be an integer"},
      {R"({"num_key_value_heads":2})", "num_key_value_heads: 2 is not num_attention_heads 4"},
      {R"({"rope_interleave":false})", "rope_interleave: only true"},
      {R"({"n_routed_experts":null})", "n_routed_experts: missing"},
      {R"({"n_group":3})", "n_group: 3 does not divide n_routed_experts 16"},
      {R"({"topk_group":5})", "topk_group: 5 is more than n_group 4"},
      {R"({"num_experts_per_tok":9})", "num_experts_per_tok: 9 is more than the 8 experts of"},
      {R"({"n_group":16})", "n_group: leaves fewer than two experts in a group"},
      {R"({"num_experts_per_tok":17})", "num_experts_per_tok: 17 is more than n_routed_experts 16"},
      {R"({"topk_method":"random"})", "topk_method: 'random' is not supported; known are greedy"},
      {R"({"scoring_func":"softmax"})",
       "scoring_func: 'softmax' is not supported with topk_method noaux_tc; known is sigmoid"},
      {R"({"routed_scaling_factor":null})", "routed_scaling_factor: missing"},
      {R"({"first_k_dense_replace":3})", "first_k_dense_replace: must be an integer from 0 to 2"},
      {R"({"n_shared_experts":-1})", "n_shared_experts: must be an integer from 0"},
      {R"({"num_hidden_layers":4096,"n_routed_experts":256})",
       "n_routed_experts: 256 in each of 4096 layers; at most 262144"},
      {R"({"quantization_config":{}})", "quantization_config.quant_method: missing"},
  };
  for (const auto& [extra, expected] : cases) {
    const std::string error = error_of(deepseek_text("DeepseekV3ForCausalLM", extra));
    EXPECT_NE(error.find(expected), std::string::npos) << extra << " gave " << error;
  }
}

}  // namespace
}  // namespace stemma
