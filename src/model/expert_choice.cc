#include "model/expert_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace stemma {
namespace {

using Choice = MixtureConfig::Choice;

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// As published: keeps the sum of scores that all vanish from being divided by.
constexpr float kSumFloor = 1e-20F;

void softmax(std::span<float> scores) {
  const float top = *std::max_element(scores.begin(), scores.end());
  float total = 0;
  for (float& score : scores) {
    score = std::exp(score - top);
    total += score;
  }
  for (float& score : scores) {
    score /= total;
  }
}

void sigmoid(std::span<float> scores) {
  for (float& score : scores) {
    score = 1.0F / (1.0F + std::exp(-score));
  }
}

// The places of the `count` largest keys, the largest first. No key is NaN.
std::span<std::int32_t> largest(std::span<const float> keys, std::int64_t count,
                                std::span<std::int32_t> ranked) {
  const std::span<std::int32_t> places = ranked.first(keys.size());
  std::iota(places.begin(), places.end(), 0);
  std::partial_sort(places.begin(), places.begin() + count, places.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      const float key_a = keys[static_cast<std::size_t>(a)];
                      const float key_b = keys[static_cast<std::size_t>(b)];
                      return key_a > key_b || (key_a == key_b && a < b);
                    });
  return places.first(static_cast<std::size_t>(count));
}

// What a group counts as: its best expert, or its two best.
float group_key(std::span<const float> keys, Choice choice) {
  float best = kLowest;
  float second = kLowest;
  for (const float key : keys) {
    second = std::max(second, std::min(best, key));
    best = std::max(best, key);
  }
  return choice == Choice::kCorrectedGroups ? best + second : best;
}

// Experts outside the token's groups get the lowest key.
void close_groups(const MixtureConfig& config, const ChoiceRow& row) {
  const auto group_experts = static_cast<std::size_t>(config.group_experts());
  const auto keys_of = [&](std::size_t group) {
    return row.keys.subspan(group * group_experts, group_experts);
  };
  for (std::size_t group = 0; group < row.group_keys.size(); ++group) {
    row.group_keys[group] = group_key(keys_of(group), config.choice);
  }
  for (const std::int32_t group : largest(row.group_keys, config.groups_per_token, row.ranked)) {
    row.group_keys[static_cast<std::size_t>(group)] = std::numeric_limits<float>::quiet_NaN();
  }
  for (std::size_t group = 0; group < row.group_keys.size(); ++group) {
    const bool open = std::isnan(row.group_keys[group]);
    if (!open) {
      std::fill_n(keys_of(group).begin(), group_experts, kLowest);
    }
  }
}

void weigh(const MixtureConfig& config, std::span<ExpertShare> chosen) {
  float total = kSumFloor;
  for (const ExpertShare& share : chosen) {
    total += share.weight;
  }
  for (ExpertShare& share : chosen) {
    if (config.normalised) {
      share.weight /= total;
    }
    share.weight *= static_cast<float>(config.scaling);
  }
}

}  // namespace

void choose_experts(const MixtureConfig& config, std::span<const float> correction,
                    const ChoiceRow& row, std::span<ExpertShare> chosen) {
  STEMMA_DCHECK(static_cast<std::int64_t>(chosen.size()) == config.experts_per_token,
                "as many shares as a token has experts");
  const bool corrected = config.choice == Choice::kCorrectedGroups;
  corrected ? sigmoid(row.scores) : softmax(row.scores);
  for (std::size_t expert = 0; expert < row.scores.size(); ++expert) {
    const float key = row.scores[expert] + (corrected ? correction[expert] : 0.0F);
    row.keys[expert] = std::isnan(key) ? kLowest : key;
  }
  if (config.choice != Choice::kSoftmax) {
    close_groups(config, row);
  }
  const auto best = largest(row.keys, config.experts_per_token, row.ranked);
  std::sort(best.begin(), best.end());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    chosen[i] = {best[i], row.scores[static_cast<std::size_t>(best[i])]};
  }
  weigh(config, chosen);
}

}  // namespace stemma
