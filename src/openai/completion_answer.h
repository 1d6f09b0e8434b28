// Completion answers: the bodies and stream events that clients read, in OpenAI's shape.
//
// Thread:     pure functions.
// Memory:     the text they return.
// Cost:       O(text).
// Not here:   where texts come from (engine/text_generation), HTTP (http/).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/stop_strings.h"
#include "openai/api_error.h"
#include "openai/completion_request.h"
#include "openai/tool_calls.h"

namespace stemma {

// What every piece of one answer repeats.
struct AnswerHead {
  CompletionKind kind = CompletionKind::kChat;
  std::string id;
  std::string model;
  std::int64_t created_s = 0;   // seconds since 1970
  bool short_call_ids = false;  // see short_call_id
  bool gives_tokens = false;    // token_ids beside the text, and prompt_token_ids
  bool scores_prompt = false;   // prompt_logprobs beside it
  bool counts_usage = false;    // a stream that ends with usage says in each event that it has none
};

// A token as people read it, and its logprob.
struct NamedLogprob {
  std::string text;
  float logprob = 0;
  TokenId token = -1;
  std::int32_t rank = 0;
  std::string bytes = {};  // where the text does not say them: of a part of a character
};

// A token of a text and the likeliest ones in its place.
struct TokenChance {
  NamedLogprob token;
  std::vector<NamedLogprob> likeliest;
  std::int64_t first_character = 0;  // characters of the text's tokens before it
  bool is_given = false;             // of a prompt: nothing says how likely it was
  bool is_thought = false;           // of what came before the text
};

struct AnswerUsage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t cached_tokens = 0;  // of the prompt
  // Of the answer, where the model is one that thinks.
  std::optional<std::int64_t> thought_tokens = {};
};

// An answer, or a piece of one.
struct AnswerPiece {
  std::int64_t index = 0;  // which of the request's answers
  std::string text;
  std::string thoughts = {};         // that came before it
  std::vector<TokenChance> chances;  // of its tokens, where logprobs are wanted
  std::vector<TokenId> tokens;       // of the answer, where they are wanted
  // Of the whole prompt, where AnswerHead::scores_prompt and where AnswerHead::gives_tokens: of a
  // chat by its first answer; in a stream of a completion by the first piece of each.
  std::vector<TokenChance> of_prompt = {};
  std::vector<TokenId> prompt_tokens = {};
  std::vector<ToolCall> calls = {};              // of tools, by a chat
  std::vector<std::size_t> call_places = {};     // of each, the bytes of the text before it
  std::int64_t first_call = 0;                   // of the answer, how many came before these
  std::optional<AnswerUsage> usage_so_far = {};  // of the answer, where each piece is to say it
  std::string_view finish_reason;  // "stop", "tool_calls", "length", "abort"; empty: goes on
  StopReason stop_reason = {};     // what stopped it, where the request named it
};

// The whole answer. `has_logprobs`: whether they were asked for. `receipt`: null for none.
// REQUIRES: there are answers.
std::string answer_body(const AnswerHead& head, std::span<const AnswerPiece> answers,
                        bool has_logprobs, const AnswerUsage& usage, const TemplateJson& receipt);

// JSON as clients get it: on one line, bytes that are no UTF-8 replaced.
std::string json_text(const TemplateJson& json);
// An object of JSON, and the members of another one behind its own: texts, whatever repeats and
// nests in them.
std::string with_members(std::string object, std::string_view others);
// Whether a text is JSON as it stands, whatever repeats and nests in it: what calls pass on is not
// read here. A byte 0 behind it, and a mark of byte order before it, are none of JSON.
bool is_json(std::string_view text);

// Of a call, in the form that the model's template takes.
std::string told_call_id(const AnswerHead& head, std::string id);

// Tokens and the likeliest ones in their place, as chats tell them: of all that they tell, thoughts
// and calls too.
TemplateJson chances_json(std::span<const TokenChance> chances);

// Server-sent events (the HTML standard's event streams): "data: JSON\n\n".
std::string event_of(std::string json);
// The same with a name before it: "event: NAME\n".
std::string named_event_of(std::string_view name, std::string json);

// What a stream of OpenAI's begins each answer of a chat with: its role. Empty for a completion.
// `usage_so_far`: as AnswerPiece's. `prompt_tokens`: where they are to be told, else none.
std::string first_event(const AnswerHead& head, std::int64_t index,
                        const std::optional<AnswerUsage>& usage_so_far = std::nullopt,
                        const std::vector<TokenId>& prompt_tokens = {});
// A piece of an answer.
std::string piece_event(const AnswerHead& head, const AnswerPiece& piece, bool has_logprobs);
// What all cost, in an event without answers; `usage_or_null` and `receipt` may be absent.
std::string usage_event(const AnswerHead& head, const AnswerUsage* usage_or_null,
                        const TemplateJson& receipt);
std::string error_event(const ApiError& error);
// After the last event.
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

}  // namespace stemma
