// MixtureConfig: how the layers of a mixture of experts choose among their experts, as config.json
// says it.
//
// Qwen3-MoE: the experts with the largest softmax. DeepSeek-V2: the same, or among the best groups
// of experts only, a group counting as its best expert. DeepSeek-V3: sigmoids, chosen after a
// learned correction, a group counting as its two best.
//
// Thread:     values and pure functions.
// Memory:     one bit a layer.
// Cost:       a parse at start-up.
// Not here:   the choice itself (mixture), the rest of config.json (config).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stemma {

class JsonFields;

struct MixtureConfig {
  enum class Choice : std::uint8_t {
    kSoftmax,         // the largest scores
    kSoftmaxGroups,   // the largest scores of the groups with the largest best score
    kCorrectedGroups  // sigmoid scores; a correction is added for the choice, not for the weights;
                      // groups count as the sum of their two best
  };

  std::int64_t experts = 0;  // 0: the model has no mixtures
  std::int64_t experts_per_token = 0;
  std::int64_t width = 0;         // inside one expert
  std::int64_t shared_width = 0;  // inside the experts that every token passes, together; 0: none
  Choice choice = Choice::kSoftmax;
  std::int64_t groups = 1;  // equal runs of experts
  std::int64_t groups_per_token = 1;
  bool normalised = false;   // the weights of a token's experts are made to sum to 1
  double scaling = 1.0;      // and then multiplied by this
  std::vector<bool> layers;  // which layers are mixtures; the others are dense

  std::int64_t group_experts() const noexcept { return experts / groups; }
  bool at_layer(std::int64_t layer) const {
    return experts > 0 && layers[static_cast<std::size_t>(layer)];
  }

  friend bool operator==(const MixtureConfig&, const MixtureConfig&) = default;
};

std::string_view choice_name(MixtureConfig::Choice choice);  // as DeepSeek's topk_method

// How the experts of a token are chosen and weighed, in words that differ where a bit of it does.
std::string mixture_text(const MixtureConfig& config);

// Read what a Qwen3-MoE or a DeepSeek file says, for a model of `layers` layers; what is missing or
// wrong is remembered in `fields`.
MixtureConfig read_qwen_mixture(JsonFields& fields, std::int64_t layers);
enum class DeepseekVersion : std::uint8_t { kV2, kV3 };
MixtureConfig read_deepseek_mixture(JsonFields& fields, DeepseekVersion version,
                                    std::int64_t layers);

}  // namespace stemma
