// TokenizerFlags: what a tokenizer_config.json says of the tokens at the begin and the end of a
// text: "add_bos_token" and "add_eos_token".
//
// Hugging Face's transformers read them in different ways. Up to 4.x the classes of Llama's and
// Gemma's tokenizers put these tokens there themselves, whatever the post-processor in
// tokenizer.json does, and without the flags the first of them; other classes, such as Qwen's or
// PreTrainedTokenizerFast, take the post-processor as it is. 5.x reads no flag beside a
// tokenizer.json and writes none: every class takes the post-processor. Here a flag counts that is
// there, of the classes for which it was written; where none is, the post-processor does, and a
// text that would begin with a token in 4.x alone is told in the log.
//
// Thread:     values and a pure function.
// Memory:     two short texts.
// Cost:       a few look-ups at start-up.
// Not here:   chat templates and what their texts begin with (template/), the post-processor
//             (tokenizer_template).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/tokenizer_json.h"
#include "stemma/result.h"

namespace stemma {

// The token on one side of a text.
struct TokenizerFlag {
  std::string_view name;  // the flag's, for error messages
  // nullopt: the post-processor says; empty: none; else the token as the vocabulary writes it.
  std::optional<std::string> token;
};

struct TokenizerFlags {
  TokenizerFlag begin = {"add_bos_token", {}};
  TokenizerFlag end = {"add_eos_token", {}};
  bool obeyed = false;  // by the class
};

// Reads the fields of a TokenizerConfig. Errors are one line: the file, the field, what is wrong
// with it. REQUIRES: `config` is an object.
Result<TokenizerFlags> read_tokenizer_flags(const JsonField& config);

}  // namespace stemma
