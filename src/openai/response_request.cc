#include "openai/response_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "model/unicode_text.h"
#include "openai/completion_answer.h"
#include "openai/field_reader.h"
#include "openai/request_places.h"

namespace stemma {
namespace {

using Json = TemplateJson;

constexpr std::size_t kNameBytesMax = 1024;
// OpenAI's bounds of metadata.
constexpr std::size_t kPairsMax = 16;
constexpr std::int64_t kKeyCharactersMax = 64;
constexpr std::int64_t kValueCharactersMax = 512;
// Of what an answer repeats of its request, which is kept from when it comes until the answer ends,
// however long it waits: a thousand that wait are a gigabyte at most.
constexpr std::size_t kRepeatedBytesMax = std::size_t{1} << 20;

// Fields of one name or meaning there and in chats are read as those of the chat; of these, what a
// chat calls otherwise, or has nothing of, is not passed on.
constexpr std::array kNotOfChats = {"input",
                                    "instructions",
                                    "max_output_tokens",
                                    "tools",
                                    "text",
                                    "include",
                                    "stream_options",
                                    "metadata",
                                    "messages",
                                    "max_tokens",
                                    "logprobs",
                                    "top_logprobs",
                                    "n",
                                    "max_completion_tokens",
                                    "response_format",
                                    "echo"};

constexpr RefusedField kRefused[] = {
    {"previous_response_id", "null", "nothing is stored: send the whole conversation as input"},
    {"conversation", "null", "nothing is stored: send the whole conversation as input"},
    {"prompt", "null", "not supported: there are no stored prompts"},
    {"background", "false", "not supported: nothing is stored"},
    {"truncation", "\"disabled\"", "only \"disabled\" is supported"},
    {"prompt_logprobs", "null", "only for chats and completions"},
};

// The messages of the chat, and where in the request each came from.
struct Conversation {
  Json messages = Json::array();
  RequestPlaces places;
  std::string thoughts = {};  // of the assistant, whose turn goes on

  // Thoughts behind which somebody else has the word are of no message.
  Json& add(std::string_view role, std::string origin) {
    Json message;
    message["role"] = role;
    message["content"] = "";
    places.add(item_path("messages", messages.size()), std::move(origin));
    messages.push_back(std::move(message));
    if (role == "assistant") {
      give_thoughts();
    } else {
      thoughts.clear();
    }
    return messages.back();
  }

  // The assistant's last message, if nobody said anything since, or a new one.
  Json& go_on(std::string origin) {
    if (messages.empty() || messages.back()["role"] != "assistant") {
      return add("assistant", std::move(origin));
    }
    give_thoughts();
    return messages.back();
  }

