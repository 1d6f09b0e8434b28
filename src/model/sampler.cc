#include "model/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "base/check.h"
#include "base/prng.h"

namespace stemma {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

Error out_of_range(std::string_view field, double value, std::string_view range) {
  return Error{ErrorCode::kInvalidArgument, std::string(field) + " must be " + std::string(range) +
                                                " (got " + std::to_string(value) + ")"};
}

// The order of the candidates' heap: by weight, then the lower id first.
struct LessLikely {
  std::span<const double> weights;
  bool operator()(TokenId a, TokenId b) const {
    const double left = weights[static_cast<std::size_t>(a)];
    const double right = weights[static_cast<std::size_t>(b)];
    return left != right ? left < right : a > b;
  }
};

}  // namespace

Status SamplingParams::validate(std::int64_t vocab_tokens) const {
  if (!(temperature >= 0) || !std::isfinite(temperature)) {
    return out_of_range("temperature", temperature, "a number of at least 0");
  }
  if (top_k < 0) {
    return out_of_range("top_k", static_cast<double>(top_k), "at least 0, which means all");
  }
  if (!(top_p > 0 && top_p <= 1)) return out_of_range("top_p", top_p, "above 0 and at most 1");
  if (!(min_p >= 0 && min_p <= 1)) return out_of_range("min_p", min_p, "from 0 to 1");
  if (!(repetition_penalty > 0) || !std::isfinite(repetition_penalty)) {
    return out_of_range("repetition_penalty", repetition_penalty, "a number above 0");
  }
  if (!(std::fabs(presence_penalty) <= 2)) {
    return out_of_range("presence_penalty", presence_penalty, "from -2 to 2");
  }
  if (!(std::fabs(frequency_penalty) <= 2)) {
    return out_of_range("frequency_penalty", frequency_penalty, "from -2 to 2");
  }
  for (const auto& [token, bias] : logit_bias) {
    if (token < 0 || token >= vocab_tokens) {
      return out_of_range("logit_bias", token, "for tokens of the vocabulary");
    }
    if (!std::isfinite(bias)) return out_of_range("logit_bias", bias, "a number");
  }
  return {};
}

double sampling_unit(std::uint64_t seed, std::int64_t output_position) {
  const std::uint64_t mixed = mix64(mix64(seed) + static_cast<std::uint64_t>(output_position));
  return static_cast<double>(mix64(mixed) >> 11) * 0x1.0p-53;
}

Sampler::Sampler(std::int64_t vocab_tokens) {
  STEMMA_CHECK_GE(vocab_tokens, 1);
  const auto size = static_cast<std::size_t>(vocab_tokens);
  logits_.resize(size);
  weights_.resize(size);
  candidates_.resize(size);
  counts_.resize(size);
  seen_.resize(size);
}

std::optional<TokenId> Sampler::try_sample(std::span<const float> logits,
                                           const SamplingParams& params,
                                           const SamplingHistory& history) {
  STEMMA_CHECK_EQ(logits.size(), logits_.size());
  STEMMA_CHECK(history.prompt_tokens >= 0 && history.output_position() >= 0,
               "the prompt is the first part of a request's tokens");
  adjust(logits, params, history);
  const std::optional<TokenId> top = most_likely();
  const bool certain = top && std::isinf(logits_[static_cast<std::size_t>(*top)]);  // plus infinity
  if (!top || certain || params.temperature == 0 || params.top_k == 1) return top;
  STEMMA_CHECK(params.seed.has_value(), "a request that samples has a seed");
  weigh(*top, params.temperature);
  const double unit = sampling_unit(*params.seed, history.output_position());
  const bool every_rank = params.top_k == 0 && params.top_p == 1;
  return every_rank ? draw_unordered(params.min_p, unit) : draw_ordered(params, unit);
}

void Sampler::adjust(std::span<const float> logits, const SamplingParams& params,
                     const SamplingHistory& history) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits_[i] = std::isnan(logits[i]) ? kImpossible : logits[i];
  }
  for (const auto& [token, bias] : params.logit_bias) {
    logits_[static_cast<std::size_t>(token)] += bias;
  }
  const bool penalties = params.repetition_penalty != 1 || params.presence_penalty != 0 ||
                         params.frequency_penalty != 0;
  if (penalties) penalize(params, history);
}

