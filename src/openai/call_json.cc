#include "openai/call_json.h"

#include <functional>
#include <map>
#include <utility>

#include "base/json_text.h"
#include "openai/completion_answer.h"
#include "openai/text_marks.h"
#include "template/chat_template.h"

namespace stemma {
namespace {

constexpr auto kNone = std::string_view::npos;

// Where the text of JSON that begins at `at` with a quote ends; kNone: nowhere.
std::size_t end_of_text(std::string_view json, std::size_t at) {
  for (++at; at < json.size(); ++at) {
    if (json[at] == '\\') {
      ++at;
    } else if (json[at] == '"') {
      return at + 1;
    }
  }
  return kNone;
}

// What a text of JSON stands for. REQUIRES: it is one.
std::string unquoted(std::string_view json) {
  const Result<TemplateJson> text =
      parse_ordered_json(json, "call", {.text_bytes_max = json.size()});
  return text.ok() ? text->get<std::string>() : std::string();
}

using Members = std::map<std::string, std::string_view, std::less<>>;

// What an object has, as it was written; nullopt: it is none, or two of them have one name.
std::optional<Members> members_of(std::string_view object) {
  if (!is_json_object(object)) return std::nullopt;
  Members members;
  const auto skip = [&](std::size_t at) { return object.find_first_not_of(kMarkSpace, at); };
  std::size_t at = skip(1);
  while (object[at] != '}') {
    const std::size_t name_end = end_of_text(object, at);
    const std::size_t begin = skip(object.find(':', name_end) + 1);
    const std::size_t end = end_of_json_value(object, begin);
    const std::string_view value = without_space_behind(object.substr(begin, end - begin));
    const bool is_new = members.emplace(unquoted(object.substr(at, name_end - at)), value).second;
    if (!is_new) return std::nullopt;
    at = skip(end);
    if (object[at] == ',') at = skip(at + 1);
  }
  return members;
}

// A member that is an object, or a text of one.
std::optional<std::string> arguments_of(const Members& call, std::string_view name) {
  const auto found = call.find(name);
  if (found == call.end()) return std::nullopt;
  const std::string_view value = found->second;
  if (value.starts_with('{')) return std::string(value);
  if (!value.starts_with('"')) return std::nullopt;
  std::string written = unquoted(value);
  return is_json_object(trimmed(written)) ? std::optional(std::move(written)) : std::nullopt;
}

}  // namespace

bool is_json_object(std::string_view text) {
  return text.starts_with('{') && is_json(text);
}

std::size_t end_of_json_value(std::string_view json, std::size_t at) {
  const std::string_view value = json.substr(at);
  if (value.starts_with('"')) return end_of_text(json, at);
  if (!value.starts_with('{') && !value.starts_with('[')) return json.find_first_of(",}]", at);
  const std::size_t bytes = JsonValueSearch().find_end(value);
  return bytes == kNone ? kNone : at + bytes;
}

std::optional<ToolCall> call_of_object(std::string_view text) {
  const std::optional<Members> call = members_of(text);
  if (!call.has_value()) return std::nullopt;
  const auto name = call->find("name");
  if (name == call->end() || !name->second.starts_with('"')) return std::nullopt;
  for (const char* const member : {"arguments", "parameters"}) {
    if (auto arguments = arguments_of(*call, member)) {
      return ToolCall{unquoted(name->second), *std::move(arguments)};
    }
  }
  return std::nullopt;
}

std::size_t JsonValueSearch::find_end(std::string_view json) {
  for (; at_ < json.size() && !is_broken_; ++at_) {
    const char byte = json[at_];
    if (in_text_ && byte == '\\') {
      if (at_ + 1 == json.size()) break;
      ++at_;
    } else if (byte == '"') {
      in_text_ = !in_text_;
      if (!in_text_ && depth_ == 0) return ++at_;
    } else if (in_text_) {
      is_broken_ = byte == '\n';
    } else if (byte == '{' || byte == '[') {
      ++depth_;
    } else if ((byte == '}' || byte == ']') && --depth_ == 0) {
      return ++at_;
    }
  }
  return kNone;
}

}  // namespace stemma
