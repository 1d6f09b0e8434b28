#include "openai/message_form.h"

#include <optional>
#include <string>
#include <string_view>

#include "openai/text_marks.h"
#include "template/chat_template.h"

namespace stemma {
namespace {

// Texts that no template has.
constexpr std::string_view kKey = "probe_key_71";
constexpr std::string_view kValue = "probe_value_71";
constexpr std::string_view kSaid = "probe_said_71";

TemplateJson probe_tools() {
  TemplateJson function = {{"name", "probe"}, {"description", "probe"}};
  function["parameters"] = {{"type", "object"}, {"properties", TemplateJson::object()}};
  return TemplateJson::array({{{"type", "function"}, {"function", std::move(function)}}});
}

// Of calls. Mistral's templates let no longer one pass.
constexpr std::string_view kShortId = "call00000";
constexpr std::string_view kLongId = "call_000000000000";

// A turn with a call.
TemplateJson probe_messages(const TemplateJson& content, bool arguments_are_text,
                            std::string_view id) {
  TemplateJson arguments = {{kKey, kValue}};
  if (arguments_are_text) arguments = arguments.dump();
  TemplateJson call = {{"id", id}, {"type", "function"}};
  call["function"] = {{"name", "probe"}, {"arguments", std::move(arguments)}};
  TemplateJson messages = TemplateJson::array();
  messages.push_back({{"role", "user"}, {"content", "probe"}});
  messages.push_back({{"role", "assistant"}, {"content", content}});
  messages.back()["tool_calls"].push_back(std::move(call));
  messages.push_back({{"role", "tool"}, {"content", "probe"}, {"tool_call_id", id}});
  return messages;
}

RenderOptions probe_options() {
  RenderOptions options;
  options.strftime_now = [](std::string_view) { return std::string("1 Jan 2025"); };
  return options;
}

// What the template makes of a user's words; nothing where it refuses them.
std::optional<std::string> text_of_user(const ChatTemplate& chat, const TemplateJson& content) {
  const TemplateJson message = {{"role", "user"}, {"content", content}};
  const auto text = chat.render(TemplateJson::array({message}), probe_options());
  return text.ok() ? std::optional(*text) : std::nullopt;
}

// Whether the template prints the parts of a user's content, one behind the other, as it prints a
// text that is joined so.
bool joins_user_parts(const ChatTemplate& chat) {
  TemplateJson parts = TemplateJson::array();
  for (const std::string_view text : {kKey, kValue}) {
    parts.push_back({{"type", "text"}, {"text", text}});
  }
  const auto of_parts = text_of_user(chat, parts);
  if (!of_parts.has_value()) return false;
  const std::size_t first = of_parts->find(kKey);
  const std::size_t second = of_parts->find(kValue);
  if (first == std::string::npos || second == std::string::npos || second < first) return false;
  const std::string joined = of_parts->substr(first, second + kValue.size() - first);
  const std::string_view between =
      std::string_view(joined).substr(kKey.size(), joined.size() - kKey.size() - kValue.size());
  return trimmed(between).empty() && text_of_user(chat, joined) == of_parts;
}

// What the template makes of the turn; nothing where it refuses it, leaves the call out or prints
// its arguments as no template was meant to: as Python shows an object, or as a text in a text.
std::optional<std::string> text_with_call(const ChatTemplate& chat, const TemplateJson& content,
                                          bool arguments_are_text, std::string_view id = kShortId) {
  RenderOptions options = probe_options();
  options.tools = probe_tools();
  const auto text = chat.render(probe_messages(content, arguments_are_text, id), options);
  const auto has = [&](const std::string& part) { return text->find(part) != std::string::npos; };
  if (!text.ok() || !has(std::string(kValue))) return std::nullopt;
  if (has("{'" + std::string(kKey)) || has("\\\"" + std::string(kKey))) return std::nullopt;
  return *text;
}

}  // namespace

// Null is what the templates were written for; where it fails, or is printed as a word, they were
// written for a text in any case.
MessageForm message_form_of(const ChatTemplate& chat) {
  MessageForm form = {.user_parts_stay = joins_user_parts(chat)};
  for (const bool as_text : {false, true}) {
    const auto with_null = text_with_call(chat, nullptr, as_text);
    const auto with_empty = text_with_call(chat, "", as_text);
    if (!with_null.has_value() && !with_empty.has_value()) continue;
    const bool prints_null = with_null.has_value() && with_empty.has_value() &&
                             with_null->size() != with_empty->size() &&
                             with_null->find("None") != std::string::npos;
    const bool beside_text = text_with_call(chat, std::string(kSaid), as_text).has_value();
    const TemplateJson silence = with_null.has_value() ? TemplateJson() : TemplateJson("");
    form.silence_is_null = with_null.has_value() && !prints_null;
    form.calls_stand_alone = !beside_text;
    form.arguments_are_text = as_text;
    form.short_ids = !text_with_call(chat, silence, as_text, kLongId).has_value();
    break;
  }
  return form;
}

}  // namespace stemma
