#include "anthropic/message_request.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "openai/completion_answer.h"
#include "openai/field_reader.h"
#include "openai/request_places.h"

namespace stemma {
namespace {

using Json = TemplateJson;

constexpr std::size_t kNameBytesMax = 1024;
constexpr std::int64_t kTokensMax = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kTextBytesMax = std::numeric_limits<std::size_t>::max();
constexpr std::string_view kBillingLine = "x-anthropic-billing-header:";

// Of fields that a chat has by these names it gets others, or none: its answer is one, in parts.
constexpr std::array kNotOfChats = {"system",
                                    "messages",
                                    "max_tokens",
                                    "max_completion_tokens",
                                    "stop",
                                    "stop_sequences",
                                    "tools",
                                    "tool_choice",
                                    "parallel_tool_calls",
                                    "thinking",
                                    "output_config",
                                    "output_format",
                                    "response_format",
                                    "cache_control",
                                    "metadata",
                                    "n",
                                    "best_of",
                                    "logprobs",
                                    "top_logprobs",
                                    "prompt_logprobs",
                                    "stream_options",
                                    "echo",
                                    "return_token_ids",
                                    "continue_final_message",
                                    "add_generation_prompt"};

constexpr RefusedField kRefused[] = {
    {"container", "null", "not supported: nothing is run here"},
    {"mcp_servers", "[]", "not supported: nothing is run here"},
};

// Without the line of bills that it may begin with.
std::string_view without_billing_line(std::string_view text) {
  if (!text.starts_with(kBillingLine)) return text;
  const std::size_t end = text.find('\n');
  return end == std::string_view::npos ? "" : text.substr(end + 1);
}

// Whether a message has a text, and nothing behind it.
bool says_something(const Json& message) {
  if (message.contains("tool_calls")) return false;
  const Json& content = message["content"];
  if (content.is_string()) return content != "";
  return std::any_of(content.begin(), content.end(),
                     [](const Json& part) { return part["text"] != ""; });
}

Json text_part(Json text) {
  return {{"type", "text"}, {"text", std::move(text)}};
}

// Makes the chat, and says where in the request each part of it came from.
class MessageReader {
 public:
  MessageReader(FieldReader& fields, std::optional<ApiError>& fault)
      : fields_(fields), fault_(fault) {}

  void read_system();
  void read_messages();
  void read_tools();
  void read_tool_choice();
  void read_thinking();
  void read_form();
  void read_extent(MessageUse use);
  void note_retention(const Json& object);

  // Once, last.
  Json take_chat(const Json& body);
  const RequestPlaces& places() const { return places_; }

 private:
  Json& add_message(std::string_view role, const std::string& origin);
  void read_message(const Json& given, const std::string& path);
  void read_part(const Json& given, std::string_view role, const std::string& path);
  void read_call(FieldReader& part);
  void read_result(FieldReader& part, const std::string& path);
  Json& turn(std::string_view role);
  Json texts_of(const Json& parts, const std::string& path);
  void read_tool(const Json& given, const std::string& path);
  // Calls `read(object, path)` for each of a list, up to the first that is none or has a fault.
  template <typename Read>
  void for_each_object(const Json& list, std::string_view path, Read read) {
    for (std::size_t i = 0; i < list.size() && !fault_.has_value(); ++i) {
      const std::string at = item_path(path, i);
      if (!list[i].is_object()) {
        fault_ = field_error(at, "must be an object");
      } else {
        read(list[i], at);
      }
    }
  }

