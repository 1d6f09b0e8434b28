// Texts of config.json for tests, and what is read from them.
//
// Thread:     pure functions, of a test's thread.
// Memory:     a text.
// Cost:       a parse.
// Not here:   whole models (random_model), sections of codes (coded_config_test).
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "model/config.h"

namespace stemma {

// A config.json of nine obligatory fields plus `extra`, which begins with a comma if it is not
// empty.
inline std::string config_text(const std::string& architecture, const std::string& extra = "",
                               int layers = 2) {
  return R"({"architectures":[")" + architecture +
         R"("],"vocab_size":1000,"hidden_size":128,"intermediate_size":256,)"
         R"("num_attention_heads":4,"max_position_embeddings":512,"num_hidden_layers":)" +
         std::to_string(layers) + extra + "}";
}

inline ModelConfig parse(const std::string& text) {
  auto config = parse_config(text, "config.json");
  EXPECT_TRUE(config.ok()) << to_string(config.error());
  return config.ok() ? *config : ModelConfig{};
}

inline std::string error_of(const std::string& text) {
  const auto config = parse_config(text, "m/config.json");
  EXPECT_FALSE(config.ok());
  return config.ok() ? "" : to_string(config.error());
}

// What the DeepSeek files have beside the nine obligatory fields; `extra` replaces what it names.
inline std::string deepseek_text(const std::string& architecture, const std::string& extra = "{}") {
  const std::string text = config_text(architecture, R"(,"num_key_value_heads":4,
      "q_lora_rank":96,"kv_lora_rank":64,"qk_nope_head_dim":32,"qk_rope_head_dim":16,
      "v_head_dim":24,"n_routed_experts":16,"n_shared_experts":2,"num_experts_per_tok":4,
      "moe_intermediate_size":48,"first_k_dense_replace":1,"routed_scaling_factor":2.5,
      "n_group":4,"topk_group":2)");
  nlohmann::json object = nlohmann::json::parse(text);
  object.merge_patch(nlohmann::json::parse(extra));  // null takes a field out
  return object.dump();
}

}  // namespace stemma
