// Messages of a chat, from the many forms that clients send to the one that templates read.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "model/json_text.h"
#include "openai/completion_request.h"
#include "openai/field_reader.h"

namespace stemma {
namespace {

constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "function"};

// Parts are joined by line breaks. Anything but text is refused: it would be dropped in silence.
std::string joined_parts(const TemplateJson& parts, const std::string& path,
                         std::optional<ApiError>& fault) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string at = item_path(path, i);
    if (!parts[i].is_object()) {
      if (!fault.has_value()) fault = field_error(at, "must be an object");
      return text;
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
      if (i > 0) text += '\n';
      text += content->get_ref<const std::string&>();
    }
  }
  return text;
}

void read_content(FieldReader& fields, bool may_miss, std::optional<ApiError>& fault,
                  TemplateJson& message) {
  const TemplateJson* const content = fields.find_or_null("content");
  if (content == nullptr) {
    if (!may_miss) fields.fail("content", "missing");
    message["content"] = "";
  } else if (content->is_array()) {
    message["content"] = joined_parts(*content, fields.path_of("content"), fault);
  } else if (!content->is_string()) {
    fields.fail("content", "must be a string or an array of parts");
  }
}

// Arguments come as a text of JSON; templates print them as an object. An empty text is that of a
// call without arguments.
void read_tool_calls(FieldReader& fields, std::optional<ApiError>& fault, TemplateJson& message) {
  const TemplateJson* const calls = fields.array_or_null("tool_calls");
  for (std::size_t i = 0; calls != nullptr && i < calls->size(); ++i) {
    const std::string at = item_path(fields.path_of("tool_calls"), i);
    if (!(*calls)[i].is_object()) {
      if (!fault.has_value()) fault = field_error(at, "must be an object");
      return;
    }
    FieldReader call((*calls)[i], at, fault);
    const TemplateJson* const function = call.object_or_null("function");
    if (function == nullptr) return call.fail("function", "missing");
    const auto arguments = function->find("arguments");
    if (arguments == function->end() || !arguments->is_string()) continue;
    const JsonLimits limits = {.depth_max = 64, .fields_max = 512};
    const std::string& text = arguments->get_ref<const std::string&>();
    Result<TemplateJson> parsed =
        parse_ordered_json(text.empty() ? "{}" : text, "arguments", limits);
    if (parsed.ok() && parsed->is_object()) {
      message["tool_calls"][i]["function"]["arguments"] = std::move(parsed).value();
    }
  }
}

TemplateJson read_message(const TemplateJson& given, const std::string& path,
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
  if (thoughts != nullptr && thoughts->is_string() && !given.contains("reasoning_content")) {
    message["reasoning_content"] = *thoughts;
  }
  const bool calls = fields.find_or_null("tool_calls") != nullptr;
  const bool says_else = calls || message.contains("reasoning_content");
  read_content(fields, /*may_miss=*/role == "assistant" && says_else, fault, message);
  read_tool_calls(fields, fault, message);
  return message;
}

}  // namespace

TemplateJson read_messages(const TemplateJson& messages, std::optional<ApiError>& fault) {
  TemplateJson read = TemplateJson::array();
  if (messages.empty() && !fault.has_value()) {
    fault = field_error("messages", "must have at least one message");
  }
  for (std::size_t i = 0; i < messages.size() && !fault.has_value(); ++i) {
    const std::string path = item_path("messages", i);
    if (!messages[i].is_object()) {
      fault = field_error(path, "must be an object");
    } else {
      read.push_back(read_message(messages[i], path, fault));
    }
  }
  return read;
}

}  // namespace stemma
