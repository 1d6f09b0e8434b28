#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>

#include "base/check.h"

namespace stemma {
namespace {

// Llama 3.1 stretches the context by slowing the pairs whose wave is longer than the original
// context, keeps those that turn often within it, and ramps between.
double llama3_scaled(const RopeConfig& config, double frequency) {
  const auto original_tokens = static_cast<double>(config.original_context_tokens);
  const double turns = original_tokens * frequency / (2.0 * std::numbers::pi);
  if (turns < config.low_frequency_factor) {
    return frequency / config.factor;
  }
  if (turns > config.high_frequency_factor) {
    return frequency;
  }
  const double kept = (turns - config.low_frequency_factor) /
                      (config.high_frequency_factor - config.low_frequency_factor);
  return (1.0 - kept) * frequency / config.factor + kept * frequency;
}

// The pair, counted with a fraction, that turns `turns` times within the original context.
double yarn_pair(const RopeConfig& config, double turns, std::int64_t head_dim) {
  const auto original_tokens = static_cast<double>(config.original_context_tokens);
  const double per_turn = original_tokens / (turns * 2.0 * std::numbers::pi);
  return static_cast<double>(head_dim) * std::log(per_turn) / (2.0 * std::log(config.theta));
}

// YaRN keeps the fast pairs and divides the slow ones; between them it goes over evenly, pair by
// pair.
double yarn_scaled(const RopeConfig& config, double frequency, std::int64_t pair,
                   std::int64_t head_dim) {
  const double first = std::max(std::floor(yarn_pair(config, config.fast_turns, head_dim)), 0.0);
  double last = std::min(std::ceil(yarn_pair(config, config.slow_turns, head_dim)),
                         static_cast<double>(head_dim - 1));
  if (last == first) {
    last += 0.001;  // as published: a step where the ramp has no length
  }
  const double divided = std::clamp((static_cast<double>(pair) - first) / (last - first), 0.0, 1.0);
  return divided * frequency / config.factor + (1.0 - divided) * frequency;
}

double scaled(const RopeConfig& config, double frequency, std::int64_t pair,
              std::int64_t head_dim) {
  switch (config.scaling) {
    case RopeConfig::Scaling::kNone:
      return frequency;
    case RopeConfig::Scaling::kLinear:
      return frequency / config.factor;
    case RopeConfig::Scaling::kLlama3:
      return llama3_scaled(config, frequency);
    case RopeConfig::Scaling::kYarn:
      return yarn_scaled(config, frequency, pair, head_dim);
  }
  return frequency;
}

// How much longer vectors get with a context that is config.factor times as long.
double yarn_length(const RopeConfig& config, double strength) {
  return config.factor <= 1.0 ? 1.0 : 0.1 * strength * std::log(config.factor) + 1.0;
}

std::string hex_of(double value) {
  // Every bit counts: two configurations that differ in the last place are two namespaces.
  char text[64];
  const int length = std::snprintf(text, sizeof(text), "%a", value);
  return std::string(text, static_cast<std::size_t>(length));
}

}  // namespace

double vector_length(const RopeConfig& config) {
  if (config.scaling != RopeConfig::Scaling::kYarn) {
    return 1.0;
  }
  if (config.attention_factor > 0.0) {
    return config.attention_factor;
  }
  return config.length_factor * yarn_length(config, config.mscale) /
         yarn_length(config, config.mscale_all_dim);
}

// The length that vector_length leaves out, once for q and once for k.
double score_factor(const RopeConfig& config) {
  if (config.scaling != RopeConfig::Scaling::kYarn) {
    return 1.0;
  }
  const double length = yarn_length(config, config.mscale_all_dim);
  return length * length;
}

std::string rope_text(const RopeConfig& rope) {
  return std::string(rope_scaling_name(rope.scaling)) + " theta=" + hex_of(rope.theta) +
         " factor=" + hex_of(rope.factor) + " low=" + hex_of(rope.low_frequency_factor) +
         " high=" + hex_of(rope.high_frequency_factor) +
         " original=" + std::to_string(rope.original_context_tokens) +
         " turns=" + hex_of(rope.fast_turns) + "," + hex_of(rope.slow_turns) +
         " factors=" + hex_of(vector_length(rope)) + "," + hex_of(score_factor(rope));
}

Rope::Rope(const RopeConfig& config, std::int64_t head_dim)
    : vector_length_(vector_length(config)) {
  STEMMA_CHECK(head_dim >= 2 && head_dim % 2 == 0, "RoPE turns pairs");
  for (std::int64_t pair = 0; pair < head_dim / 2; ++pair) {
    const double exponent = static_cast<double>(2 * pair) / static_cast<double>(head_dim);
    frequencies_.push_back(scaled(config, std::pow(config.theta, -exponent), pair, head_dim));
  }
}

void Rope::angles(std::int64_t position, std::span<float> cosines, std::span<float> sines) const {
  STEMMA_DCHECK(
      position >= 0 && cosines.size() == frequencies_.size() && sines.size() == frequencies_.size(),
      "one cosine and one sine for each pair");
  for (std::size_t pair = 0; pair < frequencies_.size(); ++pair) {
    const double angle = static_cast<double>(position) * frequencies_[pair];
    cosines[pair] = static_cast<float>(vector_length_ * std::cos(angle));
    sines[pair] = static_cast<float>(vector_length_ * std::sin(angle));
  }
}

}  // namespace stemma
