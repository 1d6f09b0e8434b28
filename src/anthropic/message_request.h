// Message requests: what a client asks of /v1/messages, as the chat that it comes to.
//
// Parts of messages (blocks, as the interface calls them) of text, of thoughts, calls of tools and
// what came of them are read; images, documents and what Anthropic's own servers run are refused.
// `cache_control` is not needed, as all is cached: "ttl": "1h" is read as prompt_cache_retention.
// Fields that chats have under the same name (temperature, top_k, cache_salt, ...) are read as
// those of the chat.
//
// Some agents begin their instructions with a line for Anthropic's bills, which is another one in
// every request: it says nothing to a model, and nothing behind it would ever be found in a cache.
// It is left out.
//
// Thread:     pure functions.
// Memory:     the request's texts.
// Cost:       O(JSON).
// Not here:   what a chat may say (openai/completion_request), answers (message_answer).
#pragma once

#include <cstdint>
#include <string_view>

#include "openai/api_error.h"
#include "openai/completion_request.h"

namespace stemma {

// What is asked: an answer, which is told by MessageAnswer, or how many tokens the prompt has.
enum class MessageUse : std::uint8_t { kAnswer, kCount };

// Reads a request's body. What comes out is a chat of one answer; of one that is counted only its
// text matters.
ApiResult<CompletionRequest> read_message_request(std::string_view body, const RequestRules& rules,
                                                  MessageUse use = MessageUse::kAnswer);

}  // namespace stemma
