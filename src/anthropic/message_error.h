// Message errors: what a client of /v1/messages is told when its request is not answered, in
// Anthropic's shape.
//
// Thread:     pure functions.
// Memory:     the text they return.
// Cost:       O(text).
// Not here:   what is wrong (openai/api_error), answers (message_answer).
#pragma once

#include <string>

#include "openai/api_error.h"

namespace stemma {

// {"type": "error", "error": {"type", "message"}, "request_id"}; `request_id` may be empty: none.
std::string message_error_body(const ApiError& error, const std::string& request_id);

}  // namespace stemma
