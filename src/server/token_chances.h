// TokenChances: the tokens of one text, one after the other, and the likeliest ones in their place,
// as people read them.
//
// Behind other tokens one is written with the space that decoders take off the begin of a text: so
// the tokens of a text, joined, are that text, but for characters that several make together: each
// of these tokens begins where the character does.
//
// Thread:     one thread a text.
// Memory:     what is held back of the text (model/detokenizer).
// Cost:       the text of a token, for each entry.
// Not here:   the logprobs (model/token_logprobs), JSON (openai/completion_answer).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "model/detokenizer.h"
#include "model/tokenizer.h"
#include "openai/completion_answer.h"
#include "stemma/ids.h"
#include "stemma/sampling.h"

namespace stemma {

class TokenChances {
 public:
  struct Rules {
    bool goes_on = false;              // from another text
    bool skip_special_tokens = false;  // they are no text
    // Which tokens are the text, counted from the first one: others were put around it.
    std::int64_t begin = 0;
    std::int64_t end = std::numeric_limits<std::int64_t>::max();
  };

  // `tokenizer` must outlive this.
  TokenChances(const Tokenizer& tokenizer, const Rules& rules);

  const Rules& rules() const noexcept { return rules_; }

  // The next token, of which nobody said how likely it was.
  TokenChance given(TokenId token);
  // The next token, of which nobody is to read anything yet.
  void skip(TokenId token);
  // The next token: its own entry, then the likeliest. REQUIRES: there is one.
  TokenChance next(std::span<const TokenLogprob> entries);

 private:
  NamedLogprob named(const TokenLogprob& entry) const;
  bool is_text(TokenId token) const;

  const Tokenizer* tokenizer_;
  Rules rules_;
  Detokenizer text_;
  bool begun_;                   // a token that is text came before
  std::int64_t tokens_ = 0;      // so far
  std::int64_t characters_ = 0;  // of the text that is certain after the tokens so far
};

// The first tokens of a prompt, of which nobody will say how likely they are. There may be a
// million, and an entry is thirty times as long as a number: they are made when they are written.
struct GivenTokens {
  const Tokenizer* tokenizer;  // outlives this
  TokenChances::Rules rules;
  std::vector<TokenId> tokens;

  std::vector<TokenChance> read() const;
  // What reads the prompt's other tokens when they are told.
  TokenChances behind() const;
};

}  // namespace stemma
