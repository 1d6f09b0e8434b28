#include "model/adapter_config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/json_text.h"

namespace stemma {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kRankMax = 1 << 16;
constexpr std::int64_t kLayersMax = 1 << 16;
constexpr double kAlphaMax = 1e30;
constexpr std::size_t kPatternsMax = 4096;
constexpr std::string_view kAllLinear = "all-linear";

// Fields that change the result and are not supported, unless they say nothing.
struct Refused {
  std::string_view name;
  std::string_view why;
};
constexpr std::array kRefused = {
    Refused{"use_dora", "DoRA is not supported"},
    Refused{"use_qalora", "QA-LoRA is not supported"},
    Refused{"fan_in_fan_out", "matrices stored the other way round are not supported"},
    Refused{"lora_bias", "a bias of the adapter's own is not supported"},
    Refused{"modules_to_save", "whole matrices beside the adapter are not supported"},
    Refused{"trainable_token_indices", "embeddings of its own are not supported"},
    Refused{"target_parameters", "only matrices of linear layers are supported"},
    Refused{"exclude_modules", "not supported: name what it changes in target_modules"},
    Refused{"layer_replication", "a model with more layers than its own is not supported"},
    Refused{"alora_invocation_tokens", "an adapter from some tokens on is not supported"},
    Refused{"arrow_config", "a choice among adapters by token is not supported"},
    Refused{"use_bdlora", "block-diagonal LoRA is not supported"},
    Refused{"kasa_config", "KaSA is not supported"},
    Refused{"monteclora_config", "adapters that are drawn at random are not supported"},
    Refused{"megatron_config", "adapters of Megatron's layers are not supported"},
};

// Of init_lora_weights: ways to begin that leave the model's own weights as they are. The others
// take from those what the adapter begins with, so that the adapter does not fit the model as it
// is.
constexpr std::array<std::string_view, 4> kPlainBeginnings = {"", "gaussian", "orthogonal", "eva"};

bool says_nothing(const Json& value) {
  return value == false || value == "" ||
         ((value.is_array() || value.is_object()) && value.empty());
}

void refuse_unsupported(JsonFields& fields) {
  const std::string kind = fields.text("peft_type", std::nullopt);
  if (kind != "LORA") {
    fields.fail(ErrorCode::kUnsupported, "peft_type",
                "'" + printable(kind) + "' is not supported; known is LORA");
  }
  for (const Refused& refused : kRefused) {
    const Json* const value = fields.find_or_null(refused.name);
    if (value == nullptr || says_nothing(*value)) continue;
    fields.fail(ErrorCode::kUnsupported, refused.name, refused.why);
  }
  const std::string bias = fields.text("bias", "none");
  if (bias != "none") {
    fields.fail(ErrorCode::kUnsupported, "bias",
                "'" + printable(bias) + "' is not supported: an adapter leaves biases as they are");
  }
  const Json* const begin = fields.find_or_null("init_lora_weights");
  if (begin == nullptr || begin->is_boolean()) return;
  const bool plain = begin->is_string() &&
                     std::find(kPlainBeginnings.begin(), kPlainBeginnings.end(),
                               begin->get_ref<const std::string&>()) != kPlainBeginnings.end();
  if (!plain) {
    fields.fail(ErrorCode::kUnsupported, "init_lora_weights",
                printable(begin->dump(-1, ' ', true)) +
                    " changes the model's own weights: convert the adapter");
  }
}

double read_alpha(JsonFields& fields) {
  const double alpha = fields.positive("lora_alpha", std::nullopt);
  if (alpha > kAlphaMax) fields.fail(ErrorCode::kInvalidArgument, "lora_alpha", "is too large");
  return alpha;
}

// Values by expressions, in the order of the file: of several that match the first one counts.
void read_patterns(JsonFields& fields, const nlohmann::ordered_json& object, const char* name,
                   double most, bool whole, std::vector<AdapterConfig::Pattern>& patterns) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return;
  if (!found->is_object() || found->size() > kPatternsMax) {
    return fields.fail(ErrorCode::kCorrupt, name, "must be an object of names and numbers");
  }
  for (const auto& [key, value] : found->items()) {
    const double number = value.is_number() ? value.get<double>() : 0;
    if (!(number > 0 && number <= most) || (whole && std::floor(number) != number)) {
      return fields.fail(ErrorCode::kCorrupt, name,
                         "'" + printable(key) + "' must have a number from 1 on, not too large");
    }
    Result<TextPattern> end = TextPattern::regex("\\A(?:.*\\.)?(?:" + key + ")\\z");
    if (!end.ok()) {
      return fields.fail(ErrorCode::kCorrupt, name, "'" + printable(key) + "' is no expression");
    }
    patterns.push_back({*std::move(end), number});
  }
}