// Each token of the history is penalized once, where it is met first; the counts are put back to 0
// on the way.
void Sampler::penalize(const SamplingParams& params, const SamplingHistory& history) {
  const auto prompt_tokens = static_cast<std::size_t>(history.prompt_tokens);
  for (const TokenId token : history.tokens) {
    STEMMA_CHECK(token >= 0 && static_cast<std::size_t>(token) < logits_.size(),
                 "a token of the history is in the vocabulary");
  }
  for (const TokenId token : history.tokens.subspan(prompt_tokens)) {
    ++counts_[static_cast<std::size_t>(token)];
  }
  for (const TokenId token : history.tokens) {
    const auto i = static_cast<std::size_t>(token);
    if (seen_[i] != 0) continue;
    seen_[i] = 1;
    float& logit = logits_[i];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (counts_[i] > 0) {
      logit -= params.presence_penalty + params.frequency_penalty * static_cast<float>(counts_[i]);
    }
  }
  for (const TokenId token : history.tokens) {
    counts_[static_cast<std::size_t>(token)] = 0;
    seen_[static_cast<std::size_t>(token)] = 0;
  }
}

std::optional<TokenId> Sampler::most_likely() const {
  const auto top = std::max_element(logits_.begin(), logits_.end());  // the first of equals
  if (*top == kImpossible) return std::nullopt;
  return static_cast<TokenId>(top - logits_.begin());
}

void Sampler::weigh(TokenId top, float temperature) {
  const double top_logit = logits_[static_cast<std::size_t>(top)];
  for (std::size_t i = 0; i < logits_.size(); ++i) {
    weights_[i] = std::exp((static_cast<double>(logits_[i]) - top_logit) / temperature);
  }
}

// Inverse of the distribution function over the tokens in the order of their ids.
TokenId Sampler::draw_unordered(double min_weight, double unit) const {
  const auto counted = [&](double weight) { return weight >= min_weight ? weight : 0.0; };
  double total = 0;
  for (const double weight : weights_) total += counted(weight);
  const double target = unit * total;
  double reached = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (counted(weights_[i]) == 0) continue;
    reached += weights_[i];
    last = i;
    if (reached > target) break;
  }
  return static_cast<TokenId>(last);
}

// Inverse of the distribution function over the kept tokens, most likely first.
TokenId Sampler::draw_ordered(const SamplingParams& params, double unit) {
  const auto size = candidates_.size();
  Kept kept = take_top_k(params.top_k);
  const double wanted = static_cast<double>(params.top_p) * kept.weight;
  const std::size_t limit = kept.candidates;
  const bool taken_before = params.top_k != 0;
  kept = {};
  while (kept.candidates < limit && (kept.weight < wanted || params.top_p == 1)) {
    if (!taken_before) take_next(kept.candidates);
    const auto token = static_cast<std::size_t>(candidates_[size - 1 - kept.candidates]);
    const double weight = weights_[token];
    if (weight < params.min_p || weight == 0) break;
    kept.weight += weight;
    ++kept.candidates;
  }
  STEMMA_CHECK_GE(kept.candidates, std::size_t{1});  // the most likely token has weight 1
  const double target = unit * kept.weight;
  double reached = 0;
  for (std::size_t i = 0; i < kept.candidates; ++i) {
    const TokenId token = candidates_[size - 1 - i];
    reached += weights_[static_cast<std::size_t>(token)];
    if (reached > target) return token;
  }
  return candidates_[size - kept.candidates];
}

// Prepares the heap and, where there is a top_k, takes that many. Without one every token counts
// and none is taken yet.
Sampler::Kept Sampler::take_top_k(std::int64_t top_k) {
  std::iota(candidates_.begin(), candidates_.end(), TokenId{0});
  std::make_heap(candidates_.begin(), candidates_.end(), LessLikely{weights_});
  const std::size_t size = candidates_.size();
  if (top_k == 0) return {size, std::accumulate(weights_.begin(), weights_.end(), 0.0)};
  Kept kept;
  while (kept.candidates < size && kept.candidates < static_cast<std::size_t>(top_k)) {
    kept.weight += take_next(kept.candidates);
    ++kept.candidates;
  }
  return kept;
}

double Sampler::take_next(std::size_t taken) {
  const auto end = candidates_.end() - static_cast<std::ptrdiff_t>(taken);
  std::pop_heap(candidates_.begin(), end, LessLikely{weights_});
  return weights_[static_cast<std::size_t>(*(end - 1))];
}

}  // namespace stemma
