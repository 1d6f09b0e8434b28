// TokenizerFlags: what a tokenizer_config.json says of the tokens at the begin and the end of a
// text: "add_bos_token" and "add_eos_token".
//
// Hugging Face's transformers put these tokens there themselves for the classes of Llama's and
// Gemma's tokenizers, whatever the post-processor in tokenizer.json does. Other classes, such as
// Qwen's or PreTrainedTokenizerFast, take the post-processor as it is, and so does Stemma.
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
};

// Reads the fields of a TokenizerConfig. Errors are one line: the file, the field, what is wrong
// with it. REQUIRES: `config` is an object.
Result<TokenizerFlags> read_tokenizer_flags(const JsonField& config);

}  // namespace stemma
