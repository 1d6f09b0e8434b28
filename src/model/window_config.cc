#include "model/window_config.h"

#include <string>

#include "base/json_text.h"
#include "model/config.h"

namespace stemma {
namespace {

using Json = nlohmann::json;
using Range = JsonFields::Range;

constexpr Range kWindowRange = {1, 1 << 28};
constexpr Range kLayerRange = {0, 4096};
constexpr std::int64_t kMistralTokens = 4096;  // where the file does not say

bool is_qwen(ModelFamily family) {
  return family == ModelFamily::kQwen2 || family == ModelFamily::kQwen3 ||
         family == ModelFamily::kQwen3Moe;
}

bool is_gemma(ModelFamily family) {
  return family == ModelFamily::kGemma2 || family == ModelFamily::kGemma3;
}

// Families of which Hugging Face's classes give every layer the window, whatever the file lists.
bool has_one_kind(ModelFamily family) {
  return family == ModelFamily::kMistral || family == ModelFamily::kQwen3Moe;
}

// Whether the family defines what a window means.
bool knows_windows(ModelFamily family) {
  return family == ModelFamily::kMistral || is_qwen(family) || is_gemma(family);
}

// A Mistral model without a window says so: null. Of the switch that other families have vLLM knows
// here too, Hugging Face's classes do not.
bool has_mistral_window(JsonFields& fields) {
  const bool none =
      fields.has("sliding_window") && fields.find_or_null("sliding_window") == nullptr;
  if (none) return false;
  if (!fields.boolean("use_sliding_window", true)) {
    fields.fail(
        ErrorCode::kUnsupported, "use_sliding_window",
        "only true is supported beside a window: a model without one has the sliding_window "
        "null");
  }
  return true;
}

// Qwen files carry a window beside the switch that disables it, which is off by default.
bool has_window(JsonFields& fields, ModelFamily family) {
  if (family == ModelFamily::kMistral) return has_mistral_window(fields);
  if (is_qwen(family)) return fields.boolean("use_sliding_window", false);
  const bool given = fields.find_or_null("sliding_window") != nullptr;
  return is_gemma(family) || fields.boolean("use_sliding_window", given);
}

// As the family has them where the file does not list them.
std::vector<bool> usual_layers(JsonFields& fields, ModelFamily family, std::int64_t layers) {
  std::vector<bool> windowed(static_cast<std::size_t>(layers), true);
  std::int64_t period = 0;  // every so many layers one without a window
  std::int64_t first = 0;
  if (family == ModelFamily::kGemma2) period = 2;
  if (family == ModelFamily::kGemma3) {
    period = fields.integer("sliding_window_pattern", {1, kLayerRange.max}, 6);
  }
  if (is_qwen(family) && family != ModelFamily::kQwen3Moe) {
    first = fields.integer("max_window_layers", kLayerRange, 28);
  }
  for (std::int64_t i = 0; i < layers; ++i) {
    const bool full = i < first || (period > 0 && (i + 1) % period == 0);
    windowed[static_cast<std::size_t>(i)] = !full;
  }
  return windowed;
}

// `types` as newer files list them.
std::vector<bool> listed_layers(JsonFields& fields, const Json& types, std::int64_t layers) {
  std::vector<bool> windowed;
  if (!types.is_array() || std::ssize(types) != layers) {
    fields.fail(ErrorCode::kInvalidArgument, "layer_types",
                "must list the " + std::to_string(layers) + " layers of num_hidden_layers");
    return windowed;
  }
  for (const Json& type : types) {
    const std::string name = type.is_string() ? type.get<std::string>() : "";
    if (name != "full_attention" && name != "sliding_attention") {
      fields.fail(
          ErrorCode::kUnsupported, "layer_types",
          "'" + printable(name) + "' is not supported; known are full_attention sliding_attention");
    }
    windowed.push_back(name == "sliding_attention");
  }
  return windowed;
}

}  // namespace

WindowConfig read_windows(JsonFields& fields, ModelFamily family, std::int64_t layers) {
  WindowConfig windows;
  if (!fields.status().ok()) return windows;
  const bool windowed = has_window(fields, family);
  if (windowed && !knows_windows(family)) {
    fields.fail(ErrorCode::kUnsupported, "sliding_window",
                "sliding-window attention is not supported for this architecture");
    return windows;
  }
  const Json* const types = fields.find_or_null("layer_types");
  if (types != nullptr) {
    windows.layers = listed_layers(fields, *types, layers);
  } else if (windowed) {
    windows.layers = usual_layers(fields, family, layers);
  }
  if (windowed && has_one_kind(family) && windows.count() < layers) {
    fields.fail(ErrorCode::kUnsupported, "layer_types",
                "only sliding_attention is supported where a window is on: all layers have it");
  }
  if (windows.count() == 0) return {};
  if (!knows_windows(family) || !windowed) {
    fields.fail(ErrorCode::kUnsupported, "layer_types",
                "sliding_attention, where the file switches no window on");
    return {};
  }
  const bool mistral = family == ModelFamily::kMistral;
  windows.tokens = fields.integer("sliding_window", kWindowRange,
                                  mistral ? std::optional(kMistralTokens) : std::nullopt);
  return windows;
}

}  // namespace stemma
