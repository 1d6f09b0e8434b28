// Receipt: what the cache did for one answer: where each token of its prompt came from, and what
// that saved.
//
// Thread:     pure functions.
// Memory:     the text they return.
// Cost:       none to speak of.
// Not here:   counting (Engine), usage in OpenAI's shape (openai/completion_answer).
#pragma once

#include <cstdint>
#include <string>

#include "openai/completion_request.h"
#include "stemma/engine.h"

namespace stemma {

// The costs of several prompts, added up: what one response reports. Times are the longest of them.
RequestStats sum_of(const RequestStats& a, const RequestStats& b);

// {"prompt_tokens", "tokens": {"device", "host", "disk", "remote", "computed"}, ...}.
TemplateJson receipt_json(const RequestStats& stats);

// The same for a header: "device=512; host=0; disk=0; remote=0; computed=37".
std::string receipt_header(const RequestStats& stats);

}  // namespace stemma
