#include "template/chat_template.h"

#include <utility>

#include "template/parser.h"
#include "template/python_text.h"
#include "template/renderer.h"
#include "template/template_json.h"

namespace stemma {
namespace {

using jinja::Value;

void set_functions(jinja::Scopes& scopes, const RenderOptions& options) {
  scopes.set("raise_exception", Value::function(jinja::Function::kRaiseException));
  scopes.set("namespace", Value::function(jinja::Function::kNamespace));
  scopes.set("range", Value::function(jinja::Function::kRange));
  scopes.set("dict", Value::function(jinja::Function::kDict));
  if (options.strftime_now) {
    scopes.set("strftime_now", Value::function(jinja::Function::kStrftimeNow));
  }
}

// REQUIRES: the texts outlive the rendering.
Value list_of_texts(jinja::Arena& arena, const std::vector<std::string>& texts) {
  std::vector<Value> items;
  for (const std::string& text : texts) items.push_back(Value::text(text));
  return arena.sequence(jinja::Kind::kList, std::move(items));
}

// Binds `name`, or says which of the caller's values cannot be one.
Status set_json(jinja::Scopes& scopes, jinja::Arena& arena, std::string_view name,
                const TemplateJson& json) {
  Result<Value> value = jinja::from_json(arena, json);
  if (!value.ok())
    return Error{value.error().code, std::string(name) + ": " + value.error().detail};
  scopes.set(name, *value);
  return {};
}

// The text that a message ends with; nullptr: it has none.
std::string* last_text_or_null(TemplateJson& message) {
  if (!message.is_object() || !message.contains("content")) return nullptr;
  TemplateJson* text = &message["content"];
  if (text->is_array()) {
    if (text->empty() || !text->back().is_object() || !text->back().contains("text"))
      return nullptr;
    text = &text->back()["text"];
  }
  return text->is_string() ? &text->get_ref<std::string&>() : nullptr;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, std::unique_ptr<const jinja::Program> program)
    : source_(source), program_(std::move(program)) {}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, std::string_view file_name) {
  STEMMA_ASSIGN_OR_RETURN(auto program, jinja::parse_program(source, file_name));
  return ChatTemplate(source, std::move(program));
}

Result<std::string> ChatTemplate::render(const TemplateJson& messages,
                                         const RenderOptions& options) const {
  if (!messages.is_array()) {
    return Error{ErrorCode::kInvalidArgument, "messages: not an array"};
  }
  return options.continue_final_message ? render_unfinished(messages, options)
                                        : render_whole(messages, options);
}

// A mark behind the last message's text tells where that ends, whatever the template writes behind
// it. The spaces behind the mark, such as no template writes, are gone where it trims what it
// prints: those that the message ends with are gone then, too.
Result<std::string> ChatTemplate::render_unfinished(TemplateJson messages,
                                                    const RenderOptions& options) const {
  constexpr std::string_view kMark = "[the text goes on here]";
  constexpr std::string_view kSpaces = "\t\n\t";
  const auto fails = [](std::string_view why) {
    return Error{ErrorCode::kInvalidArgument, "continue_final_message: " + std::string(why)};
  };
  std::string* const last = messages.empty() ? nullptr : last_text_or_null(messages.back());
  if (last == nullptr) return fails("the last message has no text");
  std::string& content = *last;
  const std::string trimmed(jinja::strip(content, jinja::Side::kRight));
  content.append(kMark).append(kSpaces);
  STEMMA_ASSIGN_OR_RETURN(std::string text, render_whole(messages, options));
  std::size_t end = text.rfind(kMark);
  const bool trims = end != std::string::npos &&
                     !std::string_view(text).substr(end + kMark.size()).starts_with(kSpaces);
  if (trims) {
    content = trimmed + std::string(kMark);
    STEMMA_ASSIGN_OR_RETURN(text, render_whole(messages, options));
    end = text.rfind(kMark);
  }
  if (end == std::string::npos) return fails("the template leaves out the last message's text");
  text.resize(end);
  return text;
}

Result<std::string> ChatTemplate::render_whole(const TemplateJson& messages,
                                               const RenderOptions& options) const {
  if (!options.extra.is_null() && !options.extra.is_object()) {
    return Error{ErrorCode::kInvalidArgument, "extra: not an object"};
  }
  jinja::Arena arena(options.limits);
  jinja::Scopes scopes;
  set_functions(scopes, options);
  const SpecialTokens& own = special_tokens_;
  const auto& bos_token = options.bos_token ? options.bos_token : own.bos_token;
  const auto& eos_token = options.eos_token ? options.eos_token : own.eos_token;
  if (bos_token) scopes.set("bos_token", Value::text(*bos_token));
  if (eos_token) scopes.set("eos_token", Value::text(*eos_token));
  for (const auto& [name, text] : own.others) scopes.set(name, Value::text(text));
  if (!own.additional.empty()) {
    scopes.set("additional_special_tokens", list_of_texts(arena, own.additional));
  }
  STEMMA_RETURN_IF_ERROR(set_json(scopes, arena, "messages", messages));
  STEMMA_RETURN_IF_ERROR(set_json(scopes, arena, "tools", options.tools));
  scopes.set("documents", Value::none());
  scopes.set("add_generation_prompt", Value::boolean(options.add_generation_prompt));
  for (const auto& [name, value] : options.extra.items()) {
    STEMMA_RETURN_IF_ERROR(set_json(scopes, arena, name, value));
  }
  return jinja::Renderer(*program_, arena, scopes, options.strftime_now).run();
}

const ChatTemplate* ChatTemplates::find_or_null(bool has_tools) const {
  if (!has_tools || !with_tools_.has_value()) return &plain_;
  return with_tools_->ok() ? &**with_tools_ : nullptr;
}

Result<std::string> ChatTemplates::render(const TemplateJson& messages,
                                          const RenderOptions& options) const {
  const ChatTemplate* const chat = find_or_null(!options.tools.is_null());
  if (chat != nullptr) return chat->render(messages, options);
  return Error{with_tools_->error().code,
               "the model's template for chats with tools cannot be rendered: " +
                   with_tools_->error().detail};
}

}  // namespace stemma
