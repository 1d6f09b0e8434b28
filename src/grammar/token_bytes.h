// TokenBytes: what each token of a tokenizer writes into a text, as bytes.
//
// A token may write part of a character alone, which no text shows: Tokenizer::decode has the bytes
// of several together.
//
// Thread:     pure functions.
// Memory:     the bytes.
// Cost:       O(bytes of the token).
// Not here:   what is held back of a text that is not certain yet (model/detokenizer).
#pragma once

#include <string>
#include <vector>

#include "model/tokenizer.h"
#include "stemma/ids.h"

namespace stemma {

// Of a token behind others; empty for special ones, which are no text, and ids that no token has.
std::string token_bytes(const Tokenizer& tokenizer, TokenId token);

// Of all ids below `tokens`.
std::vector<std::string> bytes_of_tokens(const Tokenizer& tokenizer, std::int64_t tokens);

}  // namespace stemma
