// Expert choice: which experts of a mixture a token goes to, and with which weights.
//
// Scores are f32, computed in the order of the experts; of equal scores the lower expert wins, and
// NaN loses against everything. A row's choice depends on that row alone (I13).
//
// Thread:     pure functions of their arguments.
// Memory:     the caller's scratch.
// Cost:       an exponential an expert, and a partial sort of the experts.
// Not here:   the scores before they are scaled (a product), computing experts (mixture).
#pragma once

#include <cstdint>
#include <span>

#include "model/mixture_config.h"

namespace stemma {

// One of a token's experts and the weight of what it says.
struct ExpertShare {
  std::int32_t expert = 0;
  float weight = 0;

  friend bool operator==(const ExpertShare&, const ExpertShare&) = default;
};

// What the choice of one token is computed from and in.
struct ChoiceRow {
  std::span<float> scores;         // [experts]; the router's products, overwritten
  std::span<float> keys;           // [experts]; scratch
  std::span<float> group_keys;     // [groups]; scratch
  std::span<std::int32_t> ranked;  // [experts]; scratch
};

// Writes the token's experts in ascending order.
// REQUIRES: `correction` is [experts] where the model has one; chosen is [experts_per_token].
void choose_experts(const MixtureConfig& config, std::span<const float> correction,
                    const ChoiceRow& row, std::span<ExpertShare> chosen);

}  // namespace stemma
