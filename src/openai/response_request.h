// Response requests: what a client asks of /v1/responses, as the chat that it comes to.
//
// Nothing is stored between requests: who goes on sends the whole conversation, which the cache
// knows, and `previous_response_id` is refused.
//
// Thread:     pure functions.
// Memory:     the request's texts.
// Cost:       O(JSON).
// Not here:   what a chat may say (completion_request), answers (response_answer).
#pragma once

#include <string_view>

#include "openai/api_error.h"
#include "openai/completion_request.h"

namespace stemma {

// Reads a request's body. What comes out is a chat, whose CompletionRequest::response is an object
// of JSON.
ApiResult<CompletionRequest> read_response_request(std::string_view body,
                                                   const RequestRules& rules);

}  // namespace stemma
