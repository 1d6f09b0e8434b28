#include "openai/response_answer.h"

#include <algorithm>
#include <span>
#include <utility>

namespace stemma {
namespace {

using Json = TemplateJson;

std::string id_of(const AnswerHead& head, std::string_view kind, std::size_t item) {
  return std::string(kind) + head.id + "_" + std::to_string(item);
}

Json text_part(std::string_view text, Json chances) {
  Json part;
  part["type"] = "output_text";
  part["text"] = text;
  part["annotations"] = Json::array();
  part["logprobs"] = std::move(chances);
  return part;
}

Json thoughts_part(std::string_view thoughts) {
  Json part;
  part["type"] = "reasoning_text";
  part["text"] = thoughts;
  return part;
}

Json thoughts_item(const AnswerHead& head, std::size_t place, std::string_view status) {
  Json item;
  item["type"] = "reasoning";
  item["id"] = id_of(head, "rs_", place);
  item["status"] = status;
  item["summary"] = Json::array();
  item["content"] = Json::array();
  return item;
}

// Of the text: thoughts are told without.
Json text_chances(std::span<const TokenChance> chances) {
  const auto first = std::find_if(chances.begin(), chances.end(),
                                  [](const TokenChance& chance) { return !chance.is_thought; });
  return chances_json({first, chances.end()});
}

Json message_item(const AnswerHead& head, std::size_t place, std::string_view status) {
  Json item;
  item["type"] = "message";
  item["id"] = id_of(head, "msg_", place);
  item["status"] = status;
  item["role"] = "assistant";
  item["content"] = Json::array();
  return item;
}

// `number`: of the answer's calls, from 0 on.
Json call_item(const AnswerHead& head, std::size_t place, std::int64_t number,
               const ToolCall& call) {
  Json item;
  item["type"] = "function_call";
  item["id"] = id_of(head, "fc_", place);
  const std::string id = id_of(head, "call_", static_cast<std::size_t>(number));
  item["call_id"] = told_call_id(head, id);
  item["name"] = call.name;
  item["arguments"] = call.arguments;
  item["status"] = "completed";
  return item;
}

Json usage_json(const AnswerUsage& usage) {
  Json json;
  json["input_tokens"] = usage.prompt_tokens;
  json["input_tokens_details"]["cached_tokens"] = usage.cached_tokens;
  json["output_tokens"] = usage.completion_tokens;
  json["output_tokens_details"]["reasoning_tokens"] = usage.thought_tokens.value_or(0);
  json["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  return json;
}

bool is_whole(std::string_view finish_reason) {
  return finish_reason == "stop" || finish_reason == "tool_calls";
}

std::string_view status_of(std::string_view finish_reason) {
  return is_whole(finish_reason) ? "completed" : "incomplete";
}

// As long as nothing else is said, under way and empty.
Json response_json(const AnswerHead& head) {
  Json json;
  json["id"] = head.id;
  json["object"] = "response";
  json["created_at"] = head.created_s;
  json["status"] = "in_progress";
  json["error"] = nullptr;
  json["incomplete_details"] = nullptr;
  json["model"] = head.model;
  json["output"] = Json::array();
  json["previous_response_id"] = nullptr;
  json["reasoning"] = {{"effort", nullptr}, {"summary", nullptr}};
  json["store"] = false;
  json["truncation"] = "disabled";
  json["usage"] = nullptr;
  return json;
}

Json ended_json(const AnswerHead& head, Json items, std::string_view finish_reason) {
  Json json = response_json(head);
  json["output"] = std::move(items);
  json["status"] = status_of(finish_reason);
  if (!is_whole(finish_reason)) {
    json["incomplete_details"]["reason"] =
        finish_reason == "length" ? "max_output_tokens" : finish_reason;
  }
  return json;
}

void add_cost(Json& response, const AnswerUsage& usage, const Json& receipt) {
  response["usage"] = usage_json(usage);
  if (!receipt.is_null()) response["cache_receipt"] = receipt;
}

}  // namespace

std::string ResponseAnswer::begin(const AnswerUsage&) {
  std::string events;
  for (const char* const type : {"response.created", "response.in_progress"}) {
    say_response(type, response_json(head_), events);
  }
  return events;
}

std::string ResponseAnswer::push(const AnswerPiece& piece) {
  std::string events;
  if (!piece.finish_reason.empty()) finish_reason_ = piece.finish_reason;
  if (!piece.thoughts.empty()) add_thoughts(piece.thoughts, events);
  const std::string_view text = piece.text;
  const std::size_t rest = piece.calls.empty() ? 0 : call_place(piece, piece.calls.size() - 1);
  const bool ends_with_call = !piece.calls.empty() && rest == text.size();
  if (ends_with_call) add_chances(piece);
  std::size_t told = 0;
  for (std::size_t i = 0; i < piece.calls.size(); ++i) {
    const std::size_t place = call_place(piece, i);
    add_text(text.substr(told, place - told), events);
    add_call(piece.calls[i], piece.first_call + static_cast<std::int64_t>(i), events);
    told = place;
  }
  if (!ends_with_call) add_chances(piece);
  add_text(text.substr(told), events);
  return events;
}

std::string ResponseAnswer::end(const AnswerUsage& usage, const Json& receipt) {
  std::string events;
  if (items_.empty() && !in_thoughts_) open_message(events);
  if (in_message_ && !waiting_.empty()) say_text("", events);
  close_thoughts(status_of(finish_reason_), events);
  close_message(status_of(finish_reason_), events);
  Json response = ended_json(head_, items_, finish_reason_);
  add_cost(response, usage, receipt);
  if (!streams_) return text_of(response);
  say_response(is_whole(finish_reason_) ? "response.completed" : "response.incomplete", response,
               events);
  return events;
}

std::string ResponseAnswer::fail(const ApiError& error) {
  std::string events;
  Json response = response_json(head_);
  response["status"] = "failed";
  response["error"] = {{"code", "server_error"}, {"message", error.message}};
  response["output"] = items_;
  say_response("response.failed", response, events);
  return events;
}

Json ResponseAnswer::about_item() const {
  return {{"output_index", items_.size()}};
}

Json ResponseAnswer::about_part() const {
  Json event;
  event["item_id"] = id_of(head_, in_thoughts_ ? "rs_" : "msg_", items_.size());
  event["output_index"] = items_.size();
  event["content_index"] = 0;
  return event;
}

void ResponseAnswer::open_thoughts(std::string& events) {
  if (in_thoughts_) return;
  close_message("completed", events);
  in_thoughts_ = true;
  text_.clear();
  open_item(thoughts_item(head_, items_.size(), "in_progress"), thoughts_part(""), events);
}

void ResponseAnswer::close_thoughts(std::string_view status, std::string& events) {
  if (!in_thoughts_) return;
  Json text = about_part();
  text["text"] = text_;
  say("response.reasoning_text.done", std::move(text), events);
  close_item(thoughts_item(head_, items_.size(), status), thoughts_part(text_), events);
  in_thoughts_ = false;
}

void ResponseAnswer::add_thoughts(std::string_view thoughts, std::string& events) {
  open_thoughts(events);
  text_ += thoughts;
  Json delta = about_part();
  delta["delta"] = thoughts;
  say("response.reasoning_text.delta", std::move(delta), events);
}

void ResponseAnswer::open_message(std::string& events) {
  if (std::exchange(in_message_, true)) return;
  text_.clear();
  chances_ = Json::array();
  open_item(message_item(head_, items_.size(), "in_progress"), text_part("", Json::array()),
            events);
}

void ResponseAnswer::close_message(std::string_view status, std::string& events) {
  if (!std::exchange(in_message_, false)) return;
  Json text = about_part();
  text["text"] = text_;
  text["logprobs"] = chances_;
  say("response.output_text.done", std::move(text), events);
  close_item(message_item(head_, items_.size(), status), text_part(text_, chances_), events);
}

void ResponseAnswer::open_item(Json item, Json part, std::string& events) {
  Json added = about_item();
  added["item"] = std::move(item);
  say("response.output_item.added", std::move(added), events);
  Json begun = about_part();
  begun["part"] = std::move(part);
  say("response.content_part.added", std::move(begun), events);
}

void ResponseAnswer::close_item(Json item, Json part, std::string& events) {
  Json ended = about_part();
  ended["part"] = part;
  say("response.content_part.done", std::move(ended), events);
  item["content"].push_back(std::move(part));
  Json done = about_item();
  done["item"] = item;
  say("response.output_item.done", std::move(done), events);
  items_.push_back(std::move(item));
}

void ResponseAnswer::add_chances(const AnswerPiece& piece) {
  const Json chances = text_chances(piece.chances);
  waiting_.insert(waiting_.end(), chances.begin(), chances.end());
}

void ResponseAnswer::add_text(std::string_view text, std::string& events) {
  if (text.empty()) return;
  close_thoughts("completed", events);
  open_message(events);
  say_text(text, events);
}

// In the message that is open.
void ResponseAnswer::say_text(std::string_view text, std::string& events) {
  const Json chances = std::exchange(waiting_, Json::array());
  text_ += text;
  chances_.insert(chances_.end(), chances.begin(), chances.end());
  Json delta = about_part();
  delta["delta"] = text;
  delta["logprobs"] = chances;
  say("response.output_text.delta", std::move(delta), events);
}

// A call comes whole. The tokens that wrote it are no text.
void ResponseAnswer::add_call(const ToolCall& call, std::int64_t number, std::string& events) {
  waiting_.clear();
  close_thoughts("completed", events);
  close_message("completed", events);
  const Json item = call_item(head_, items_.size(), number, call);
  Json added = about_item();
  added["item"] = item;
  added["item"]["arguments"] = "";
  added["item"]["status"] = "in_progress";
  say("response.output_item.added", std::move(added), events);
  Json arguments = about_item();
  arguments["item_id"] = item["id"];
  Json delta = arguments;
  delta["delta"] = item["arguments"];
  say("response.function_call_arguments.delta", std::move(delta), events);
  arguments["name"] = item["name"];
  arguments["arguments"] = item["arguments"];
  say("response.function_call_arguments.done", std::move(arguments), events);
  Json done = about_item();
  done["item"] = item;
  say("response.output_item.done", std::move(done), events);
  items_.push_back(item);
}

void ResponseAnswer::say(std::string_view type, Json event, std::string& events) {
  if (!streams_) return;
  event["type"] = type;
  event["sequence_number"] = said_++;
  events += named_event_of(type, json_text(event));
}

std::string ResponseAnswer::text_of(const Json& response) const {
  return with_members(json_text(response), request_);
}

void ResponseAnswer::say_response(std::string_view type, const Json& response,
                                  std::string& events) {
  if (!streams_) return;
  const Json about = {{"type", type}, {"sequence_number", said_++}};
  events += named_event_of(
      type, with_members("{\"response\":" + text_of(response) + "}", json_text(about)));
}

}  // namespace stemma
