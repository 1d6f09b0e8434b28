// Messages of a chat, from the many forms that clients send to the one that templates read.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "openai/call_ids.h"
#include "openai/completion_request.h"
#include "openai/field_reader.h"
#include "template/arena.h"
#include "template/template_json.h"

namespace stemma {
namespace {

constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "function"};
constexpr auto kReplaceBadBytes = TemplateJson::error_handler_t::replace;

// The texts of a content. Anything else is refused: it would be dropped in silence.
std::vector<std::string> texts_of_parts(const TemplateJson& parts, const std::string& path,
                                        std::optional<ApiError>& fault) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string at = item_path(path, i);
    if (!parts[i].is_object()) {
      if (!fault.has_value()) fault = field_error(at, "must be an object");
      return texts;
    }
    FieldReader part(parts[i], at, fault);
    const std::string type = part.text("type", 64).value_or("");
    const std::string_view field = type == "refusal" ? "refusal" : "text";
    const TemplateJson* const content = part.find_or_null(field);
    if (type != "text" && type != "input_text" && type != "output_text" && type != "refusal") {
      part.fail("type", "only parts of type \"text\" are supported");
    } else if (content == nullptr || !content->is_string()) {
      part.fail(field, "must be a string");
    } else {
      texts.push_back(content->get<std::string>());
    }
  }
  return texts;
}

// One text, by line breaks, or as many parts where the template joins them itself.
TemplateJson content_of(const std::vector<std::string>& texts, bool parts_stay) {
  if (!parts_stay || texts.size() < 2) return fmt::format("{}", fmt::join(texts, "\n"));
  TemplateJson parts = TemplateJson::array();
  for (const std::string& text : texts) parts.push_back({{"type", "text"}, {"text", text}});
  return parts;
}

// An assistant may say nothing; what it refused with is what it said.
void read_content(FieldReader& fields, const MessageForm& form, std::optional<ApiError>& fault,
                  TemplateJson& message) {
  const bool may_miss = message["role"] == "assistant";
  const bool refuses = may_miss && fields.find_or_null("content") == nullptr;
  const char* const field = refuses ? "refusal" : "content";
  const TemplateJson* const content = fields.find_or_null(field);
  if (content == nullptr) {
    if (!may_miss) fields.fail("content", "missing");
    message["content"] = "";
  } else if (content->is_array()) {
    message["content"] = content_of(texts_of_parts(*content, fields.path_of(field), fault),
                                    form.user_parts_stay && message["role"] == "user");
  } else if (!content->is_string()) {
    fields.fail(field, "must be a string or an array of parts");
  } else {
    message["content"] = *content;
  }
}

// As models write it: as Python does, which wrote what they learned from.
std::string spaced_json(const TemplateJson& object) {
  jinja::Arena arena(jinja::RenderLimits{});
  const auto value = jinja::from_json(arena, object);
  if (!value.ok()) return object.dump(-1, ' ', false, kReplaceBadBytes);
  const auto text = jinja::to_json(arena, *value, jinja::JsonFormat{});
  return text.ok() ? std::string(text->text()) : object.dump(-1, ' ', false, kReplaceBadBytes);
}

// Arguments come as a text of JSON, whatever repeats in it: what answers pass on may come back. An
// empty one, or null, is that of a call without arguments.
void give_arguments(const MessageForm& form, TemplateJson& arguments) {
  if (arguments.is_null() || arguments == "") arguments = "{}";
  if (form.arguments_are_text) {
    if (arguments.is_object()) arguments = spaced_json(arguments);
    return;
  }
  if (!arguments.is_string()) return;
  const auto& text = arguments.get_ref<const std::string&>();
  const JsonLimits limits = {.text_bytes_max = text.size(),
                             .depth_max = 64,
                             .names_repeat = true,
                             .keeps_wide_integers = true};
  Result<TemplateJson> parsed = parse_ordered_json(text, "arguments", limits);
  if (parsed.ok() && parsed->is_object()) arguments = std::move(parsed).value();
}

void shorten_id(const MessageForm& form, TemplateJson& object, const char* name) {
  const auto id = object.find(name);
  if (!form.short_ids || id == object.end() || !id->is_string()) return;
  *id = short_call_id(id->get_ref<const std::string&>());
}

