#include "model/token_logprobs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "device/row_ops.h"

namespace stemma {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

float number_of(float logit) {
  return std::isnan(logit) ? kImpossible : logit;
}

// Of equal ones the lower id comes first.
std::int32_t rank_of(std::span<const float> logits, TokenId token) {
  const auto id = static_cast<std::size_t>(token);
  const float own = number_of(logits[id]);
  const bool is_possible = own > kImpossible;  // no NaN is as likely then
  std::int32_t rank = 1;
  for (const float logit : logits) rank += logit > own ? 1 : 0;
  for (const float logit : logits.first(id)) {
    rank += (is_possible ? logit : number_of(logit)) == own ? 1 : 0;
  }
  return rank;
}

// Of e to the power of what each logit is below the highest, a run at a time, in chains that take
// turns: the order depends on nothing but the place in the row.
double sum_of_weights(std::span<const float> logits, float highest) {
  constexpr std::size_t kRunTokens = 512;
  constexpr std::size_t kChains = 8;
  std::array<double, kRunTokens> weights;
  std::array<double, kChains> chains = {};
  for (; !logits.empty(); logits = logits.subspan(std::min(kRunTokens, logits.size()))) {
    const std::span<const float> run = logits.first(std::min(kRunTokens, logits.size()));
    exp_of_scaled(run, highest, 1.0, std::span(weights).first(run.size()));
    std::size_t i = 0;
    for (; i + kChains <= run.size(); i += kChains) {
      for (std::size_t chain = 0; chain < kChains; ++chain) chains[chain] += weights[i + chain];
    }
    for (; i < run.size(); ++i) chains[0] += weights[i];
  }
  return std::accumulate(chains.begin(), chains.end(), 0.0);
}

// The best places of `top` by logit, ties to the lower id.
void find_best(std::span<const float> logits, std::span<TokenLogprob> top) {
  std::size_t ranked = 0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (ranked == top.size() && (top.empty() || !(logits[id] > top.back().logprob))) continue;
    const float logit = number_of(logits[id]);
    std::size_t place = ranked < top.size() ? ranked++ : top.size() - 1;
    for (; place > 0 && top[place - 1].logprob < logit; --place) top[place] = top[place - 1];
    top[place] = {static_cast<TokenId>(id), logit};
  }
  for (std::size_t place = 0; place < ranked; ++place) {
    top[place].rank = static_cast<std::int32_t>(place) + 1;
  }
}

}  // namespace

void token_logprobs(std::span<const float> logits, TokenId token, std::span<TokenLogprob> out) {
  STEMMA_CHECK(!out.empty() && out.size() <= logits.size() + 1, "a place for each");
  STEMMA_CHECK(token >= 0 && static_cast<std::size_t>(token) < logits.size(), "in the vocabulary");
  const float highest = number_of(logits[static_cast<std::size_t>(argmax(logits))]);
  const double sum = sum_of_weights(logits, highest);
  out[0] = {token, number_of(logits[static_cast<std::size_t>(token)]), rank_of(logits, token)};
  find_best(logits, out.subspan(1));
  // The difference first: it is exact where logits are large.
  for (TokenLogprob& entry : out) {
    const double below = static_cast<double>(entry.logprob) - static_cast<double>(highest);
    entry.logprob = static_cast<float>(below - std::log(sum));
  }
}

}  // namespace stemma
