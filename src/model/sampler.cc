#include "model/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/prng.h"
#include "device/row_ops.h"

namespace stemma {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

// Up to so many tokens a heap finds sooner than bins do.
constexpr std::int64_t kHeapMax = 1024;

template <typename Number>
Error out_of_range(std::string_view field, Number value, std::string_view range) {
  return Error{ErrorCode::kInvalidArgument, std::string(field) + " must be " + std::string(range) +
                                                " (got " + std::to_string(value) + ")"};
}

// The rank of tokens: by weight, then the lower id first.
struct MoreLikely {
  std::span<const double> weights;
  bool operator()(TokenId a, TokenId b) const {
    const double left = weights[static_cast<std::size_t>(a)];
    const double right = weights[static_cast<std::size_t>(b)];
    return left != right ? left > right : a < b;
  }
};

// Weights by how great they are, the greatest first: sixteen bins an octave, and the last one of
// all that are below 2^-64. Of positive numbers the greater one has the greater bits.
constexpr std::size_t kBins = 1024;
std::size_t bin_of(double weight) {
  constexpr int kBitsBelow = 52 - 4;
  const auto bits = std::bit_cast<std::uint64_t>(weight);
  const auto greatest = std::bit_cast<std::uint64_t>(1.0);
  if (bits >= greatest) return 0;
  return std::min<std::size_t>((greatest - bits) >> kBitsBelow, kBins - 1);
}

// The first of the greatest; nothing if none is above minus infinity.
std::optional<TokenId> most_likely(std::span<const float> logits) {
  const std::int64_t top = argmax(logits);
  if (!(logits[static_cast<std::size_t>(top)] > kImpossible)) return std::nullopt;
  return static_cast<TokenId>(top);
}

}  // namespace

