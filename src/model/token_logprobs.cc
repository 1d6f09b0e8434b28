#include "model/token_logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace stemma {
namespace {

float number_of(float logit) {
  return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit;
}

std::int32_t rank_of(std::span<const float> logits, TokenId token) {
  const auto id = static_cast<std::size_t>(token);
  const float own = number_of(logits[id]);
  std::int32_t rank = 1;
  for (std::size_t other = 0; other < logits.size(); ++other) {
    const float logit = number_of(logits[other]);
    rank += logit > own || (logit == own && other < id) ? 1 : 0;
  }
  return rank;
}

// The best places of `top` by logit, ties to the lower id.
void find_best(std::span<const float> logits, std::span<TokenLogprob> top) {
  std::size_t ranked = 0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const float logit = number_of(logits[id]);
    if (ranked == top.size() && (top.empty() || logit <= top.back().logprob)) continue;
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
  float highest = -std::numeric_limits<float>::infinity();
  for (const float logit : logits) highest = std::max(highest, number_of(logit));
  double sum = 0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(number_of(logit)) - static_cast<double>(highest));
  }
  out[0] = {token, number_of(logits[static_cast<std::size_t>(token)]), rank_of(logits, token)};
  find_best(logits, out.subspan(1));
  // The difference first: it is exact where logits are large.
  for (TokenLogprob& entry : out) {
    const double below = static_cast<double>(entry.logprob) - static_cast<double>(highest);
    entry.logprob = static_cast<float>(below - std::log(sum));
  }
}

}  // namespace stemma
