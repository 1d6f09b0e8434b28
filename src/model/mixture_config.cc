#include "model/mixture_config.h"

#include <fmt/format.h>

#include <optional>

#include "base/json_text.h"

namespace stemma {
namespace {

using Json = nlohmann::json;
using Range = JsonFields::Range;
using Choice = MixtureConfig::Choice;

// Bounds as those of config: far above any model, far below what could overflow.
constexpr Range kExpertsRange = {1, 1 << 12};
constexpr std::int64_t kAllExpertsMax = 1 << 18;  // of all layers
constexpr Range kStepRange = {1, 1 << 12};
constexpr Range kWidthRange = {1, 1 << 20};
constexpr Range kSharedRange = {0, 64};

void read_experts(JsonFields& fields, std::string_view experts_name, std::int64_t layers,
                  MixtureConfig& mixture) {
  mixture.experts = fields.integer(experts_name, kExpertsRange, std::nullopt);
  if (mixture.experts * layers > kAllExpertsMax) {
    fields.fail(ErrorCode::kTooLarge, experts_name,
                std::to_string(mixture.experts) + " in each of " + std::to_string(layers) +
                    " layers; at most " + std::to_string(kAllExpertsMax) + " are supported");
  }
  mixture.experts_per_token = fields.integer("num_experts_per_tok", kExpertsRange, std::nullopt);
  mixture.width = fields.integer("moe_intermediate_size", kWidthRange, std::nullopt);
  if (fields.status().ok() && mixture.experts_per_token > mixture.experts) {
    fields.fail(ErrorCode::kInvalidArgument, "num_experts_per_tok",
                std::to_string(mixture.experts_per_token) + " is more than " +
                    std::string(experts_name) + " " + std::to_string(mixture.experts));
  }
}

// Layers that are dense whatever the step says.
void exclude_listed_layers(JsonFields& fields, MixtureConfig& mixture) {
  const Json* listed = fields.find_or_null("mlp_only_layers");
  if (listed == nullptr) {
    return;
  }
  if (!listed->is_array()) {
    fields.fail(ErrorCode::kInvalidArgument, "mlp_only_layers", "must be a list of layers");
    return;
  }
  const auto layers = static_cast<std::int64_t>(mixture.layers.size());
  for (const Json& layer : *listed) {
    const bool known = layer.is_number_unsigned() &&
                       layer.get<std::uint64_t>() < static_cast<std::uint64_t>(layers);
    if (!known) {
      fields.fail(ErrorCode::kInvalidArgument, "mlp_only_layers",
                  "must hold layers from 0 to " + std::to_string(layers - 1) + " (got " +
                      printable(layer.dump(-1, ' ', true), 40) + ")");
      return;
    }
    mixture.layers[layer.get<std::size_t>()] = false;
  }
}

Choice read_choice(JsonFields& fields, DeepseekVersion version) {
  const bool v3 = version == DeepseekVersion::kV3;
  const std::string scoring = fields.text("scoring_func", v3 ? "sigmoid" : "softmax");
  const std::string method = fields.text("topk_method", v3 ? "noaux_tc" : "greedy");
  for (const Choice choice : {Choice::kSoftmax, Choice::kSoftmaxGroups, Choice::kCorrectedGroups}) {
    if (method != choice_name(choice)) {
      continue;
    }
    const std::string_view needed = choice == Choice::kCorrectedGroups ? "sigmoid" : "softmax";
    if (scoring != needed) {
      fields.fail(ErrorCode::kUnsupported, "scoring_func",
                  "'" + printable(scoring) + "' is not supported with topk_method " + method +
                      "; known is " + std::string(needed));
    }
    return choice;
  }
  fields.fail(ErrorCode::kUnsupported, "topk_method",
              "'" + printable(method) +
                  "' is not supported; known are greedy group_limited_greedy noaux_tc");
  return Choice::kSoftmax;
}

struct Count {
  std::string_view name;
  Range range;
  std::int64_t none = 0;   // what null says
  std::int64_t of_v3 = 0;  // where a file of V3 says nothing: as Hugging Face's class has it
};

// V2's classes disagree about what a file without the field has: it must say.
std::int64_t read_count(JsonFields& fields, DeepseekVersion version, const Count& count) {
  if (fields.has(count.name) && fields.find_or_null(count.name) == nullptr) return count.none;
  const bool v3 = version == DeepseekVersion::kV3;
  return fields.integer(count.name, count.range, v3 ? std::optional(count.of_v3) : std::nullopt);
}

void read_groups(JsonFields& fields, DeepseekVersion version, MixtureConfig& mixture) {
  if (mixture.choice == Choice::kSoftmax || !fields.status().ok()) {
    return;
  }
  mixture.groups = read_count(fields, version, {"n_group", kExpertsRange, /*none=*/1, /*of_v3=*/8});
  mixture.groups_per_token =
      read_count(fields, version, {"topk_group", kExpertsRange, /*none=*/1, /*of_v3=*/4});
  if (mixture.experts % mixture.groups != 0) {
    fields.fail(ErrorCode::kInvalidArgument, "n_group",
                std::to_string(mixture.groups) + " does not divide n_routed_experts " +
                    std::to_string(mixture.experts));
  }
  if (mixture.groups_per_token > mixture.groups) {
    fields.fail(ErrorCode::kInvalidArgument, "topk_group",
                std::to_string(mixture.groups_per_token) + " is more than n_group " +
                    std::to_string(mixture.groups));
  }
  if (mixture.choice == Choice::kCorrectedGroups && mixture.group_experts() < 2) {
    fields.fail(ErrorCode::kInvalidArgument, "n_group", "leaves fewer than two experts in a group");
  }
  const std::int64_t open = mixture.groups_per_token * mixture.group_experts();
  if (mixture.experts_per_token > open) {
    fields.fail(ErrorCode::kInvalidArgument, "num_experts_per_tok",
                std::to_string(mixture.experts_per_token) + " is more than the " +
                    std::to_string(open) + " experts of topk_group groups");
  }
}

void read_weights_of_experts(JsonFields& fields, DeepseekVersion version, MixtureConfig& mixture) {
  const bool v3 = version == DeepseekVersion::kV3;
  // The weight of one expert alone is its score in V2, whatever the file says, and 1 in V3: so
  // Hugging Face's transformers and vLLM.
  mixture.normalised =
      fields.boolean("norm_topk_prob", v3) && (v3 || mixture.experts_per_token > 1);
  mixture.scaling = fields.positive("routed_scaling_factor", std::nullopt);
  // V3 normalises and scales, and so does a V2 that chooses as V3 does (DeepSeek-VL2's language
  // model). Of another V2 that asks for both, those who read it each make something else.
  const bool does_one = !v3 && mixture.choice != Choice::kCorrectedGroups;
  if (does_one && mixture.normalised && mixture.scaling != 1.0) {
    fields.fail(ErrorCode::kUnsupported, "routed_scaling_factor",
                "only 1.0 is supported with norm_topk_prob and topk_method " +
                    std::string(choice_name(mixture.choice)));
  }
}

}  // namespace

std::string_view choice_name(MixtureConfig::Choice choice) {
  switch (choice) {
    case Choice::kSoftmax:
      return "greedy";
    case Choice::kSoftmaxGroups:
      return "group_limited_greedy";
    case Choice::kCorrectedGroups:
      return "noaux_tc";
  }
  return "unknown";
}

std::string mixture_text(const MixtureConfig& mixture) {
  return fmt::format("{} groups={},{} normalised={} scaling={:a}", choice_name(mixture.choice),
                     mixture.groups, mixture.groups_per_token, mixture.normalised ? "yes" : "no",
                     mixture.scaling);
}

MixtureConfig read_qwen_mixture(JsonFields& fields, std::int64_t layers) {
  // Newer files have the second name.
  const std::string_view name = fields.find_or_null("num_experts") == nullptr &&
                                        fields.find_or_null("num_local_experts") != nullptr
                                    ? "num_local_experts"
                                    : "num_experts";
  MixtureConfig mixture;
  read_experts(fields, name, layers, mixture);
  mixture.normalised = fields.boolean("norm_topk_prob", false);
  const std::int64_t step = fields.integer("decoder_sparse_step", kStepRange, 1);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    mixture.layers.push_back((layer + 1) % step == 0);
  }
  exclude_listed_layers(fields, mixture);
  return mixture;
}

MixtureConfig read_deepseek_mixture(JsonFields& fields, DeepseekVersion version,
                                    std::int64_t layers) {
  MixtureConfig mixture;
  read_experts(fields, "n_routed_experts", layers, mixture);
  mixture.shared_width =
      mixture.width *
      read_count(fields, version, {"n_shared_experts", kSharedRange, /*none=*/0, /*of_v3=*/1});
  mixture.choice = read_choice(fields, version);
  read_groups(fields, version, mixture);
  read_weights_of_experts(fields, version, mixture);
  const std::int64_t dense = fields.integer("first_k_dense_replace", {0, layers}, std::nullopt);
  const std::int64_t step = fields.integer("moe_layer_freq", kStepRange, 1);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    mixture.layers.push_back(layer >= dense && layer % step == 0);
  }
  return mixture;
}

}  // namespace stemma
