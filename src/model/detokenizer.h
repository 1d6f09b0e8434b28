// Detokenizer: the text of tokens as they come, one at a time, for streams.
//
// The pieces that push() and flush() return, joined, are exactly what Tokenizer::decode gives for
// all the tokens.
//
// Thread:     one thread a Detokenizer.
// Memory:     what is held back: an unfinished character, and what the decoder of the model cannot
//             settle yet.
// Cost:       O(bytes of the token) a push.
// Not here:   stop strings (the caller compares the text).
#pragma once

#include <string>

#include "model/tokenizer.h"
#include "model/tokenizer_decoder.h"
#include "stemma/ids.h"

namespace stemma {

class Detokenizer {
 public:
  // Refers to `tokenizer`, which must outlive it; the Tokenizer object itself must not be moved
  // meanwhile.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens);

  // The text goes on behind other tokens: its first one keeps the space that decoders take off the
  // begin of a text. REQUIRES: no token was pushed.
  void begin_behind_others();

  // The text that is certain now and was not before: possibly empty, never part of a character.
  std::string push(TokenId token);

  // The rest, with U+FFFD for a character that stayed unfinished. The next push begins a new text.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  DecodeStream stream_;
  bool skip_special_tokens_;
};

// The text of a token that is not the first of its text, special ones too: with the space in front
// that decoders take off the begin of a text.
std::string text_behind_others(const Tokenizer& tokenizer, TokenId token);

}  // namespace stemma
