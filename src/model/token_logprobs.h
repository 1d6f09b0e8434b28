// Token logprobs: how likely the model held a token, and which ones it held likeliest.
//
// Thread:     pure functions.
// Memory:     the caller's.
// Cost:       a few passes over the vocabulary; one exponential a token.
// Not here:   what sampling makes of the logits (sampler). Invariants: I13: sums run in an order
//             that the size of the vocabulary alone decides.
#pragma once

#include <span>

#include "stemma/ids.h"
#include "stemma/sampling.h"

namespace stemma {

// Fills `out` with the logprob of `token`, then with those of the likeliest tokens, best first,
// ties to the lower id. Logits that are no number count as minus infinity.
// REQUIRES: out is not empty and has at most logits.size() + 1 places; token is in the vocabulary.
void token_logprobs(std::span<const float> logits, TokenId token, std::span<TokenLogprob> out);

}  // namespace stemma
