#include "openai/completion_answer.h"

#include <cmath>
#include <utility>

#include "openai/call_ids.h"

namespace stemma {
namespace {

using Json = TemplateJson;

// Ends of lines by Unicode that JSON lets stand, as it has them where they are escaped. Clients
// whose language ends a line there too would take an event apart.
constexpr std::pair<std::string_view, std::string_view> kLineEnds[] = {
    {"\xC2\x85", "\\u0085"}, {"\xE2\x80\xA8", "\\u2028"}, {"\xE2\x80\xA9", "\\u2029"}};

// In the time of the text, however often `what` is in it: a client may have sent it so.
std::string replaced(std::string text, std::string_view what, std::string_view with) {
  std::size_t at = text.find(what);
  if (at == std::string::npos) return text;
  std::string out;
  std::size_t told = 0;
  for (; at != std::string::npos; at = text.find(what, told)) {
    out.append(text, told, at - told).append(with);
    told = at + what.size();
  }
  return out.append(text, told);
}

// JSON has no infinity: a token that cannot come has a very small logprob, as OpenAI gives it.
double finite(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0;
}

Json bytes_of(const NamedLogprob& named) {
  Json bytes = Json::array();
  for (const char byte : named.bytes.empty() ? named.text : named.bytes) {
    bytes.push_back(static_cast<unsigned char>(byte));
  }
  return bytes;
}

Json named_json(const NamedLogprob& named) {
  Json json;
  json["token"] = named.text;
  json["logprob"] = finite(named.logprob);
  json["bytes"] = bytes_of(named);
  return json;
}

Json chat_logprobs(const AnswerPiece& piece) {
  Json json;
  json["content"] = chances_json(piece.chances);
  json["refusal"] = nullptr;
  return json;
}

Json text_logprobs(const AnswerPiece& piece) {
  Json json;
  for (const char* const name : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    json[name] = Json::array();
  }
  for (const TokenChance& chance : piece.chances) {
    json["tokens"].push_back(chance.token.text);
    json["text_offset"].push_back(chance.first_character);
    if (chance.is_given) {
      json["token_logprobs"].push_back(nullptr);
      json["top_logprobs"].push_back(nullptr);
      continue;
    }
    json["token_logprobs"].push_back(finite(chance.token.logprob));
    // The token itself is among them, however unlikely. Of tokens that read the same the likeliest
    // comes first, and stays.
    Json top = {{chance.token.text, finite(chance.token.logprob)}};
    for (const NamedLogprob& named : chance.likeliest) {
      top.emplace(named.text, finite(named.logprob));
    }
    json["top_logprobs"].push_back(std::move(top));
  }
  return json;
}

Json logprobs_json(const AnswerHead& head, const AnswerPiece& piece, bool wanted) {
  if (!wanted) return nullptr;
  return head.kind == CompletionKind::kChat ? chat_logprobs(piece) : text_logprobs(piece);
}

// As vLLM tells them: of each token by its number, itself first, then the likeliest.
Json prompt_logprobs(const AnswerPiece& piece) {
  const auto entry = [](const NamedLogprob& named) {
    Json json;
    json["logprob"] = finite(named.logprob);
    json["rank"] = named.rank;
    json["decoded_token"] = named.text;
    return json;
  };
  Json list = Json::array();
  for (const TokenChance& chance : piece.of_prompt) {
    if (chance.is_given) {
      list.push_back(nullptr);
      continue;
    }
    Json tokens;
    tokens[std::to_string(chance.token.token)] = entry(chance.token);
    for (const NamedLogprob& named : chance.likeliest) {
      tokens.emplace(std::to_string(named.token), entry(named));
    }
    list.push_back(std::move(tokens));
  }
  return list;
}

Json reason_json(std::string_view reason) {
  return reason.empty() ? Json() : Json(std::string(reason));
}

// As vLLM tells it.
Json stop_json(const StopReason& reason) {
  if (const auto* const text = std::get_if<std::string>(&reason)) return *text;
  if (const auto* const token = std::get_if<TokenId>(&reason)) return *token;
  return Json();
}

Json head_json(const AnswerHead& head, bool is_event) {
  std::string_view object = "text_completion";
  if (head.kind == CompletionKind::kChat) {
    object = is_event ? "chat.completion.chunk" : "chat.completion";
  }
  Json json;
  json["id"] = head.id;
  json["object"] = object;
  json["created"] = head.created_s;
  json["model"] = head.model;
  json["system_fingerprint"] = nullptr;
  json["choices"] = Json::array();
  if (is_event && head.counts_usage) json["usage"] = nullptr;
  return json;
}

Json usage_json(const AnswerUsage& usage) {
  Json json;
  json["prompt_tokens"] = usage.prompt_tokens;
  json["completion_tokens"] = usage.completion_tokens;
  json["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  json["prompt_tokens_details"]["cached_tokens"] = usage.cached_tokens;
  if (usage.thought_tokens.has_value()) {
    json["completion_tokens_details"]["reasoning_tokens"] = *usage.thought_tokens;
  }
  return json;
}

// Identifiers are the answer's own, so that no two of a conversation are the same, without the kind
// that the answer's begins with: OpenAI's servers refuse more than 40 bytes.
std::string call_id(const AnswerHead& head, std::int64_t index, std::int64_t number) {
  constexpr std::size_t kOwnBytes = 24;  // of an answer's identifier, behind its kind
  const std::size_t kind_bytes = head.id.size() - std::min(head.id.size(), kOwnBytes);
  const std::string id = "call_" + head.id.substr(kind_bytes) + "_" + std::to_string(index) + "_" +
                         std::to_string(number);
  return told_call_id(head, id);
}

Json calls_json(const AnswerHead& head, const AnswerPiece& piece, bool is_event) {
  Json calls = Json::array();
  for (std::size_t i = 0; i < piece.calls.size(); ++i) {
    const std::int64_t number = piece.first_call + static_cast<std::int64_t>(i);
    Json call;
    if (is_event) call["index"] = number;
    call["id"] = call_id(head, piece.index, number);
    call["type"] = "function";
    call["function"]["name"] = piece.calls[i].name;
    call["function"]["arguments"] = piece.calls[i].arguments;
    calls.push_back(std::move(call));
  }
  return calls;
}

Json message_json(const AnswerHead& head, const AnswerPiece& answer) {
  Json message;
  message["role"] = "assistant";
  message["content"] = answer.text;
  message["refusal"] = nullptr;
  const bool says_else = !answer.calls.empty() || !answer.thoughts.empty();
  if (answer.text.empty() && says_else) message["content"] = nullptr;
  if (!answer.thoughts.empty()) message["reasoning_content"] = answer.thoughts;
  if (answer.calls.empty()) return message;
  message["tool_calls"] = calls_json(head, answer, /*is_event=*/false);
  return message;
}

// As in vLLM: choices of a chat are all to one prompt, which is told of beside them, those of a
// completion each of their own.
void tell_prompt(const AnswerHead& head, const AnswerPiece& answer, Json& json) {
  if (head.scores_prompt) json["prompt_logprobs"] = prompt_logprobs(answer);
  if (head.gives_tokens) json["prompt_token_ids"] = answer.prompt_tokens;
}

Json whole_choice(const AnswerHead& head, const AnswerPiece& answer, bool has_logprobs) {
  Json choice;
  choice["index"] = answer.index;
  if (head.kind == CompletionKind::kChat) {
    choice["message"] = message_json(head, answer);
  } else {
    choice["text"] = answer.text;
  }
  choice["logprobs"] = logprobs_json(head, answer, has_logprobs);
  choice["finish_reason"] = reason_json(answer.finish_reason);
  choice["stop_reason"] = stop_json(answer.stop_reason);
  if (head.gives_tokens) choice["token_ids"] = answer.tokens;
  if (head.kind == CompletionKind::kText) tell_prompt(head, answer, choice);
  return choice;
}

}  // namespace

std::string json_text(const TemplateJson& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string with_members(std::string object, std::string_view others) {
  if (others == "{}") return object;
  object.back() = ',';
  return object.append(others.substr(1));
}

std::string told_call_id(const AnswerHead& head, std::string id) {
  return head.short_call_ids ? short_call_id(id) : std::move(id);
}

bool is_json(std::string_view text) {
  // Of which the parser takes one for the end of the text, and passes over the other.
  const bool is_exact = text.find('\0') == text.npos && !text.starts_with("\xEF\xBB\xBF");
  return is_exact && Json::accept(text.begin(), text.end());
}

TemplateJson chances_json(std::span<const TokenChance> chances) {
  Json list = Json::array();
  for (const TokenChance& chance : chances) {
    Json entry = named_json(chance.token);
    entry["top_logprobs"] = Json::array();
    for (const NamedLogprob& top : chance.likeliest) {
      entry["top_logprobs"].push_back(named_json(top));
    }
    list.push_back(std::move(entry));
  }
  return list;
}

std::string event_of(std::string json) {
  for (const auto& [end, escaped] : kLineEnds) json = replaced(std::move(json), end, escaped);
  return "data: " + json + "\n\n";
}

std::string named_event_of(std::string_view name, std::string json) {
  return std::string("event: ").append(name).append("\n").append(event_of(std::move(json)));
}

std::string answer_body(const AnswerHead& head, std::span<const AnswerPiece> answers,
                        bool has_logprobs, const AnswerUsage& usage, const TemplateJson& receipt) {
  Json json = head_json(head, /*is_event=*/false);
  for (const AnswerPiece& answer : answers) {
    json["choices"].push_back(whole_choice(head, answer, has_logprobs));
  }
  json["usage"] = usage_json(usage);
  if (head.kind == CompletionKind::kChat) tell_prompt(head, answers.front(), json);
  if (!receipt.is_null()) json["cache_receipt"] = receipt;
  return json_text(json);
}

std::string first_event(const AnswerHead& head, std::int64_t index,
                        const std::optional<AnswerUsage>& usage_so_far,
                        const std::vector<TokenId>& prompt_tokens) {
  if (head.kind != CompletionKind::kChat) return "";
  Json json = head_json(head, /*is_event=*/true);
  if (usage_so_far.has_value()) json["usage"] = usage_json(*usage_so_far);
  Json choice;
  choice["index"] = index;
  choice["delta"]["role"] = "assistant";
  choice["delta"]["content"] = "";
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = nullptr;
  json["choices"].push_back(std::move(choice));
  if (!prompt_tokens.empty()) json["prompt_token_ids"] = prompt_tokens;
  return event_of(json_text(json));
}

std::string piece_event(const AnswerHead& head, const AnswerPiece& piece, bool has_logprobs) {
  Json json = head_json(head, /*is_event=*/true);
  if (piece.usage_so_far.has_value()) json["usage"] = usage_json(*piece.usage_so_far);
  Json choice;
  choice["index"] = piece.index;
  if (head.kind == CompletionKind::kChat) {
    choice["delta"] = Json::object();
    if (!piece.thoughts.empty()) choice["delta"]["reasoning_content"] = piece.thoughts;
    if (!piece.text.empty()) choice["delta"]["content"] = piece.text;
    if (!piece.calls.empty()) {
      choice["delta"]["tool_calls"] = calls_json(head, piece, /*is_event=*/true);
    }
  } else {
    choice["text"] = piece.text;
    if (!piece.prompt_tokens.empty()) choice["prompt_token_ids"] = piece.prompt_tokens;
  }
  choice["logprobs"] = logprobs_json(head, piece, has_logprobs && !piece.chances.empty());
  choice["finish_reason"] = reason_json(piece.finish_reason);
  if (!piece.finish_reason.empty()) choice["stop_reason"] = stop_json(piece.stop_reason);
  if (head.gives_tokens) choice["token_ids"] = piece.tokens;
  json["choices"].push_back(std::move(choice));
  return event_of(json_text(json));
}

std::string usage_event(const AnswerHead& head, const AnswerUsage* usage_or_null,
                        const TemplateJson& receipt) {
  Json json = head_json(head, /*is_event=*/true);
  if (usage_or_null != nullptr) json["usage"] = usage_json(*usage_or_null);
  if (!receipt.is_null()) json["cache_receipt"] = receipt;
  return event_of(json_text(json));
}

std::string error_event(const ApiError& error) {
  return event_of(error_body(error));
}

}  // namespace stemma