Result<double> value_for(const std::vector<AdapterConfig::Pattern>& patterns, std::string_view path,
                         double usual) {
  for (const AdapterConfig::Pattern& pattern : patterns) {
    STEMMA_ASSIGN_OR_RETURN(const auto found, pattern.end.find_all(path));
    if (!found.empty()) return pattern.value;
  }
  return usual;
}

float scale_by(double alpha, double rank, bool by_root) {
  return static_cast<float>(alpha / (by_root ? std::sqrt(rank) : rank));
}

// A list of names, or the text "all-linear".
void read_targets(JsonFields& fields, AdapterConfig& config) {
  const Json* const targets = fields.find_or_null("target_modules");
  if (targets != nullptr && *targets == kAllLinear) return;
  if (targets == nullptr || !targets->is_array() || targets->empty()) {
    return fields.fail(ErrorCode::kUnsupported, "target_modules",
                       "must be a list of names, or \"all-linear\"");
  }
  config.targets.emplace();
  for (const Json& target : *targets) {
    if (!target.is_string() || target.get_ref<const std::string&>().empty()) {
      return fields.fail(ErrorCode::kCorrupt, "target_modules", "must hold names");
    }
    config.targets->push_back(target.get<std::string>());
  }
}

// Which numbers in a path are those of layers, a name or a list of names, matters only where layers
// are chosen. Here it is those behind "layers".
void check_layers_pattern(JsonFields& fields) {
  constexpr std::string_view kLayers = "layers";
  const Json* const pattern = fields.find_or_null("layers_pattern");
  if (pattern == nullptr || says_nothing(*pattern) || *pattern == kLayers) return;
  if (pattern->is_array() &&
      std::find(pattern->begin(), pattern->end(), kLayers) != pattern->end()) {
    return;
  }
  fields.fail(ErrorCode::kUnsupported, "layers_pattern",
              printable(pattern->dump(-1, ' ', true)) + " is not supported; known is \"layers\"");
}

// null, a layer, or a list of layers.
void read_layers(JsonFields& fields, AdapterConfig& config) {
  const Json* const layers = fields.find_or_null("layers_to_transform");
  if (layers == nullptr || says_nothing(*layers)) return;
  check_layers_pattern(fields);
  config.layers.emplace();
  const Json list = layers->is_array() ? *layers : Json::array({*layers});
  for (const Json& layer : list) {
    if (!layer.is_number_unsigned() || layer.get<std::uint64_t>() >= kLayersMax) {
      return fields.fail(ErrorCode::kCorrupt, "layers_to_transform", "must hold numbers of layers");
    }
    config.layers->push_back(layer.get<std::int64_t>());
  }
}

}  // namespace

bool names_end_of(std::string_view target, std::string_view path) {
  if (!path.ends_with(target)) return false;
  return path.size() == target.size() || path[path.size() - target.size() - 1] == '.';
}

bool AdapterConfig::names(std::string_view path, std::int64_t layer) const {
  if (layers.has_value() && std::find(layers->begin(), layers->end(), layer) == layers->end()) {
    return false;
  }
  return !targets.has_value() ||
         std::any_of(targets->begin(), targets->end(),
                     [&](const std::string& target) { return names_end_of(target, path); });
}

Result<AdapterConfig::Strength> AdapterConfig::strength_of(std::string_view path) const {
  STEMMA_ASSIGN_OR_RETURN(const double own_rank,
                          value_for(rank_pattern, path, static_cast<double>(rank)));
  STEMMA_ASSIGN_OR_RETURN(const double own_alpha, value_for(alpha_pattern, path, alpha));
  return Strength{static_cast<std::int64_t>(own_rank), scale_by(own_alpha, own_rank, by_root)};
}

float AdapterConfig::usual_scale() const {
  return scale_by(alpha, static_cast<double>(rank), by_root);
}

Result<AdapterConfig> parse_adapter_config(std::string_view json, std::string_view file_name) {
  STEMMA_ASSIGN_OR_RETURN(const Json object, parse_json_object(json, file_name, {}));
  JsonFields fields(object, file_name);
  refuse_unsupported(fields);
  AdapterConfig config;
  config.rank = fields.integer("r", {1, kRankMax}, std::nullopt);
  config.alpha = read_alpha(fields);
  config.by_root = fields.boolean("use_rslora", false);
  STEMMA_ASSIGN_OR_RETURN(const nlohmann::ordered_json ordered,
                          parse_ordered_json(json, file_name, {}));
  read_patterns(fields, ordered, "rank_pattern", kRankMax, /*whole=*/true, config.rank_pattern);
  read_patterns(fields, ordered, "alpha_pattern", kAlphaMax, /*whole=*/false, config.alpha_pattern);
  read_targets(fields, config);
  read_layers(fields, config);
  STEMMA_RETURN_IF_ERROR(fields.status());
  return config;
}

}  // namespace stemma