// Clients repeat a message with all fields that it could have had: no calls are none, to templates
// that ask whether there is such a field, too.
void read_tool_calls(FieldReader& fields, const MessageForm& form, std::optional<ApiError>& fault,
                     TemplateJson& message) {
  const TemplateJson* const calls = fields.array_or_null("tool_calls");
  if (calls == nullptr || calls->empty()) message.erase("tool_calls");
  for (std::size_t i = 0; calls != nullptr && i < calls->size(); ++i) {
    const std::string at = item_path(fields.path_of("tool_calls"), i);
    if (!(*calls)[i].is_object()) {
      if (!fault.has_value()) fault = field_error(at, "must be an object");
      return;
    }
    FieldReader call((*calls)[i], at, fault);
    if (call.object_or_null("function") == nullptr) return call.fail("function", "missing");
    shorten_id(form, message["tool_calls"][i], "id");
    TemplateJson& function = message["tool_calls"][i]["function"];
    if (function.contains("arguments")) give_arguments(form, function["arguments"]);
  }
}

// The one call of an assistant as it was before there were tools, and what came of it: templates
// know only calls with identifiers. One of nine characters suits all of them.
class OldCalls {
 public:
  explicit OldCalls(const MessageForm& form) : form_(form) {}

  // REQUIRES: message is that of `fields`.
  void read(FieldReader& fields, TemplateJson& message) {
    if (message["role"] == "function") {
      message["role"] = "tool";
      if (fields.find_or_null("tool_call_id") == nullptr) message["tool_call_id"] = id();
    }
    const TemplateJson* const function = fields.object_or_null("function_call");
    message.erase("function_call");
    if (function == nullptr || message.contains("tool_calls")) return;
    ++calls_;
    TemplateJson call = {{"id", id()}, {"type", "function"}, {"function", *function}};
    if (function->contains("arguments")) give_arguments(form_, call["function"]["arguments"]);
    message["tool_calls"].push_back(std::move(call));
  }

 private:
  std::string id() const { return fmt::format("call{:05}", calls_); }

  const MessageForm& form_;
  std::size_t calls_ = 0;
};

TemplateJson read_message(const TemplateJson& given, const std::string& path,
                          const MessageForm& form, OldCalls& old_calls,
                          std::optional<ApiError>& fault) {
  TemplateJson message = given;
  FieldReader fields(given, path, fault);
  const auto role = fields.text("role", 64);
  if (!role.has_value()) {
    fields.fail("role", "missing");
  } else if (std::find(kRoles.begin(), kRoles.end(), *role) == kRoles.end()) {
    fields.fail("role", "must be system, developer, user, assistant or tool");
  } else if (*role == "developer") {
    message["role"] = "system";  // what models were trained on
  }
  // What an assistant thought: templates that print it have the name that most servers give it.
  const TemplateJson* const thoughts = fields.find_or_null("reasoning");
  const bool has_own_name = fields.find_or_null("reasoning_content") != nullptr;
  if (thoughts != nullptr && thoughts->is_string() && !has_own_name) {
    message["reasoning_content"] = *thoughts;
  }
  read_content(fields, form, fault, message);
  read_tool_calls(fields, form, fault, message);
  shorten_id(form, message, "tool_call_id");
  if (!fault.has_value()) old_calls.read(fields, message);
  return message;
}

// Adds a message, in two where the template prints no calls beside a text.
void add_message(TemplateJson message, const MessageForm& form, TemplateJson& messages) {
  if (!message.contains("tool_calls")) return messages.push_back(std::move(message));
  if (message["content"] != "") {
    if (!form.calls_stand_alone) return messages.push_back(std::move(message));
    TemplateJson said = message;
    said.erase("tool_calls");
    messages.push_back(std::move(said));
    message.erase("reasoning_content");
    message["content"] = "";
  }
  if (form.silence_is_null) message["content"] = nullptr;
  messages.push_back(std::move(message));
}

}  // namespace

TemplateJson read_messages(const TemplateJson& messages, const MessageForm& form,
                           std::optional<ApiError>& fault) {
  TemplateJson read = TemplateJson::array();
  OldCalls old_calls(form);
  if (messages.empty() && !fault.has_value()) {
    fault = field_error("messages", "must have at least one message");
  }
  for (std::size_t i = 0; i < messages.size() && !fault.has_value(); ++i) {
    const std::string path = item_path("messages", i);
    if (!messages[i].is_object()) {
      fault = field_error(path, "must be an object");
    } else {
      add_message(read_message(messages[i], path, form, old_calls, fault), form, read);
    }
  }
  return read;
}

}  // namespace stemma