 private:
  // Those of one message are joined as parts of contents are: in their place, as a message may go
  // on behind many thoughts.
  void give_thoughts() {
    if (thoughts.empty()) return;
    Json& all = messages.back()["reasoning_content"];
    if (all.is_null()) {
      all = std::move(thoughts);
    } else {
      all.get_ref<std::string&>().append(1, '\n').append(thoughts);
    }
    thoughts.clear();
  }
};

void read_call(FieldReader& item, const std::string& path, Conversation& conversation) {
  const auto name = item.text("name", kNameBytesMax);
  const auto id = item.text("call_id", kNameBytesMax);
  if (!name.has_value()) return item.fail("name", "missing");
  if (!id.has_value()) return item.fail("call_id", "missing");
  Json call;
  call["id"] = *id;
  call["type"] = "function";
  call["function"]["name"] = *name;
  call["function"]["arguments"] =
      item.text("arguments", std::numeric_limits<std::size_t>::max()).value_or("");
  // Calls of one turn are one message, with what was said before them.
  conversation.go_on(path)["tool_calls"].push_back(std::move(call));
}

void read_output(FieldReader& item, const std::string& path, Conversation& conversation) {
  const auto id = item.text("call_id", kNameBytesMax);
  const Json* const output = item.find_or_null("output");
  if (!id.has_value()) return item.fail("call_id", "missing");
  if (output == nullptr) return item.fail("output", "missing");
  Json& message = conversation.add("tool", path);
  message["tool_call_id"] = *id;
  message["content"] = *output;
}

// The text of thoughts: without, as another server tells them, there is nothing to print.
void read_thoughts(FieldReader& item, Conversation& conversation) {
  const Json* const parts = item.array_or_null("content");
  if (parts == nullptr) return;
  for (const Json& part : *parts) {
    if (!part.is_object() || part.value("type", Json()) != "reasoning_text") continue;
    const Json text = part.value("text", Json());
    if (text.is_string()) conversation.thoughts += text.get_ref<const std::string&>();
  }
}

void read_item(const Json& given, const std::string& path, std::optional<ApiError>& fault,
               Conversation& conversation) {
  if (!given.is_object()) {
    fault = field_error(path, "must be an object");
    return;
  }
  FieldReader item(given, path, fault);
  const std::string type = item.text("type", kNameBytesMax).value_or("message");
  if (type == "function_call") return read_call(item, path, conversation);
  if (type == "function_call_output") return read_output(item, path, conversation);
  if (type == "reasoning") return read_thoughts(item, conversation);
  if (type != "message") return item.fail("type", "not supported: nothing of this kind is known");
  Json& message = conversation.add(item.text("role", kNameBytesMax).value_or(""), path);
  const Json* const content = item.find_or_null("content");
  if (content == nullptr) return item.fail("content", "missing");
  message["content"] = *content;
}

Conversation read_input(FieldReader& fields, std::optional<ApiError>& fault) {
  Conversation conversation;
  const auto instructions = fields.text("instructions", std::numeric_limits<std::size_t>::max());
  if (instructions.has_value()) {
    conversation.add("system", "instructions")["content"] = *instructions;
  }
  const std::size_t before = conversation.messages.size();
  const Json* const input = fields.find_or_null("input");
  if (input == nullptr) {
    fields.fail("input", "missing");
  } else if (input->is_string()) {
    conversation.add("user", "input")["content"] = *input;
  } else if (const Json* const items = fields.array_or_null("input")) {
    for (std::size_t i = 0; i < items->size() && !fault.has_value(); ++i) {
      read_item((*items)[i], item_path("input", i), fault, conversation);
    }
    if (conversation.messages.size() == before) fields.fail("input", "must say something");
  }
  return conversation;
}

// Functions, which chats have in an object of their own.
void read_tools(FieldReader& fields, std::optional<ApiError>& fault, Json& chat) {
  const Json* const tools = fields.array_or_null("tools");
  for (std::size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    const std::string path = item_path("tools", i);
    if (!(*tools)[i].is_object()) return fields.fail(path, "must be an object");
    FieldReader tool((*tools)[i], path, fault);
    if (tool.text("type", kNameBytesMax) != "function") {
      return tool.fail("type", "only \"function\" is supported");
    }
    Json function;
    for (const char* const name : {"name", "description", "parameters", "strict"}) {
      if (const Json* const field = tool.find_or_null(name)) function[name] = *field;
    }
    if (!function.contains("name")) return tool.fail("name", "missing");
    chat["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
  }
}

// What a chat has in an object of its own, behind another name.
void read_form(FieldReader& fields, std::optional<ApiError>& fault, Json& chat) {
  const Json* const text = fields.object_or_null("text");
  if (text == nullptr) return;
  FieldReader inner(*text, "text", fault);
  const Json* const format = inner.object_or_null("format");
  if (format == nullptr) return;
  Json& form = chat["response_format"];
  form = *format;
  if (format->value("type", Json()) == "json_schema") {
    form = {{"type", "json_schema"}, {"json_schema", *format}};
  }
}

// {"type": "function", "name": N}: the same.
void read_choice(FieldReader& fields, Json& chat) {
  const Json* const choice = fields.find_or_null("tool_choice");
  if (choice == nullptr || !choice->is_object() || !choice->contains("name")) return;
  chat["tool_choice"] = {{"type", choice->value("type", Json())},
                         {"function", {{"name", (*choice)["name"]}}}};
}

void read_logprobs(FieldReader& fields, Json& chat) {
  const Json* const include = fields.array_or_null("include");
  if (include == nullptr) return;
  for (const Json& wanted : *include) {
    if (wanted != "message.output_text.logprobs") continue;
    chat["logprobs"] = true;
    if (const Json* const top = fields.find_or_null("top_logprobs")) chat["top_logprobs"] = *top;
  }
}

// Of which nothing is used, but that an answer repeats it.
void check_metadata(FieldReader& fields) {
  const Json* const metadata = fields.object_or_null("metadata");
  if (metadata == nullptr) return;
  if (metadata->size() > kPairsMax) {
    return fields.fail("metadata", fmt::format("must have at most {} pairs (got {})", kPairsMax,
                                               metadata->size()));
  }
  for (const auto& [name, value] : metadata->items()) {
    if (characters_in(name) > kKeyCharactersMax) {
      return fields.fail("metadata", fmt::format("\"{}\" is more than {} characters",
                                                 printable(name), kKeyCharactersMax));
    }
    const std::string path = "metadata." + name;
    if (!value.is_string()) return fields.fail(path, "must be a string");
    if (characters_in(value.get_ref<const std::string&>()) > kValueCharactersMax) {
      return fields.fail(path, fmt::format("must be at most {} characters", kValueCharactersMax));
    }
  }
}

// Of what is no message.
void add_places(RequestPlaces& places) {
  places.add("response_format.json_schema", "text.format");
  places.add("response_format", "text.format");
  places.add("tool_choice.function", "tool_choice");
}

// A model's own number as people wrote it: 0.6, where a float is 0.60000002384185791.
double written(float number) {
  constexpr double kUnits = 1e6;
  return std::round(static_cast<double>(number) * kUnits) / kUnits;
}

// What the text is to be. Clients' types have a format in it.
Json text_given(const Json& body) {
  Json text = body.value("text", Json());
  if (text.is_null()) text = Json::object();
  if (text.value("format", Json()).is_null()) text["format"] = {{"type", "text"}};
  return text;
}

// What an answer repeats of its request, as an object. Too much of it is a fault of what is most.
std::string repeated(const Json& body, const CompletionRequest& request, FieldReader& fields) {
  std::string text = "{";
  std::pair<std::size_t, const char*> most;
  const auto add = [&](const char* name, const Json& value) {
    const std::string said = json_text(value);
    most = std::max(most, {said.size(), name});
    text.append(text.size() > 1 ? ",\"" : "\"").append(name).append("\":").append(said);
  };
  const auto repeat = [&](const char* name, const Json& absent) {
    const auto found = body.find(name);
    Json value = found == body.end() || found->is_null() ? absent : *found;
    narrow_wide_integers(value);
    add(name, value);
  };
  repeat("instructions", nullptr);
  repeat("max_output_tokens", nullptr);
  repeat("metadata", Json::object());
  add("parallel_tool_calls", request.calls_in_parallel);
  repeat("temperature", written(request.sampling.temperature));
  add("text", text_given(body));
  repeat("tool_choice", "auto");
  repeat("tools", Json::array());
  repeat("top_p", written(request.sampling.top_p));
  if (text.size() > kRepeatedBytesMax) {
    fields.fail(most.second, fmt::format("{} bytes, and an answer repeats at most {} of its "
                                         "request: messages in input are not repeated",
                                         most.first, kRepeatedBytesMax));
  }
  return text + "}";
}

}  // namespace

ApiResult<CompletionRequest> read_response_request(std::string_view body,
                                                   const RequestRules& rules) {
  ApiResult<Json> parsed = read_json_body(body, rules.body_bytes_max, rules.vocab_tokens);
  if (auto* const fault = std::get_if<ApiError>(&parsed)) return std::move(*fault);
  const Json& given = std::get<Json>(parsed);
  std::optional<ApiError> fault;
  FieldReader fields(given, "", fault);
  fields.refuse(kRefused);
  Json chat = Json::object();
  copy_fields_of_chats(given, kNotOfChats, chat);
  Conversation conversation = read_input(fields, fault);
  chat["messages"] = std::move(conversation.messages);
  const auto max_tokens =
      fields.integer("max_output_tokens", {1, std::numeric_limits<std::int32_t>::max()});
  if (max_tokens.has_value()) chat["max_completion_tokens"] = *max_tokens;
  read_tools(fields, fault, chat);
  read_form(fields, fault, chat);
  read_choice(fields, chat);
  read_logprobs(fields, chat);
  check_metadata(fields);
  if (fault.has_value()) return *std::move(fault);
  RequestPlaces& places = conversation.places;
  add_places(places);
  ApiResult<CompletionRequest> read = chat_request_of(chat, rules, places);
  if (std::holds_alternative<ApiError>(read)) return read;
  auto& request = std::get<CompletionRequest>(read);
  request.shape = AnswerShape::kResponse;
  request.response = repeated(given, request, fields);
  if (fault.has_value()) return *std::move(fault);
  return read;
}

}  // namespace stemma