Status SamplingParams::validate(std::int64_t vocab_tokens) const {
  if (!(temperature >= 0) || !std::isfinite(temperature)) {
    return out_of_range("temperature", temperature, "a number of at least 0");
  }
  if (top_k < 0) {
    return out_of_range("top_k", top_k, "at least 0, which means all");
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
  for (const TokenId token : allowed_tokens) {
    if (token < 0 || token >= vocab_tokens) {
      return out_of_range("allowed_tokens", token, "tokens of the vocabulary");
    }
  }
  return {};
}

double sampling_unit(std::uint64_t seed, std::int64_t output_position) {
  const std::uint64_t mixed = mix64(mix64(seed) + static_cast<std::uint64_t>(output_position));
  return static_cast<double>(mix64(mixed) >> 11) * 0x1.0p-53;
}

void count_token(TokenId token, std::vector<TokenCount>& counts) {
  const auto found = std::ranges::find(counts, token, &TokenCount::token);
  if (found != counts.end()) {
    ++found->count;
  } else {
    counts.push_back({token, 1});
  }
}

TokenChoice choice_of(const SamplingParams& params, std::int64_t output_position) {
  TokenChoice choice = {.temperature = params.temperature,
                        .top_k = params.top_k,
                        .top_p = params.top_p,
                        .min_p = params.min_p};
  if (params.temperature == 0) return choice;
  STEMMA_CHECK(params.seed.has_value(), "a request that samples has a seed");
  choice.unit = sampling_unit(*params.seed, output_position);
  return choice;
}

Sampler::Sampler(std::int64_t vocab_tokens) {
  STEMMA_CHECK_GE(vocab_tokens, 1);
  const auto size = static_cast<std::size_t>(vocab_tokens);
  logits_.resize(size);
  weights_.resize(size);
  run_sums_.resize((size + kRunTokens - 1) / kRunTokens);
  bin_sums_.resize(kBins);
  candidates_.resize(size);
  counts_.resize(size);
  seen_.resize(size);
}

std::optional<TokenId> Sampler::try_sample(std::span<const float> logits,
                                           const SamplingParams& params,
                                           const SamplingHistory& history,
                                           const TokenRules& rules) {
  STEMMA_CHECK(history.prompt_tokens >= 0 && history.output_position() >= 0,
               "the prompt is the first part of a request's tokens");
  return try_choose(adjusted(logits, params, history, rules),
                    choice_of(params, history.output_position()));
}

std::optional<TokenId> Sampler::try_choose(std::span<const float> logits,
                                           const TokenChoice& choice) {
  STEMMA_CHECK_EQ(logits.size(), logits_.size());
  const std::optional<TokenId> top = most_likely(logits);
  if (!top || choice.temperature == 0 || choice.top_k == 1) return top;
  if (std::isinf(logits[static_cast<std::size_t>(*top)])) return top;
  weigh(logits, *top, choice.temperature);
  const bool every_rank = choice.top_k == 0 && choice.top_p == 1;
  if (every_rank) return draw_unordered(choice.min_p, choice.unit);
  return choice.top_k > 0 && choice.top_k <= kHeapMax ? draw_of_few(choice) : draw_of_many(choice);
}

std::span<const float> Sampler::adjusted(std::span<const float> logits,
                                         const SamplingParams& params,
                                         const SamplingHistory& history, const TokenRules& rules) {
  const bool keeps_to = rules.constraint_or_null != nullptr;
  if (!params.changes_logits() && rules.forbidden.empty() && !keeps_to) return logits;
  take_allowed(logits, params.allowed_tokens);
  if (keeps_to) keep_to(*rules.constraint_or_null, rules.ends);
  for (const TokenId token : rules.forbidden) {
    logits_[static_cast<std::size_t>(token)] = kImpossible;
  }
  for (const auto& [token, bias] : params.logit_bias) {
    logits_[static_cast<std::size_t>(token)] += bias;
  }
  if (params.has_penalties()) penalize(params, history);
  return logits_;
}

void Sampler::take_allowed(std::span<const float> logits, std::span<const TokenId> allowed) {
  if (allowed.empty()) {
    std::copy(logits.begin(), logits.end(), logits_.begin());
    return;
  }
  std::fill(logits_.begin(), logits_.end(), kImpossible);
  for (const TokenId token : allowed) {
    logits_[static_cast<std::size_t>(token)] = logits[static_cast<std::size_t>(token)];
  }
}

// Of most words of 64 tokens all are allowed or none. What the ends have is in weights_ meanwhile.
// A tokenizer may spell an end as text, which a constraint allows in the middle of others; given
// there, it would still end the output.
void Sampler::keep_to(OutputConstraint& constraint, std::span<const TokenId> ends) {
  for (const TokenId token : ends) {
    weights_[static_cast<std::size_t>(token)] = logits_[static_cast<std::size_t>(token)];
  }
  const std::span<const std::uint64_t> allowed = constraint.allowed();
  const std::size_t tokens = logits_.size();
  for (std::size_t first = 0; first < tokens; first += 64) {
    const std::uint64_t word = first / 64 < allowed.size() ? allowed[first / 64] : 0;
    if (word == ~std::uint64_t{0}) continue;
    for (std::size_t i = first; i < std::min(first + 64, tokens); ++i) {
      if ((word >> (i - first) & 1) == 0) logits_[i] = kImpossible;
    }
  }
  const bool may_end = constraint.may_end();
  for (const TokenId token : ends) {
    const auto i = static_cast<std::size_t>(token);
    logits_[i] = may_end ? static_cast<float>(weights_[i]) : kImpossible;
  }
}

// Presence and frequency are of the output alone. The counts are put back to 0 at the end.
void Sampler::penalize(const SamplingParams& params, const SamplingHistory& history) {
  const auto prompt_tokens = static_cast<std::size_t>(history.prompt_tokens);
  std::span<const TokenId> outputs = history.tokens.subspan(prompt_tokens);
  if (!history.output_counts.empty()) outputs = {};
  std::span<const TokenId> prompt = history.distinct_prompt;
  if (prompt.empty()) prompt = history.tokens.first(prompt_tokens);
  if (params.repetition_penalty == 1) prompt = {};
  const auto for_each = [&](auto visit) {
    for (const std::span<const TokenId> tokens : {prompt, outputs}) {
      for (const TokenId token : tokens) visit(token);
    }
    for (const TokenCount& counted : history.output_counts) visit(counted.token);
  };
  for_each([&](TokenId token) {
    STEMMA_CHECK(token >= 0 && static_cast<std::size_t>(token) < logits_.size(),
                 "a token of the history is in the vocabulary");
  });
  for (const TokenId token : outputs) ++counts_[static_cast<std::size_t>(token)];
  for (const auto [token, count] : history.output_counts) {
    counts_[static_cast<std::size_t>(token)] = count;
  }
  for_each([&](TokenId token) { penalize_once(params, token); });
  for_each([&](TokenId token) {
    counts_[static_cast<std::size_t>(token)] = 0;
    seen_[static_cast<std::size_t>(token)] = 0;
  });
}

// Where it is met first.
void Sampler::penalize_once(const SamplingParams& params, TokenId token) {
  const auto i = static_cast<std::size_t>(token);
  if (std::exchange(seen_[i], std::uint8_t{1}) != 0) return;
  float& logit = logits_[i];
  logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
  if (counts_[i] == 0) return;
  logit -= params.presence_penalty + params.frequency_penalty * static_cast<float>(counts_[i]);
}

void Sampler::weigh(std::span<const float> logits, TokenId top, float temperature) {
  exp_of_scaled(logits, logits[static_cast<std::size_t>(top)], temperature, weights_);
}

// The weights that count, a run of tokens at a time, in chains that take turns.
double Sampler::sum_runs(double min_weight) {
  double total = 0;
  for (std::size_t run = 0; run < run_sums_.size(); ++run) {
    constexpr std::size_t kChains = 8;
    double chains[kChains] = {};
    const std::size_t begin = run * kRunTokens;
    const std::size_t end = std::min(begin + kRunTokens, weights_.size());
    std::size_t i = begin;
    for (; i + kChains <= end; i += kChains) {
      for (std::size_t chain = 0; chain < kChains; ++chain) {
        const double weight = weights_[i + chain];
        chains[chain] += weight >= min_weight ? weight : 0.0;
      }
    }
    for (; i < end; ++i) chains[0] += weights_[i] >= min_weight ? weights_[i] : 0.0;
    run_sums_[run] = std::accumulate(chains, chains + kChains, 0.0);
    total += run_sums_[run];
  }
  return total;
}

// Inverse of the distribution function over the tokens in the order of their ids: the run first,
// then the token. What rounding leaves over is the last token's that counts.
TokenId Sampler::draw_unordered(double min_weight, double unit) {
  const double target = unit * sum_runs(min_weight);
  std::size_t chosen = 0;
  double before = 0;
  double reached = 0;
  for (std::size_t run = 0; run < run_sums_.size() && reached <= target; ++run) {
    if (run_sums_[run] == 0) continue;
    chosen = run;
    before = reached;
    reached += run_sums_[run];
  }
  std::size_t last = chosen * kRunTokens;
  const std::size_t end = std::min(last + kRunTokens, weights_.size());
  for (std::size_t i = last; i < end && before <= target; ++i) {
    if (weights_[i] == 0 || weights_[i] < min_weight) continue;
    before += weights_[i];
    last = i;
  }
  return static_cast<TokenId>(last);
}

// Inverse of the distribution function over the kept tokens, most likely first; top_p is of what
// top_k left.
TokenId Sampler::draw_of_few(const TokenChoice& choice) {
  const std::span<TokenId> ranked = gather_top_k(choice.top_k);
  std::sort(ranked.begin(), ranked.end(), MoreLikely{weights_});
  const auto weight_at = [&](std::size_t rank) { return weight_of(ranked[rank]); };
  double total = 0;
  for (std::size_t i = 0; i < ranked.size(); ++i) total += weight_at(i);
  double kept_weight = 0;
  std::size_t kept = 0;
  while (kept < ranked.size() && weight_at(kept) >= choice.min_p && weight_at(kept) > 0) {
    if (choice.top_p < 1 && kept_weight >= choice.top_p * total) break;
    kept_weight += weight_at(kept);
    ++kept;
  }
  STEMMA_CHECK_GE(kept, std::size_t{1});  // the most likely token has weight 1
  return first_beyond(choice.unit * kept_weight, 0, ranked.first(kept));
}

// The same where many tokens are left, as top_p leaves of a flat row: bins of weights tell in which
// one it is reached and which one the draw falls into, and these two alone are ranked.
TokenId Sampler::draw_of_many(const TokenChoice& choice) {
  const Candidates candidates =
      choice.top_k == 0 ? gather_for_top_p(choice) : gather_for_top_k(choice);
  std::fill(bin_sums_.begin(), bin_sums_.end(), 0.0);
  for (const TokenId token : candidates.tokens) bin_sums_[bin_at(token)] += weight_of(token);
  std::size_t last = 0;  // bin that is left, in part
  double before_last = 0;
  double reached = 0;
  for (std::size_t bin = 0; bin < kBins && reached < candidates.wanted; ++bin) {
    if (bin_sums_[bin] == 0) continue;
    last = bin;
    before_last = reached;
    reached += bin_sums_[bin];
  }
  const std::span<TokenId> ranked = rank_bin(last, candidates.tokens);
  std::size_t kept = 0;
  double kept_weight = before_last;
  while (kept < ranked.size() && kept_weight < candidates.wanted) {
    kept_weight += weight_of(ranked[kept++]);
  }
  STEMMA_CHECK_GE(kept, std::size_t{1});  // the most likely token has weight 1
  const double target = choice.unit * kept_weight;
  double before = 0;
  std::size_t bin = 0;
  while (bin < last && before + bin_sums_[bin] <= target) before += bin_sums_[bin++];
  if (bin == last) return first_beyond(target, before, ranked.first(kept));
  return first_beyond(target, before, rank_bin(bin, candidates.tokens));
}

TokenId Sampler::first_beyond(double target, double reached,
                              std::span<const TokenId> ranked) const {
  for (const TokenId token : ranked) {
    reached += weight_of(token);
    if (reached > target) return token;
  }
  return ranked.back();
}

// A heap of the k most likely so far, the least likely of them in front.
std::span<TokenId> Sampler::gather_top_k(std::int64_t top_k) {
  const std::size_t size = std::min(candidates_.size(), static_cast<std::size_t>(top_k));
  const std::span<TokenId> heap(candidates_.data(), size);
  const MoreLikely more_likely{weights_};
  std::iota(heap.begin(), heap.end(), TokenId{0});
  std::make_heap(heap.begin(), heap.end(), more_likely);
  for (std::size_t i = size; i < weights_.size(); ++i) {
    const auto token = static_cast<TokenId>(i);
    if (!more_likely(token, heap.front())) continue;
    std::pop_heap(heap.begin(), heap.end(), more_likely);
    heap.back() = token;
    std::push_heap(heap.begin(), heap.end(), more_likely);
  }
  return heap;
}

// Tokens below `least` have together less than what top_p leaves out.
Sampler::Candidates Sampler::gather_for_top_p(const TokenChoice& choice) {
  const double total = sum_runs(0);
  const double rest = (1.0 - static_cast<double>(choice.top_p)) * total;
  const double least = rest / static_cast<double>(weights_.size());
  return {gather(std::max<double>(choice.min_p, least)), choice.top_p * total};
}

// What top_k leaves, and of that what min_p does. Of the bins that it leaves the last one alone is
// ranked.
Sampler::Candidates Sampler::gather_for_top_k(const TokenChoice& choice) {
  std::span<TokenId> tokens = gather(std::numeric_limits<double>::denorm_min());
  if (std::ssize(tokens) > choice.top_k) {
    std::fill(bin_sums_.begin(), bin_sums_.end(), 0.0);
    for (const TokenId token : tokens) bin_sums_[bin_at(token)] += 1;
    const auto left = static_cast<double>(choice.top_k);
    std::size_t last = 0;
    for (double before = bin_sums_[0]; before < left; before += bin_sums_[++last]) {
    }
    const auto rest = std::partition(tokens.begin(), tokens.end(),
                                     [&](TokenId token) { return bin_at(token) < last; });
    rank_bin(last, {rest, tokens.end()});
    tokens = tokens.first(static_cast<std::size_t>(choice.top_k));
  }
  double total = 0;
  for (const TokenId token : tokens) total += weight_of(token);
  const auto end = std::partition(tokens.begin(), tokens.end(),
                                  [&](TokenId token) { return weight_of(token) >= choice.min_p; });
  const double all = std::numeric_limits<double>::infinity();
  return {{tokens.begin(), end}, choice.top_p < 1 ? choice.top_p * total : all};
}

// Without a branch for each token: of a flat row nobody could tell which way it goes.
std::span<TokenId> Sampler::gather(double min_weight) {
  std::size_t size = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    candidates_[size] = static_cast<TokenId>(i);
    size += static_cast<std::size_t>(weights_[i] >= min_weight);
  }
  return {candidates_.data(), size};
}

std::size_t Sampler::bin_at(TokenId token) const {
  return bin_of(weight_of(token));
}

std::span<TokenId> Sampler::rank_bin(std::size_t bin, std::span<TokenId> candidates) const {
  const auto end = std::partition(candidates.begin(), candidates.end(),
                                  [&](TokenId token) { return bin_at(token) == bin; });
  std::sort(candidates.begin(), end, MoreLikely{weights_});
  return {candidates.begin(), end};
}

}  // namespace stemma
