// /tokenize, /detokenize and /v1/messages/count_tokens: texts and tokens into each other, as this
// server's prompts are.
//
// Thread:     pure functions.
// Memory:     the texts.
// Cost:       that of tokenising.
// Not here:   HTTP (api_service).
#pragma once

#include <string_view>

#include "openai/api_error.h"
#include "server/preparation.h"

namespace stemma {

// {"prompt" | "messages", "add_special_tokens"?, "return_token_strs"?} ->
// {"count", "max_model_len", "tokens", "token_strs" if asked for: as tokenizer.json writes them}.
ApiResult<TemplateJson> tokenize_body(std::string_view body, const Preparation& preparation);

// A request of /v1/messages/count_tokens -> {"input_tokens"}.
ApiResult<TemplateJson> count_tokens_body(std::string_view body, const Preparation& preparation);

// {"tokens"} -> {"prompt"}.
ApiResult<TemplateJson> detokenize_body(std::string_view body, const Preparation& preparation);

}  // namespace stemma