  FieldReader& fields_;
  std::optional<ApiError>& fault_;
  Json chat_ = Json::object();
  Json messages_ = Json::array();
  RequestPlaces places_;
  std::string turn_path_;    // of the message that is read
  bool in_turn_ = false;     // the last message of the chat is of it, and goes on
  bool is_answer_ = false;   // the last message is an assistant's text
  bool long_lived_ = false;  // something is to be kept for longer than most
};

void MessageReader::note_retention(const Json& object) {
  const auto control = object.find("cache_control");
  if (control == object.end() || !control->is_object()) return;
  long_lived_ |= control->value("ttl", Json()) == "1h";
}

Json& MessageReader::add_message(std::string_view role, const std::string& origin) {
  places_.add(item_path("messages", messages_.size()), origin);
  messages_.push_back({{"role", role}, {"content", ""}});
  return messages_.back();
}

// The message of the chat that parts of this turn are added to.
Json& MessageReader::turn(std::string_view role) {
  if (!std::exchange(in_turn_, true)) add_message(role, turn_path_);
  return messages_.back();
}

// Parts of a content that are texts alone, up to the first that is not, which is a fault.
Json MessageReader::texts_of(const Json& parts, const std::string& path) {
  Json texts = Json::array();
  for_each_object(parts, path, [&](const Json& given, const std::string& at) {
    FieldReader part(given, at, fault_);
    note_retention(given);
    const auto text = part.text("text", kTextBytesMax);
    if (part.text("type", kNameBytesMax) != "text") {
      part.fail("type", "only blocks of type \"text\" are supported here");
    } else if (!text.has_value()) {
      part.fail("text", "missing");
    } else {
      texts.push_back(text_part(*text));
    }
  });
  return texts;
}

void MessageReader::read_system() {
  const Json* const system = fields_.find_or_null("system");
  if (system == nullptr) return;
  if (!system->is_string() && !system->is_array()) {
    return fields_.fail("system", "must be a string or an array of blocks");
  }
  const Json texts =
      system->is_string() ? Json::array({text_part(*system)}) : texts_of(*system, "system");
  Json parts = Json::array();
  for (const Json& part : texts) {
    const auto& text = part["text"].get_ref<const std::string&>();
    const std::string_view said = without_billing_line(text);
    if (said.size() == text.size() || !said.empty()) parts.push_back(text_part(said));
  }
  if (!parts.empty()) add_message("system", "system")["content"] = std::move(parts);
}

// A call's arguments are an object there, and of a chat the text that a model wrote.
void MessageReader::read_call(FieldReader& part) {
  const auto id = part.text("id", kNameBytesMax);
  const auto name = part.text("name", kNameBytesMax);
  const Json* const input = part.object_or_null("input");
  if (!id.has_value()) return part.fail("id", "missing");
  if (!name.has_value()) return part.fail("name", "missing");
  if (input == nullptr) return part.fail("input", "missing");
  Json call = {{"id", *id}, {"type", "function"}};
  call["function"] = {{"name", *name}, {"arguments", *input}};
  turn("assistant")["tool_calls"].push_back(std::move(call));
}

// What came of a call is a message of its own. Whether that failed, its text says.
void MessageReader::read_result(FieldReader& part, const std::string& path) {
  const auto id = part.text("tool_use_id", kNameBytesMax);
  if (!id.has_value()) return part.fail("tool_use_id", "missing");
  in_turn_ = false;
  Json& message = add_message("tool", path);
  message["tool_call_id"] = *id;
  const Json* const content = part.find_or_null("content");
  if (content == nullptr) return;
  if (content->is_array()) {
    message["content"] = texts_of(*content, path + ".content");
  } else if (content->is_string()) {
    message["content"] = *content;
  } else {
    part.fail("content", "must be a string or an array of blocks");
  }
}

void MessageReader::read_part(const Json& given, std::string_view role, const std::string& path) {
  FieldReader part(given, path, fault_);
  note_retention(given);
  const std::string type = part.text("type", kNameBytesMax).value_or("");
  const bool of_assistant = role == "assistant";
  if (type == "text") {
    const auto text = part.text("text", kTextBytesMax);
    if (!text.has_value()) return part.fail("text", "missing");
    Json& content = turn(role)["content"];
    if (!content.is_array()) content = Json::array();
    content.push_back(text_part(*text));
  } else if (type == "tool_use" && of_assistant) {
    read_call(part);
  } else if (type == "thinking" && of_assistant) {
    const auto thoughts = part.text("thinking", kTextBytesMax);
    if (!thoughts.has_value()) return part.fail("thinking", "missing");
    Json& all = turn(role)["reasoning_content"];
    all = all.is_null() ? *thoughts : all.get<std::string>() + "\n" + *thoughts;
  } else if (type == "tool_result" && role == "user") {
    read_result(part, path);
  } else if (type != "redacted_thinking" || !of_assistant) {  // which nobody here can read
    part.fail("type", "not supported in this message");
  }
}

void MessageReader::read_message(const Json& given, const std::string& path) {
  FieldReader message(given, path, fault_);
  const std::string role = message.text("role", kNameBytesMax).value_or("");
  if (role != "user" && role != "assistant" && role != "system") {
    return message.fail("role", "must be user, assistant or system");
  }
  turn_path_ = path;
  in_turn_ = false;
  const Json* const content = message.find_or_null("content");
  if (content == nullptr) return message.fail("content", "missing");
  const std::size_t before = messages_.size();
  if (content->is_string()) {
    turn(role)["content"] = *content;
  } else if (content->is_array()) {
    for_each_object(*content, path + ".content",
                    [&](const Json& part, const std::string& at) { read_part(part, role, at); });
    if (messages_.size() == before) turn(role);
  } else {
    return message.fail("content", "must be a string or an array of blocks");
  }
  is_answer_ = role == "assistant" && says_something(messages_.back());
}

void MessageReader::read_messages() {
  const Json* const messages = fields_.array_or_null("messages");
  if (messages == nullptr) return fields_.fail("messages", "missing");
  if (messages->empty()) return fields_.fail("messages", "must have at least one message");
  for_each_object(*messages, "messages",
                  [&](const Json& given, const std::string& at) { read_message(given, at); });
}

void MessageReader::read_tool(const Json& given, const std::string& path) {
  FieldReader tool(given, path, fault_);
  note_retention(given);
  if (tool.text("type", kNameBytesMax).value_or("custom") != "custom") {
    return tool.fail("type", "only \"custom\" is supported: nothing is run here");
  }
  Json function;
  for (const char* const name : {"name", "description", "strict"}) {
    if (const Json* const field = tool.find_or_null(name)) function[name] = *field;
  }
  if (!function.contains("name")) return tool.fail("name", "missing");
  const Json* const schema = tool.object_or_null("input_schema");
  if (schema == nullptr) return tool.fail("input_schema", "missing");
  function["parameters"] = *schema;
  chat_["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
}

void MessageReader::read_tools() {
  const Json* const tools = fields_.array_or_null("tools");
  if (tools == nullptr) return;
  for_each_object(*tools, "tools",
                  [&](const Json& given, const std::string& at) { read_tool(given, at); });
}

void MessageReader::read_tool_choice() {
  const Json* const given = fields_.object_or_null("tool_choice");
  if (given == nullptr) return;
  FieldReader choice(*given, "tool_choice", fault_);
  if (choice.boolean("disable_parallel_tool_use").value_or(false)) {
    chat_["parallel_tool_calls"] = false;
  }
  const std::string type = choice.text("type", kNameBytesMax).value_or("");
  const auto name = choice.text("name", kNameBytesMax);
  if (type == "auto" || type == "none") {
    chat_["tool_choice"] = type;
  } else if (type == "any") {
    chat_["tool_choice"] = "required";
  } else if (type != "tool") {
    choice.fail("type", "must be auto, any, tool or none");
  } else if (!name.has_value()) {
    choice.fail("name", "missing");
  } else {
    chat_["tool_choice"] = {{"type", "function"}, {"function", {{"name", *name}}}};
  }
  places_.add("tool_choice.function", "tool_choice");
}

// Chat templates of models that may think or not ask for one of these.
void MessageReader::read_thinking() {
  const Json* const given = fields_.object_or_null("thinking");
  if (given == nullptr) return;
  FieldReader thinking(*given, "thinking", fault_);
  const std::string type = thinking.text("type", kNameBytesMax).value_or("");
  constexpr std::array kTypes = {"enabled", "adaptive", "between_tools", "disabled"};
  if (std::find(kTypes.begin(), kTypes.end(), type) == kTypes.end()) {
    return thinking.fail("type", "must be enabled, adaptive, between_tools or disabled");
  }
  chat_["chat_template_kwargs"] = {{"enable_thinking", type != "disabled"},
                                   {"thinking", type != "disabled"}};
  if (thinking.text("display", kNameBytesMax) == "omitted") chat_["include_reasoning"] = false;
  const auto budget = thinking.integer("budget_tokens", {1, kTokensMax});
  if (budget.has_value() && type == "enabled") chat_["thinking_token_budget"] = *budget;
}

void MessageReader::read_form() {
  const Json* format = fields_.object_or_null("output_format");
  std::string path = "output_format";
  if (const Json* const config = fields_.object_or_null("output_config")) {
    FieldReader inner(*config, "output_config", fault_);
    if (const Json* const newer = inner.object_or_null("format")) {
      format = newer;
      path = "output_config.format";
    }
  }
  if (format == nullptr) return;
  FieldReader fields(*format, path, fault_);
  if (fields.text("type", kNameBytesMax) != "json_schema") {
    return fields.fail("type", "must be \"json_schema\"");
  }
  const Json* const schema = fields.find_or_null("schema");
  if (schema == nullptr) return fields.fail("schema", "missing");
  Json& form = chat_["response_format"];
  form["type"] = "json_schema";
  form["json_schema"] = {{"name", "output"}, {"strict", true}, {"schema", *schema}};
  places_.add("response_format.json_schema", path);
  places_.add("response_format", path);
}

void MessageReader::read_extent(MessageUse use) {
  const FieldReader::Integers range = {1, std::numeric_limits<std::int32_t>::max()};
  const auto max_tokens = fields_.integer("max_tokens", range);
  if (max_tokens.has_value()) {
    chat_["max_completion_tokens"] = *max_tokens;
  } else if (use == MessageUse::kAnswer) {
    fields_.fail("max_tokens", "missing");
  }
  if (const Json* const stop = fields_.array_or_null("stop_sequences")) chat_["stop"] = *stop;
  places_.add("stop", "stop_sequences");
  places_.add("max_completion_tokens", "max_tokens");
}

// What the client says in the chat's own words is said.
Json MessageReader::take_chat(const Json& body) {
  note_retention(body);
  if (long_lived_) chat_["prompt_cache_retention"] = "24h";
  copy_fields_of_chats(body, kNotOfChats, chat_);
  chat_["messages"] = std::move(messages_);
  // An assistant's text at the end is how the answer begins.
  if (is_answer_) chat_["continue_final_message"] = true;
  return std::move(chat_);
}

}  // namespace

ApiResult<CompletionRequest> read_message_request(std::string_view body, const RequestRules& rules,
                                                  MessageUse use) {
  ApiResult<Json> parsed = read_json_body(body, rules.body_bytes_max, rules.vocab_tokens);
  if (auto* const wrong = std::get_if<ApiError>(&parsed)) return std::move(*wrong);
  const Json& given = std::get<Json>(parsed);
  std::optional<ApiError> fault;
  FieldReader fields(given, "", fault);
  fields.refuse(kRefused);
  MessageReader reader(fields, fault);
  reader.read_extent(use);
  reader.read_system();
  reader.read_messages();
  reader.read_tools();
  reader.read_tool_choice();
  reader.read_thinking();
  reader.read_form();
  if (fault.has_value()) return *std::move(fault);
  const Json chat = reader.take_chat(given);
  ApiResult<CompletionRequest> read = chat_request_of(chat, rules, reader.places());
  if (std::holds_alternative<ApiError>(read)) return read;
  auto& request = std::get<CompletionRequest>(read);
  request.shape = AnswerShape::kMessage;
  request.max_tokens_give_way = true;
  return read;
}

}  // namespace stemma
