// ChatTemplate: a conversation as the text that a model was trained on, by the template in the
// model's own files.
//
// Thread:     immutable; any number of renderings at a time.
// Memory:     the template and what it was parsed to; a rendering is bounded by RenderLimits.
// Cost:       O(template + messages) for what templates do; every rendering makes its values anew.
// Not here:   tokens (model/): a text that a template wrote gets no second BOS.
//
// Templates are Jinja. Stemma renders the part that the model families use, with trim_blocks and
// lstrip_blocks on, and refuses any other construct by its name when the template is parsed: a
// guess would be a wrong prompt.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stemma/result.h"
#include "template/arena.h"
#include "template/program.h"

namespace stemma {

// JSON whose objects keep their order: templates print tools and arguments as the client wrote
// them. Parse requests into this type; a plain nlohmann::json converts, its keys sorted.
using TemplateJson = nlohmann::ordered_json;

struct RenderOptions {
  bool add_generation_prompt = true;
  // The text ends with that of the last message, for an answer that goes on from it.
  bool continue_final_message = false;
  // The texts of the model's own tokens; absent ones are those of the model's files (see
  // load_chat_templates).
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  TemplateJson tools;  // an array; null for none
  TemplateJson extra;  // an object of more variables, such as enable_thinking; null for none
  // The current date in a strftime format. Empty: templates find no strftime_now and use their own
  // date.
  std::function<std::string(std::string_view format)> strftime_now;
  jinja::RenderLimits limits;
};

// Texts of a model's own tokens, as its files have them (tokenizer_config); absent: they say
// nothing.
struct SpecialTokens {
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  // Those that templates alone read, by their names there: unk_token, sep_token, pad_token,
  // cls_token, mask_token, and those of extra_special_tokens.
  std::vector<std::pair<std::string, std::string>> others = {};
  std::vector<std::string> additional = {};  // additional_special_tokens
};

class ChatTemplate {
 public:
  // Errors name file, line and construct: kUnsupported for Jinja that is not rendered, kCorrupt for
  // a mistake.
  static Result<ChatTemplate> parse(std::string_view source, std::string_view file_name);

  // The text of `messages`, an array of objects. Errors: what the template refuses
  // (raise_exception), an operation that has no meaning for these messages, a last message that
  // cannot be gone on from (kInvalidArgument), a limit (kTooLarge).
  Result<std::string> render(const TemplateJson& messages, const RenderOptions& options) const;

  // As it was parsed.
  const std::string& source() const noexcept { return source_; }

  // What the names of tokens stand for where RenderOptions says nothing of them. Absent: undefined,
  // which prints as nothing.
  void set_special_tokens(SpecialTokens tokens) { special_tokens_ = std::move(tokens); }
  const SpecialTokens& special_tokens() const { return special_tokens_; }

 private:
  ChatTemplate(std::string_view source, std::unique_ptr<const jinja::Program> program);
  Result<std::string> render_whole(const TemplateJson& messages,
                                   const RenderOptions& options) const;
  Result<std::string> render_unfinished(TemplateJson messages, const RenderOptions& options) const;

  std::string source_;
  std::unique_ptr<const jinja::Program> program_;
  SpecialTokens special_tokens_;
};

// Errors name the file and the field; no file is none.
Result<SpecialTokens> load_special_tokens(const std::filesystem::path& model_dir);

// The templates of a model: that of its chats, and of chats with tools where those have another.
class ChatTemplates {
 public:
  explicit ChatTemplates(ChatTemplate plain) : plain_(std::move(plain)) {}
  // An error: chats with tools are refused with it.
  void set_with_tools(Result<ChatTemplate> with_tools) { with_tools_ = std::move(with_tools); }

  const ChatTemplate& plain() const noexcept { return plain_; }
  // nullptr where the one for chats with tools cannot be rendered.
  const ChatTemplate* find_or_null(bool has_tools) const;
  // By the template for chats with these tools, or without.
  Result<std::string> render(const TemplateJson& messages, const RenderOptions& options) const;

 private:
  ChatTemplate plain_;
  std::optional<Result<ChatTemplate>> with_tools_;
};

// Those of a model: chat_template.jinja, and additional_chat_templates/tool_use.jinja; else the
// field chat_template of tokenizer_config.json, a text, or a list of which those named "default"
// and "tool_use" are taken; with the model's special tokens. Nothing where the model has no
// template. Errors name the file and the field.
Result<std::optional<ChatTemplates>> load_chat_templates(const std::filesystem::path& model_dir);

}  // namespace stemma
