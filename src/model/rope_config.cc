#include "model/rope_config.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/json_text.h"
#include "model/config.h"

namespace stemma {
namespace {

using Json = nlohmann::json;
using Scaling = RopeConfig::Scaling;

constexpr JsonFields::Range kContextRange = {1, 1 << 28};
constexpr const char* kFullAttention = "full_attention";
constexpr const char* kWindowedAttention = "sliding_attention";

// What each type has besides its name and rope_theta.
constexpr std::array<std::string_view, 1> kLinearNames = {"factor"};
constexpr std::array<std::string_view, 4> kLlama3Names = {
    "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"};
constexpr std::array<std::string_view, 10> kYarnNames = {
    "factor",
    "original_max_position_embeddings",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "attention_factor",
    "attn_factor",
    "truncate",
    "finetuned"};  // the last says where a model comes from, and changes nothing

// What some models compute with and Stemma does not, and the value that changes nothing.
struct Refused {
  std::string_view name;
  double neutral;
};
constexpr std::array kRefused = {Refused{"partial_rotary_factor", 1.0}, Refused{"attn_factor", 1.0},
                                 Refused{"extrapolation_factor", 1.0},
                                 Refused{"llama_4_scaling_beta", 0.0}};

std::span<const std::string_view> names_of(Scaling scaling) {
  switch (scaling) {
    case Scaling::kNone:
      return {};
    case Scaling::kLinear:
      return kLinearNames;
    case Scaling::kLlama3:
      return kLlama3Names;
    case Scaling::kYarn:
      return kYarnNames;
  }
  return {};
}

void read_llama3(JsonFields& fields, RopeConfig& rope) {
  rope.factor = fields.positive("factor", std::nullopt);
  rope.low_frequency_factor = fields.positive("low_freq_factor", std::nullopt);
  rope.high_frequency_factor = fields.positive("high_freq_factor", std::nullopt);
  rope.original_context_tokens =
      fields.integer("original_max_position_embeddings", kContextRange, std::nullopt);
  if (fields.status().ok() && rope.high_frequency_factor <= rope.low_frequency_factor) {
    fields.fail(ErrorCode::kInvalidArgument, "high_freq_factor", "must exceed low_freq_factor");
  }
}

void read_yarn(JsonFields& fields, RopeConfig& rope) {
  rope.factor = fields.positive("factor", std::nullopt);
  rope.original_context_tokens =
      fields.integer("original_max_position_embeddings", kContextRange, std::nullopt);
  rope.fast_turns = fields.positive("beta_fast", 32.0);
  rope.slow_turns = fields.positive("beta_slow", 1.0);
  if (fields.status().ok() && rope.fast_turns < rope.slow_turns) {
    fields.fail(ErrorCode::kInvalidArgument, "beta_fast", "must not be below beta_slow");
  }
  if (fields.status().ok() && rope.theta <= 1.0) {
    fields.fail(ErrorCode::kInvalidArgument, "rope_theta", "must exceed 1 with yarn");
  }
  if (!fields.boolean("truncate", true)) {
    fields.fail(ErrorCode::kUnsupported, "truncate", "only true is supported");
  }
  const bool given = fields.find_or_null("mscale") != nullptr;
  if (given != (fields.find_or_null("mscale_all_dim") != nullptr)) {
    fields.fail(ErrorCode::kUnsupported, given ? "mscale_all_dim" : "mscale",
                "missing: mscale and mscale_all_dim are supported together only");
  } else if (given) {
    rope.mscale = fields.positive("mscale", std::nullopt);
    rope.mscale_all_dim = fields.positive("mscale_all_dim", std::nullopt);
  }
  rope.length_factor = fields.positive("attn_factor", 1.0);
  if (fields.find_or_null("attention_factor") != nullptr) {
    rope.attention_factor = fields.positive("attention_factor", std::nullopt);
    fields.refuse_unless("attn_factor", 1.0);  // of two lengths readers take one or the other
  }
}

// The name that the object gives its type by: older files have the second.
const char* type_field(const JsonFields& fields) {
  return fields.find_or_null("rope_type") != nullptr ? "rope_type" : "type";
}

Scaling read_type(JsonFields& fields) {
  const char* const name = type_field(fields);
  const std::string type = fields.text(name, "default");
  if (fields.text("type", type) != type) {
    fields.fail(ErrorCode::kInvalidArgument, "type", "is another than rope_type");
  }
  if (type == "default") return Scaling::kNone;
  for (const Scaling known : {Scaling::kLinear, Scaling::kLlama3, Scaling::kYarn}) {
    if (type == rope_scaling_name(known)) return known;
  }
  fields.fail(ErrorCode::kUnsupported, name,
              "'" + printable(type) + "' is not supported; known are default linear llama3 yarn");
  return Scaling::kNone;
}

void refuse_others(JsonFields& fields, Scaling scaling) {
  const auto known = names_of(scaling);
  for (const Refused& refused : kRefused) {
    if (std::find(known.begin(), known.end(), refused.name) == known.end()) {
      fields.refuse_unless(refused.name, refused.neutral);
    }
  }
  for (const auto& [name, value] : fields.object().items()) {
    const bool usual = name == "rope_type" || name == "type" || name == "rope_theta" ||
                       std::any_of(kRefused.begin(), kRefused.end(),
                                   [&](const Refused& refused) { return refused.name == name; });
    if (usual || value.is_null() || std::find(known.begin(), known.end(), name) != known.end()) {
      continue;
    }
    const std::string type(scaling == Scaling::kNone ? "default" : rope_scaling_name(scaling));
    fields.fail(ErrorCode::kUnsupported, printable(name),
                "is nothing that the type " + type + " has");
  }
}

// One object: what it does not say stays as it is.
RopeConfig read_object(JsonFields& fields, double usual_theta) {
  RopeConfig rope;
  rope.theta = fields.positive("rope_theta", usual_theta);
  rope.scaling = read_type(fields);
  if (!fields.status().ok()) return rope;
  if (rope.scaling == Scaling::kLinear) rope.factor = fields.positive("factor", std::nullopt);
  if (rope.scaling == Scaling::kLlama3) read_llama3(fields, rope);
  if (rope.scaling == Scaling::kYarn) read_yarn(fields, rope);
  refuse_others(fields, rope.scaling);
  return rope;
}

// An object of `fields`, and where in the file it stands.
struct Place {
  const Json* object_or_null = nullptr;
  std::string path;
};

Place place_of(JsonFields& fields, const char* name) {
  const Json* const found = fields.find_or_null(name);
  if (found != nullptr && !found->is_object()) {
    fields.fail(ErrorCode::kInvalidArgument, name, "must be an object");
    return {};
  }
  if (found == nullptr || found->empty()) return {};
  return {found, name};
}

// The part of rope_parameters for a type of layer, where it has parts.
Place part_of(const Place& whole, const char* type) {
  if (whole.object_or_null == nullptr) return {};
  const auto found = whole.object_or_null->find(type);
  if (found == whole.object_or_null->end() || !found->is_object()) return {};
  return {&*found, whole.path + "." + type};
}

bool has_parts(const Place& whole) {
  return part_of(whole, kFullAttention).object_or_null != nullptr ||
         part_of(whole, kWindowedAttention).object_or_null != nullptr;
}

std::optional<RopeConfig> read_place(JsonFields& fields, const Place& place, double usual_theta) {
  if (place.object_or_null == nullptr) return std::nullopt;
  JsonFields nested = fields.nested(*place.object_or_null, place.path + ".");
  const RopeConfig rope = read_object(nested, usual_theta);
  fields.adopt(nested.status());
  return rope;
}

}  // namespace

std::string_view rope_scaling_name(RopeConfig::Scaling scaling) {
  switch (scaling) {
    case RopeConfig::Scaling::kNone:
      return "none";
    case RopeConfig::Scaling::kLinear:
      return "linear";
    case RopeConfig::Scaling::kLlama3:
      return "llama3";
    case RopeConfig::Scaling::kYarn:
      return "yarn";
  }
  return "unknown";
}

// Where there are both, rope_scaling says how (as in Hugging Face's transformers) and
// rope_parameters at most the frequency: files that were extended by hand have both.
RopeConfig read_rope(JsonFields& fields, ModelFamily family, double usual_theta) {
  RopeConfig rope;
  rope.theta = fields.positive("rope_theta", usual_theta);
  Place newer = place_of(fields, "rope_parameters");
  if (family == ModelFamily::kGemma3 && has_parts(newer)) newer = part_of(newer, kFullAttention);
  const Place older = place_of(fields, "rope_scaling");
  const std::optional<RopeConfig> first = read_place(fields, newer, rope.theta);
  rope = first.value_or(rope);
  const std::optional<RopeConfig> second = read_place(fields, older, rope.theta);
  if (first && second && *first != *second &&
      (first->scaling != Scaling::kNone || first->theta != second->theta)) {
    fields.fail(ErrorCode::kInvalidArgument, "rope_scaling", "contradicts rope_parameters");
  }
  return second.value_or(rope);
}

RopeConfig read_windowed_rope(JsonFields& fields) {
  RopeConfig rope;
  rope.theta = fields.positive("rope_local_base_freq", 10000.0);
  const Place own = part_of(place_of(fields, "rope_parameters"), kWindowedAttention);
  rope = read_place(fields, own, rope.theta).value_or(rope);
  if (rope.scaling != Scaling::kNone) {
    fields.fail(ErrorCode::kUnsupported, own.path + ".rope_type", "only default is supported");
  }
  return rope;
}

}  // namespace stemma
