// Tiny configurations: one of every supported family, as small as still tells the families apart.
//
// Thread:     pure functions.
// Memory:     none.
// Cost:       none.
// Not here:   their weights (random_model).
#pragma once

#include <string_view>
#include <vector>

#include "model/config.h"

namespace stemma {

// Ends a text of every one of them.
inline constexpr TokenId kTinyEndToken = 256;

// "llama2" (a head of K and V for each query head, own output weights), "llama3" (grouped heads,
// llama3 RoPE scaling, tied), "llama_bias" (every bias, linear RoPE scaling), "qwen2" (biases on q,
// k and v, tied), "qwen2_yarn" (YaRN, untied), "qwen3" (head norms, head_dim apart from hidden),
// "qwen3_moe" (the same with mixtures of eight experts around a dense layer), "deepseek_v2" (latent
// attention, YaRN, groups of experts, shared experts), "deepseek_v2_lite" (q without a rank, no
// groups, biases), "deepseek_v3" (corrected groups), "mistral" (every layer with a window),
// "gemma2" (every other one, caps), "gemma3" (most of them, with a RoPE of their own, and head
// norms).
std::vector<std::string_view> tiny_model_names();

// Those of which no layer has a window.
std::vector<std::string_view> tiny_names_without_windows();

// The configuration of one of them. REQUIRES: `name` is one of tiny_model_names().
ModelConfig tiny_model_config(std::string_view name);

}  // namespace stemma
