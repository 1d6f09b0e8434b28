// ThoughtBudget: keeps what an answer thinks before it answers to so many tokens. Where there are
// as many, the mark that ends thoughts is all that may come next, and behind it the answer goes on.
//
// The mark is written in the fewest tokens that there are for it, as models learn it. A character
// that is begun is finished first: three tokens more at most.
//
// Thread:     pure functions; a constraint as others.
// Memory:     of an answer without a form a bit for each token of the vocabulary.
// Cost:       O(bytes of the token); of an answer without a form all logits are looked at.
// Not here:   what of an answer is thoughts (openai/thoughts), forms behind them (output_grammar).
//             The bits follow from the output alone (I13).
#pragma once

#include <cstdint>

#include "model/tokenizer.h"
#include "openai/thoughts.h"
#include "stemma/sampling.h"

namespace stemma {

struct ThoughtBudget {
  std::int64_t tokens = 0;  // behind the mark that begins thoughts
  ThoughtPlace place = ThoughtPlace::kBehind;
  ThoughtMarks marks = {};
};

// A constraint to `constraint`, which may be none, and to the budget. `constraint` itself where
// there can be no thoughts, or no tokens of which their end could be written. `tokenizer` must
// outlive it; the model has so many logits.
OwnedConstraint with_thought_budget(OwnedConstraint constraint, const ThoughtBudget& budget,
                                    const Tokenizer& tokenizer, std::int64_t vocab_tokens);

}  // namespace stemma
