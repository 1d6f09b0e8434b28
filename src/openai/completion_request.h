// CompletionRequest: what a client asks of /v1/chat/completions or /v1/completions, read from JSON
// and checked field by field: whatever comes out of here is in range.
//
// Thread:     pure functions and values.
// Memory:     the request's texts.
// Cost:       O(JSON).
// Not here:   what depends on tokens (context, vocabulary of prompts: server/), answers
//             (completion_answer).
//
// Fields: those of OpenAI's interface, and of vLLM and SGLang where clients send them. Unknown
// fields are ignored; known ones that would change the answer and are not supported are refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "openai/api_error.h"
#include "openai/message_form.h"
#include "openai/output_form.h"
#include "stemma/ids.h"
#include "stemma/prefix_cache.h"
#include "stemma/sampling.h"
#include "template/chat_template.h"

namespace stemma {

class FieldReader;

// What requests are read against.
struct RequestRules {
  std::int64_t vocab_tokens = 0;
  std::int64_t copies_max = 128;        // n times the number of prompts
  SamplingParams defaults;              // of what a request does not say
  MessageForm message_form;             // that the model's chat template prints
  MessageForm message_form_with_tools;  // that the one for chats with tools prints
  std::size_t body_bytes_max = std::size_t{16} << 20;
};

enum class CompletionKind : std::uint8_t { kChat, kText };

// As what an answer is told: in OpenAI's words for completions or for responses, or in Anthropic's
// for messages. The last two are chats of one answer, told in the order in which it came.
enum class AnswerShape : std::uint8_t { kCompletion, kResponse, kMessage };

// Those that say in which forms these templates print messages, that of chats without tools and
// with; nullptr: there is none. Each is tried once.
RequestRules rules_of_templates(const ChatTemplate* plain_or_null,
                                const ChatTemplate* with_tools_or_null);

// A prompt as text or as tokens.
using PromptText = std::variant<std::string, std::vector<TokenId>>;

// Who may share pages with this request, beside its tenant.
struct CacheFields {
  std::string salt;       // cache_salt; empty: none
  std::string extra_key;  // extra_key; empty: none
  std::string affinity;   // prompt_cache_key: for routers, never isolation
  Retention retention = Retention::kDefault;
};

struct CompletionRequest {
  CompletionKind kind = CompletionKind::kChat;
  std::string model;  // empty: the one there is

  // Of a chat: its messages as templates read them (contents are texts), and what else they print.
  TemplateJson messages;
  TemplateJson tools;             // null: none, or none may be called
  TemplateJson tools_in_prompt;   // where they print otherwise: integers beyond 64 bits; else null
  bool calls_in_parallel = true;  // parallel_tool_calls: an answer may call more than one
  ToolChoice tool_choice;         // not forced where there are no tools
  TemplateJson template_extra;
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the answer goes on from the last message's text
  // Of a completion.
  std::vector<PromptText> prompts;
  bool add_special_tokens = true;  // those that the tokenizer puts around a text
  bool echo = false;

  std::int64_t copies = 1;  // n
  // Absent: 16 for a completion; for a chat the model's max_new_tokens, or all there is. 0: the
  // prompt alone is wanted (echo).
  std::optional<std::int64_t> max_tokens;
  bool max_tokens_give_way = false;  // where the context has no room for so many
  std::int64_t min_tokens = 0;       // before which nothing but max_tokens ends an answer
  // truncate_prompt_tokens: so many of the prompt's last tokens; kPromptThatFits: as many as leave
  // room for max_tokens. Absent: all.
  std::optional<std::int64_t> prompt_tokens_kept;
  static constexpr std::int64_t kPromptThatFits = -1;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_tokens;
  bool shows_stop = false;  // include_stop_str_in_output, no_stop_trim
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  // separate_reasoning: thoughts are taken out of the text; include_reasoning: and told.
  bool separates_thoughts = true;
  bool tells_thoughts = true;
  std::optional<std::int64_t> thought_tokens_max;  // thinking_token_budget
  TextForm form;  // of a text; an answer that may call tools may do that instead
  SamplingParams sampling;
  std::optional<std::int64_t> logprobs;
  std::optional<std::int64_t> prompt_logprobs;  // so many beside those of the prompt's tokens
  std::int64_t logprobs_from = 1;  // logprob_start_len: of the prompt, which have them, from 1 on
  bool stream = false;
  bool include_usage = false;
  bool usage_so_far = false;  // stream_options.continuous_usage_stats
  std::int32_t priority = 0;
  CacheFields cache;
  bool wants_tokens = false;   // return_token_ids: the answer as tokens too
  bool wants_receipt = false;  // in the body; the header has it anyway
  AnswerShape shape = AnswerShape::kCompletion;
  std::string response;  // of a response: what it repeats of its request
};

// Reads a request's body.
ApiResult<CompletionRequest> read_completion_request(CompletionKind kind, std::string_view body,
                                                     const RequestRules& rules);

// The same of a body that read_json_body gave.
ApiResult<CompletionRequest> completion_request_of(CompletionKind kind, const TemplateJson& body,
                                                   const RequestRules& rules);

// A body of JSON that is an object, strictly parsed, or the fault to tell. In its `tools` and
// `messages` integers beyond 64 bits are kept (JsonLimits::keeps_wide_integers). Its objects have
// 512 fields at most, but for `logit_bias`, which may have `biases_max` where that is more.
ApiResult<TemplateJson> read_json_body(std::string_view body, std::size_t bytes_max,
                                       std::int64_t biases_max = 0);

// Only tools and messages, which templates print, keep integers beyond 64 bits: what is read of the
// others are doubles. REQUIRES: body is an object.
void narrow_what_is_read(TemplateJson& body);

// The fields of a chat that say what its text is: messages, tools, what templates are told, and
// how it ends.
void read_chat_text(FieldReader& fields, const RequestRules& rules, std::optional<ApiError>& fault,
                    CompletionRequest& request);

// How the template is to write such a chat.
RenderOptions render_options_of(const CompletionRequest& request);

// The messages of a chat, checked, as templates read them: contents as one text each, calls of
// tools in the form that the template prints. The fault is remembered in `fault`.
TemplateJson read_messages(const TemplateJson& messages, const MessageForm& form,
                           std::optional<ApiError>& fault);

// An array of tokens, each below vocab_tokens; `path` is where it lies in the request.
std::vector<TokenId> read_tokens(const TemplateJson& list, const std::string& path,
                                 std::int64_t vocab_tokens, std::optional<ApiError>& fault);

// "prompt": a text, an array of texts, an array of tokens or an array of arrays of tokens.
std::vector<PromptText> read_prompts(const TemplateJson& prompt, std::int64_t vocab_tokens,
                                     std::optional<ApiError>& fault);

}  // namespace stemma
