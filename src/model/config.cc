#include "model/config.h"

#include <array>
#include <limits>
#include <utility>

#include "base/json_text.h"

namespace stemma {
namespace {

using Json = nlohmann::json;
using Range = JsonFields::Range;

// Far above any model that exists, far below what could overflow: every product of two of these
// times the bytes of an element fits 63 bits.
constexpr Range kVocabRange = {1, 1 << 24};
constexpr Range kWidthRange = {1, 1 << 22};
constexpr Range kLayersRange = {1, 4096};
constexpr Range kHeadsRange = {1, 4096};
constexpr Range kHeadDimRange = {2, 1024};
constexpr Range kContextRange = {1, 1 << 28};
constexpr std::size_t kEndTokensMax = 64;
constexpr int kNone = -1;  // as some files write it instead of a token

struct Architecture {
  std::string_view name;
  ModelFamily family;
};
constexpr std::array kArchitectures = {
    Architecture{"LlamaForCausalLM", ModelFamily::kLlama},
    Architecture{"Qwen2ForCausalLM", ModelFamily::kQwen2},
    Architecture{"Qwen3ForCausalLM", ModelFamily::kQwen3},
    Architecture{"Qwen3MoeForCausalLM", ModelFamily::kQwen3Moe},
    Architecture{"DeepseekV2ForCausalLM", ModelFamily::kDeepseekV2},
    Architecture{"DeepseekV3ForCausalLM", ModelFamily::kDeepseekV3},
    Architecture{"MistralForCausalLM", ModelFamily::kMistral},
    Architecture{"Gemma2ForCausalLM", ModelFamily::kGemma2},
    Architecture{"Gemma3ForCausalLM", ModelFamily::kGemma3},
};

bool is_deepseek(ModelFamily family) {
  return family == ModelFamily::kDeepseekV2 || family == ModelFamily::kDeepseekV3;
}

bool is_gemma(ModelFamily family) {
  return family == ModelFamily::kGemma2 || family == ModelFamily::kGemma3;
}

bool has_head_norms(ModelFamily family) {
  return family == ModelFamily::kQwen3 || family == ModelFamily::kQwen3Moe ||
         family == ModelFamily::kGemma3;
}

std::optional<ModelFamily> try_find_family(std::string_view architecture) {
  for (const Architecture& known : kArchitectures) {
    if (known.name == architecture) {
      return known.family;
    }
  }
  return std::nullopt;
}

void read_family(JsonFields& fields, ModelConfig& config) {
  const Json* architectures = fields.find_or_null("architectures");
  if (architectures == nullptr || !architectures->is_array() || architectures->empty() ||
      !architectures->front().is_string()) {
    fields.fail(ErrorCode::kInvalidArgument, "architectures", "must be a list with one name");
    return;
  }
  const auto& name = architectures->front().get_ref<const std::string&>();
  const std::optional<ModelFamily> family = try_find_family(name);
  if (!family.has_value()) {
    std::string why = "'" + printable(name) + "' is not supported; known are";
    for (const Architecture& known : kArchitectures) {
      why.append(" ").append(known.name);
    }
    fields.fail(ErrorCode::kUnsupported, "architectures", why);
    return;
  }
  config.family = *family;
}

void read_extents(JsonFields& fields, ModelConfig& config) {
  config.vocab_tokens = fields.integer("vocab_size", kVocabRange, std::nullopt);
  config.hidden = fields.integer("hidden_size", kWidthRange, std::nullopt);
  config.intermediate = fields.integer("intermediate_size", kWidthRange, std::nullopt);
  config.layers = fields.integer("num_hidden_layers", kLayersRange, std::nullopt);
  config.query_heads = fields.integer("num_attention_heads", kHeadsRange, std::nullopt);
  config.kv_heads = fields.integer("num_key_value_heads", kHeadsRange, config.query_heads);
  config.context_tokens_max =
      fields.integer("max_position_embeddings", kContextRange, std::nullopt);
  config.norm_epsilon = fields.positive("rms_norm_eps", 1e-6);
}

// Where heads have keys and values of their own.
void read_heads(JsonFields& fields, ModelConfig& config) {
  if (!fields.status().ok()) {
    return;
  }
  if (config.query_heads % config.kv_heads != 0) {
    fields.fail(ErrorCode::kInvalidArgument, "num_key_value_heads",
                std::to_string(config.kv_heads) + " does not divide num_attention_heads " +
                    std::to_string(config.query_heads));
  }
  const bool head_dim_given = fields.find_or_null("head_dim") != nullptr;
  if (!head_dim_given && config.hidden % config.query_heads != 0) {
    fields.fail(ErrorCode::kInvalidArgument, "num_attention_heads",
                std::to_string(config.query_heads) + " does not divide hidden_size " +
                    std::to_string(config.hidden));
  }
  config.head_dim = fields.integer("head_dim", kHeadDimRange, config.hidden / config.query_heads);
  if (config.head_dim % 2 != 0 || config.head_dim < kHeadDimRange.min ||
      config.head_dim > kHeadDimRange.max) {
    fields.fail(ErrorCode::kInvalidArgument, "head_dim",
                "must be even and at most " + std::to_string(kHeadDimRange.max) + " (got " +
                    std::to_string(config.head_dim) + ")");
  }
}

// Where all heads share latent rows, each of which attention sees as one head.
void read_latent_heads(JsonFields& fields, ModelConfig& config) {
  if (config.kv_heads != config.query_heads) {
    fields.fail(ErrorCode::kInvalidArgument, "num_key_value_heads",
                std::to_string(config.kv_heads) + " is not num_attention_heads " +
                    std::to_string(config.query_heads) + ", as latent attention has it");
  }
  config.latent = read_latent(fields);
  config.kv_heads = 1;
  config.head_dim = config.latent.row_dim();
}

void read_mixture(JsonFields& fields, ModelConfig& config) {
  if (config.family == ModelFamily::kQwen3Moe) {
    config.mixture = read_qwen_mixture(fields, config.layers);
  } else if (config.family == ModelFamily::kDeepseekV2) {
    config.mixture = read_deepseek_mixture(fields, DeepseekVersion::kV2, config.layers);
  } else if (config.family == ModelFamily::kDeepseekV3) {
    config.mixture = read_deepseek_mixture(fields, DeepseekVersion::kV3, config.layers);
  }
}

void read_projections(JsonFields& fields, ModelConfig& config) {
  const bool attention_bias = fields.boolean("attention_bias", false);
  config.mlp_bias = fields.boolean("mlp_bias", false);
  config.tied_embeddings = fields.boolean("tie_word_embeddings", is_gemma(config.family));
  config.head_norms = has_head_norms(config.family);
  // Qwen2 always has biases on q, k and v, and never on the output; the others say.
  const bool qwen2 = config.family == ModelFamily::kQwen2;
  config.qkv_bias = qwen2 || attention_bias;
  config.output_bias = !qwen2 && attention_bias;
  if (config.family != ModelFamily::kLlama && config.mlp_bias) {
    fields.fail(ErrorCode::kUnsupported, "mlp_bias", "only Llama models have it");
  }
}

// Gemma's own: what the other families do not have.
void read_gemma(JsonFields& fields, ModelConfig& config) {
  config.activation = Activation::kGeluTanh;
  config.norms_add_one = config.branch_norms = config.scaled_embeddings = true;
  config.score_dim = fields.positive("query_pre_attn_scalar", 256.0);
  // None where the file says null; where it says nothing, Gemma-2 has these. Gemma-3 normalises
  // queries and keys instead of capping scores: its classes have the field and do not use it.
  const bool gemma2 = config.family == ModelFamily::kGemma2;
  const auto cap = [&](std::string_view name, double usual) {
    if (!fields.has(name)) return gemma2 ? usual : 0.0;
    return fields.find_or_null(name) == nullptr ? 0.0 : fields.positive(name, std::nullopt);
  };
  if (gemma2) config.score_cap = cap("attn_logit_softcapping", 50.0);
  config.logit_cap = cap("final_logit_softcapping", 30.0);
}

// What other families' files have and these do not compute, and the value that changes nothing.
struct Refused {
  const char* name;
  Json neutral;
};
const std::array<Refused, 13>& refused_fields() {
  static const std::array<Refused, 13> fields = {{
      {"use_bidirectional_attention", false},
      {"is_causal", true},
      {"partial_rotary_factor", 1.0},
      {"dual_chunk_attention_config", Json::object()},
      {"no_rope_layers", Json::array()},
      {"clip_qkv", nullptr},
      {"alibi", false},
      {"logit_scale", 1.0},
      {"logits_scaling", 1.0},
      {"attention_multiplier", 1.0},
      {"embedding_multiplier", 1.0},
      {"residual_multiplier", 1.0},
      {"llama_4_scaling_beta", 0.0},
  }};
  return fields;
}

// Gemma's own name of it comes before the older one; the other families have that alone.
void refuse_activations(JsonFields& fields, bool gemma) {
  const std::string known = gemma ? "gelu_pytorch_tanh" : "silu";
  for (const char* const name : {"hidden_activation", "hidden_act"}) {
    const std::string activation = fields.text(name, known);
    if (activation != known) {
      fields.fail(ErrorCode::kUnsupported, name,
                  "'" + printable(activation) + "' is not supported; known is " + known);
    }
    if (gemma && fields.find_or_null(name) != nullptr) return;
  }
}

// Things that change the arithmetic and that this build does not have.
void refuse_unsupported(JsonFields& fields, const ModelConfig& config) {
  const bool gemma = is_gemma(config.family);
  refuse_activations(fields, gemma);
  for (const Refused& refused : refused_fields()) {
    fields.refuse_unless(refused.name, refused.neutral);
  }
  for (const char* const name : {"use_qk_norm", "qk_norm", "qk_layernorm"}) {
    fields.refuse_unless(name, has_head_norms(config.family));
  }
  if (gemma) return;
  for (const char* const name : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    fields.refuse_unless(name, nullptr);
  }
}

void read_dtype(JsonFields& fields, ModelConfig& config) {
  const char* name = fields.find_or_null("dtype") != nullptr ? "dtype" : "torch_dtype";
  const std::string text = fields.text(name, "");
  if (text == "float32") {
    config.weights_dtype = DType::kF32;
  } else if (text == "float16") {
    config.weights_dtype = DType::kF16;
  } else if (text == "bfloat16") {
    config.weights_dtype = DType::kBF16;
  } else if (!text.empty() && text != "auto") {
    fields.fail(ErrorCode::kUnsupported, name,
                "'" + printable(text) + "' is not supported; known are float32 float16 bfloat16");
  }
}

// Files name tokens that a model of few does not have: it never gives them, and never gets one.
void read_special_tokens(JsonFields& fields, ModelConfig& config, std::string_view file_name) {
  constexpr Range kIds = {0, std::numeric_limits<TokenId>::max()};
  const auto has = [&](std::int64_t id) { return id < config.vocab_tokens; };
  const Json* begin = fields.find_or_null("bos_token_id");
  if (begin != nullptr && *begin != kNone) {
    const std::int64_t id = fields.integer("bos_token_id", kIds, std::nullopt);
    if (has(id)) config.begin_token = static_cast<TokenId>(id);
  }
  const Json* end = fields.find_or_null("eos_token_id");
  if (end == nullptr || *end == kNone) {
    return;
  }
  const auto add = [&](std::int64_t id) {
    if (has(id)) config.end_tokens.push_back(static_cast<TokenId>(id));
  };
  if (!end->is_array()) return add(fields.integer("eos_token_id", kIds, std::nullopt));
  if (end->size() > kEndTokensMax) {
    fields.fail(ErrorCode::kInvalidArgument, "eos_token_id",
                "at most " + std::to_string(kEndTokensMax) + " ids");
    return;
  }
  for (const Json& id : *end) {
    if (id == kNone) continue;
    const Json element = {{"eos_token_id", id}};
    JsonFields one(element, file_name);
    add(one.integer("eos_token_id", kIds, std::nullopt));
    fields.adopt(one.status());
  }
}

}  // namespace

std::string_view model_family_name(ModelFamily family) {
  switch (family) {
    case ModelFamily::kLlama:
      return "llama";
    case ModelFamily::kQwen2:
      return "qwen2";
    case ModelFamily::kQwen3:
      return "qwen3";
    case ModelFamily::kQwen3Moe:
      return "qwen3_moe";
    case ModelFamily::kDeepseekV2:
      return "deepseek_v2";
    case ModelFamily::kDeepseekV3:
      return "deepseek_v3";
    case ModelFamily::kMistral:
      return "mistral";
    case ModelFamily::kGemma2:
      return "gemma2";
    case ModelFamily::kGemma3:
      return "gemma3";
  }
  return "unknown";
}

// As vLLM has it: files of other scalings, and those of Gemma-3, say the stretched context as
// max_position_embeddings.
std::int64_t ModelConfig::context_tokens_bound() const {
  const bool linear = rope.scaling == RopeConfig::Scaling::kLinear;
  if ((!linear && rope.scaling != RopeConfig::Scaling::kYarn) || family == ModelFamily::kGemma3) {
    return context_tokens_max;
  }
  const std::int64_t original = linear ? context_tokens_max : rope.original_context_tokens;
  const double stretched =
      std::min(static_cast<double>(original) * rope.factor, static_cast<double>(kContextRange.max));
  return std::max(context_tokens_max, static_cast<std::int64_t>(stretched));
}

KvShape ModelConfig::pool_shape() const {
  KvShape shape;
  shape.layers = layers - windows.count();
  shape.heads = kv_heads;
  shape.head_dim = head_dim;
  if (latent.rank > 0) {
    shape.kind = KvKind::kMla;
    shape.latent_dim = latent.rank;
  }
  return shape;
}

KvShape ModelConfig::windowed_pool_shape() const {
  KvShape shape = pool_shape();
  shape.layers = windows.count();
  return shape;
}

Result<ModelConfig> parse_config(std::string_view json, std::string_view file_name) {
  STEMMA_ASSIGN_OR_RETURN(const Json object, parse_json_object(json, file_name, JsonLimits{}));
  ModelConfig config;
  JsonFields fields(object, file_name);
  read_family(fields, config);
  // What cannot be computed is said before what is missing: it explains more.
  if (fields.status().ok()) {
    refuse_unsupported(fields, config);
    config.coded = read_coded(fields);
  }
  read_extents(fields, config);
  is_deepseek(config.family) ? read_latent_heads(fields, config) : read_heads(fields, config);
  read_projections(fields, config);
  read_mixture(fields, config);
  config.windows = read_windows(fields, config.family, config.layers);
  if (is_gemma(config.family)) read_gemma(fields, config);
  const bool gemma3 = config.family == ModelFamily::kGemma3;
  config.rope = read_rope(fields, config.family, gemma3 ? 1e6 : 1e4);
  if (gemma3 && config.windows.tokens > 0) config.windowed_rope = read_windowed_rope(fields);
  read_dtype(fields, config);
  read_special_tokens(fields, config, file_name);
  STEMMA_RETURN_IF_ERROR(fields.status());
  return config;
}

}  // namespace stemma
