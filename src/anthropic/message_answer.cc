#include "anthropic/message_answer.h"

#include <utility>

#include "anthropic/message_error.h"

namespace stemma {
namespace {

using Json = TemplateJson;

Json thoughts_part(std::string_view thoughts) {
  return {{"type", "thinking"}, {"thinking", thoughts}, {"signature", ""}};
}

Json text_part(std::string_view text) {
  return {{"type", "text"}, {"text", text}};
}

// Without what it is called with. `number`: of the answer's calls, from 0 on.
Json call_part(const AnswerHead& head, std::int64_t number, const ToolCall& call) {
  Json part;
  part["type"] = "tool_use";
  part["id"] = told_call_id(head, "toolu_" + head.id + "_" + std::to_string(number));
  part["name"] = call.name;
  return part;
}

// All of a prompt is the sum of what was found in the cache and the rest.
Json usage_json(const AnswerUsage& usage) {
  Json json;
  json["input_tokens"] = usage.prompt_tokens - usage.cached_tokens;
  json["cache_creation_input_tokens"] = 0;
  json["cache_read_input_tokens"] = usage.cached_tokens;
  json["output_tokens"] = usage.completion_tokens;
  if (usage.thought_tokens.has_value()) {
    json["output_tokens_details"]["thinking_tokens"] = *usage.thought_tokens;
  }
  return json;
}

// An object of JSON with one more member, which is a text of JSON.
std::string with_member(std::string object, std::string_view name, std::string_view json) {
  std::string member = "{\"";
  member.append(name).append("\":").append(json).append("}");
  return with_members(std::move(object), member);
}

}  // namespace

std::string MessageAnswer::begin(const AnswerUsage& of_prompt) {
  if (!streams_) return "";
  const Json stop = {{"stop_reason", nullptr}, {"stop_sequence", nullptr}};
  const std::string event =
      with_member(R"({"type":"message_start"})", "message", message(stop, of_prompt));
  return named_event_of("message_start", event);
}

std::string MessageAnswer::push(const AnswerPiece& piece) {
  std::string events;
  if (!piece.finish_reason.empty()) {
    finish_reason_ = piece.finish_reason;
    stopped_by_ = piece.stop_reason;
  }
  add_to(Part::kThoughts, piece.thoughts, events);
  const std::string_view text = piece.text;
  std::size_t told = 0;
  for (std::size_t i = 0; i < piece.calls.size(); ++i) {
    const std::size_t place = call_place(piece, i);
    add_to(Part::kText, text.substr(told, place - told), events);
    add_call(piece.calls[i], piece.first_call + static_cast<std::int64_t>(i), events);
    told = place;
  }
  add_to(Part::kText, text.substr(told), events);
  return events;
}

std::string MessageAnswer::end(const AnswerUsage& usage, const Json& receipt) {
  std::string events;
  close(events);
  const Json stop = {{"stop_reason", stop_reason(usage)}, {"stop_sequence", stop_sequence()}};
  if (!streams_) {
    const std::string body = message(stop, usage);
    return receipt.is_null() ? body : with_member(body, "cache_receipt", json_text(receipt));
  }
  Json last = {{"delta", stop}, {"usage", usage_json(usage)}};
  if (!receipt.is_null()) last["cache_receipt"] = receipt;
  say("message_delta", std::move(last), events);
  say("message_stop", Json::object(), events);
  return events;
}

std::string MessageAnswer::fail(const ApiError& error) {
  return named_event_of("error", message_error_body(error, /*request_id=*/""));
}

void MessageAnswer::open(Part part, std::string& events) {
  if (open_ == part) return;
  close(events);
  open_ = part;
  begin_part(part == Part::kThoughts ? thoughts_part("") : text_part(""), events);
}

void MessageAnswer::close(std::string& events) {
  if (open_ == Part::kNone) return;
  if (!streams_)
    keep(json_text(open_ == Part::kThoughts ? thoughts_part(text_) : text_part(text_)));
  text_.clear();
  open_ = Part::kNone;
  end_part(events);
}

void MessageAnswer::add_to(Part part, std::string_view text, std::string& events) {
  if (text.empty()) return;
  open(part, events);
  if (!streams_) text_ += text;
  const bool are_thoughts = part == Part::kThoughts;
  say_delta({{"type", are_thoughts ? "thinking_delta" : "text_delta"},
             {are_thoughts ? "thinking" : "text", text}},
            events);
}

// A call comes whole. Its arguments are passed on as they were written.
void MessageAnswer::add_call(const ToolCall& call, std::int64_t number, std::string& events) {
  close(events);
  Json part = call_part(head_, number, call);
  if (!streams_) keep(with_member(json_text(part), "input", call.arguments));
  part["input"] = Json::object();
  begin_part(std::move(part), events);
  say_delta({{"type", "input_json_delta"}, {"partial_json", call.arguments}}, events);
  end_part(events);
}

void MessageAnswer::keep(const std::string& json) {
  if (!parts_.empty()) parts_ += ',';
  parts_ += json;
}

void MessageAnswer::begin_part(Json part, std::string& events) {
  say("content_block_start", {{"index", told_}, {"content_block", std::move(part)}}, events);
}

void MessageAnswer::say_delta(Json delta, std::string& events) {
  say("content_block_delta", {{"index", told_}, {"delta", std::move(delta)}}, events);
}

void MessageAnswer::end_part(std::string& events) {
  say("content_block_stop", {{"index", told_++}}, events);
}

void MessageAnswer::say(std::string_view type, Json event, std::string& events) {
  if (!streams_) return;
  Json json = {{"type", type}};
  json.update(event);
  events += named_event_of(type, json_text(json));
}

std::string_view MessageAnswer::stop_reason(const AnswerUsage& usage) const {
  if (finish_reason_ == "tool_calls") return "tool_use";
  if (finish_reason_ == "length") {
    const bool as_asked = usage.completion_tokens >= max_tokens_;
    return as_asked ? "max_tokens" : "model_context_window_exceeded";
  }
  if (finish_reason_ == "abort") return "pause_turn";
  return std::holds_alternative<std::string>(stopped_by_) ? "stop_sequence" : "end_turn";
}

Json MessageAnswer::stop_sequence() const {
  const auto* const text = std::get_if<std::string>(&stopped_by_);
  return text == nullptr || finish_reason_ != "stop" ? Json() : Json(*text);
}

std::string MessageAnswer::message(const Json& stop, const AnswerUsage& usage) const {
  const Json head = {
      {"id", head_.id}, {"type", "message"}, {"role", "assistant"}, {"model", head_.model}};
  const std::string with_parts = with_member(json_text(head), "content", "[" + parts_ + "]");
  Json rest = stop;
  rest["usage"] = usage_json(usage);
  return with_members(with_parts, json_text(rest));
}

}  // namespace stemma
