// Config: what a model's config.json says, checked, in our terms.
//
// Families: Llama 2 and 3.x, Qwen2 and 2.5, Qwen3, dense and of experts, DeepSeek-V2 and V3,
// Mistral, Gemma 2 and 3. Windows are read where the family defines them, weights of 8 and 4 bits
// in the forms of coded_config. What such a file can ask for and this build cannot do (windows of
// other families, other forms of weights, other activations, other RoPE scalings) is refused by
// name, never ignored.
//
// Thread:     values and pure functions.
// Memory:     a few hundred bytes.
// Cost:       a parse at start-up.
// Not here:   weights (weights), tokenizer files, defaults for sampling (generation_config).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/coded_config.h"
#include "model/latent_config.h"
#include "model/mixture_config.h"
#include "model/rope_config.h"
#include "model/window_config.h"
#include "stemma/ids.h"
#include "stemma/kv_shape.h"
#include "stemma/result.h"

namespace stemma {

enum class ModelFamily : std::uint8_t {
  kLlama,
  kQwen2,
  kQwen3,
  kQwen3Moe,
  kDeepseekV2,
  kDeepseekV3,
  kMistral,
  kGemma2,
  kGemma3,
};

// "llama", "qwen2", "qwen3", "qwen3_moe", "deepseek_v2", "deepseek_v3", "mistral",
// "gemma2", "gemma3"
std::string_view model_family_name(ModelFamily family);

// What the gate of an MLP passes through: x / (1 + exp(-x)), or Gaussian error linear units in
// their approximation by tanh.
enum class Activation : std::uint8_t { kSilu, kGeluTanh };

struct ModelConfig {
  ModelFamily family = ModelFamily::kLlama;
  std::int64_t vocab_tokens = 0;
  std::int64_t hidden = 0;        // width of the residual stream
  std::int64_t intermediate = 0;  // width inside the MLP of a dense layer
  std::int64_t layers = 0;
  std::int64_t query_heads = 0;         // a multiple of kv_heads
  std::int64_t kv_heads = 0;            // 1 with latent attention: that of the latent rows
  std::int64_t head_dim = 0;            // of q and k as attention compares them; even
  std::int64_t context_tokens_max = 0;  // served unless another is asked for
  double norm_epsilon = 1e-6;
  RopeConfig rope;
  LatentConfig latent;
  MixtureConfig mixture;
  WindowConfig windows;
  std::optional<RopeConfig> windowed_rope;  // of layers with a window, where it is another
  Activation activation = Activation::kSilu;
  // Gemma: norms multiply by 1 + weight, what a branch gives is normalised before it is added, and
  // embeddings are multiplied by the root of `hidden`, rounded to their own type.
  bool norms_add_one = false;
  bool branch_norms = false;
  bool scaled_embeddings = false;
  double score_dim = 0;  // scores are divided by its root; 0: the family's own
  double score_cap = 0;  // see AttentionShape; 0: none
  double logit_cap = 0;  // the same of logits
  bool qkv_bias = false;
  bool output_bias = false;  // of the projection after attention
  bool mlp_bias = false;
  bool head_norms = false;       // q and k of each head are normalised before RoPE (Qwen3)
  bool tied_embeddings = false;  // the output weights are the embeddings
  CodedConfig coded;             // how files store matrices in fewer bits, if they do
  // What the file says; of a model that is loaded, where it says nothing, the embeddings' own.
  std::optional<DType> weights_dtype;
  std::optional<TokenId> begin_token;  // of those that the vocabulary has, as the next
  std::vector<TokenId> end_tokens;     // any of them ends a text

  std::int64_t query_columns() const noexcept { return query_heads * head_dim; }
  std::int64_t kv_columns() const noexcept { return kv_heads * head_dim; }
  // Columns of what attention gives, and of what the output projection reads.
  std::int64_t attended_columns() const noexcept {
    return query_heads * (latent.rank > 0 ? latent.rank : head_dim);
  }
  std::int64_t value_columns() const noexcept {
    return query_heads * (latent.rank > 0 ? latent.value_dim : head_dim);
  }
  // The widest MLP of any layer.
  std::int64_t widest_mlp() const noexcept {
    return std::max({intermediate, mixture.width, mixture.shared_width});
  }
  // The part of a head that turns with the position.
  std::int64_t turned_dim() const noexcept { return latent.rank > 0 ? latent.rope_dim : head_dim; }

  // The longest context that can be asked for: where positions are stretched from the original
  // context, that many times it.
  std::int64_t context_tokens_bound() const;

  // The extents that pools for this model must have, of the layers without and with a window;
  // pages, page_size and dtype are the caller's.
  KvShape pool_shape() const;
  KvShape windowed_pool_shape() const;
};

// Reads the text of a config.json. Errors are one line: `file_name`, the field, what is wrong with
// it.
Result<ModelConfig> parse_config(std::string_view json, std::string_view file_name);

}  // namespace stemma
