#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/file.h"
#include "template/chat_template.h"
#include "template/tokenizer_config.h"

namespace stemma {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kTemplateBytesMax = std::int64_t{64} << 20;

Error field_error(std::string_view path, std::string_view field, std::string_view what) {
  return Error{ErrorCode::kCorrupt,
               std::string(path) + ": " + std::string(field) + ": " + std::string(what)};
}

Result<std::string> token_text(const Json& token, std::string_view path, std::string_view field) {
  const std::string* const text = special_token_text_or_null(token);
  if (text != nullptr) return *text;
  return field_error(path, field, "neither a text nor an object with content");
}

Result<std::optional<std::string>> special_token(const TokenizerConfig& config, const char* field) {
  const auto found = config.fields.find(field);
  if (found == config.fields.end() || found->is_null()) return std::optional<std::string>();
  STEMMA_ASSIGN_OR_RETURN(std::string text, token_text(*found, config.path, field));
  return std::optional<std::string>(std::move(text));
}

// A template as it was written, and what errors call it.
struct Source {
  std::string text;
  std::string name;
};

struct Sources {
  std::optional<Source> plain;
  std::optional<Source> with_tools;
};

// Of a list, those of two names.
Result<Sources> sources_in_list(const Json& list, const std::string& path, const char* field) {
  Sources sources;
  const std::string whole_name = path + ": " + field;
  const std::string tools_name = whole_name + ": tool_use";
  for (const Json& entry : list) {
    const bool whole = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                       entry.contains("template") && entry["template"].is_string();
    if (!whole) return field_error(path, field, "an entry without the texts name and template");
    const auto name = entry["name"].get<std::string>();
    const auto text = entry["template"].get<std::string>();
    if (name == "default") sources.plain = {text, whole_name};
    if (name == "tool_use") sources.with_tools = {text, tools_name};
  }
  if (sources.plain.has_value()) return sources;
  return field_error(path, field, "a list without an entry named \"default\"");
}

// In tokenizer_config.json, if there are some.
Result<Sources> sources_in_config(const TokenizerConfig& config) {
  constexpr const char* kField = "chat_template";
  const auto found = config.fields.find(kField);
  if (found == config.fields.end() || found->is_null()) return Sources();
  if (found->is_array()) return sources_in_list(*found, config.path, kField);
  if (!found->is_string()) return field_error(config.path, kField, "neither a text nor a list");
  Sources sources;
  sources.plain = {found->get<std::string>(), config.path + ": " + kField};
  return sources;
}

Result<std::optional<Source>> read_source(const std::filesystem::path& path) {
  PosixFiles files;
  STEMMA_ASSIGN_OR_RETURN(std::optional<std::string> text,
                          read_file_if_exists(files, path.string(), kTemplateBytesMax));
  if (!text.has_value()) return std::optional<Source>();
  return std::optional<Source>({*std::move(text), path.string()});
}

// In files of their own, if there are some.
Result<Sources> sources_in_files(const std::filesystem::path& model_dir) {
  Sources sources;
  STEMMA_ASSIGN_OR_RETURN(sources.plain, read_source(model_dir / "chat_template.jinja"));
  if (!sources.plain.has_value()) return sources;
  STEMMA_ASSIGN_OR_RETURN(sources.with_tools,
                          read_source(model_dir / "additional_chat_templates" / "tool_use.jinja"));
  return sources;
}

Result<SpecialTokens> special_tokens_of(const TokenizerConfig& config) {
  SpecialTokens tokens;
  STEMMA_ASSIGN_OR_RETURN(tokens.bos_token, special_token(config, "bos_token"));
  STEMMA_ASSIGN_OR_RETURN(tokens.eos_token, special_token(config, "eos_token"));
  for (const char* const name :
       {"unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    STEMMA_ASSIGN_OR_RETURN(auto token, special_token(config, name));
    if (token) tokens.others.emplace_back(name, *std::move(token));
  }
  const Json& fields = config.fields;
  if (const auto named = fields.find("extra_special_tokens");
      named != fields.end() && named->is_object()) {
    for (const auto& [name, token] : named->items()) {
      STEMMA_ASSIGN_OR_RETURN(std::string text,
                              token_text(token, config.path, "extra_special_tokens"));
      tokens.others.emplace_back(name, std::move(text));
    }
  }
  if (const auto listed = fields.find("additional_special_tokens");
      listed != fields.end() && listed->is_array()) {
    for (const Json& token : *listed) {
      STEMMA_ASSIGN_OR_RETURN(std::string text,
                              token_text(token, config.path, "additional_special_tokens"));
      tokens.additional.push_back(std::move(text));
    }
  }
  return tokens;
}

}  // namespace

Result<SpecialTokens> load_special_tokens(const std::filesystem::path& model_dir) {
  STEMMA_ASSIGN_OR_RETURN(const TokenizerConfig config, read_tokenizer_config(model_dir));
  return special_tokens_of(config);
}

Result<std::optional<ChatTemplates>> load_chat_templates(const std::filesystem::path& model_dir) {
  STEMMA_ASSIGN_OR_RETURN(const TokenizerConfig config, read_tokenizer_config(model_dir));
  STEMMA_ASSIGN_OR_RETURN(Sources sources, sources_in_files(model_dir));
  if (!sources.plain.has_value()) {
    STEMMA_ASSIGN_OR_RETURN(sources, sources_in_config(config));
  }
  if (!sources.plain.has_value()) return std::optional<ChatTemplates>();
  STEMMA_ASSIGN_OR_RETURN(const SpecialTokens tokens, special_tokens_of(config));
  const auto parsed = [&](const Source& source) {
    Result<ChatTemplate> chat = ChatTemplate::parse(source.text, source.name);
    if (chat.ok()) chat->set_special_tokens(tokens);
    return chat;
  };
  STEMMA_ASSIGN_OR_RETURN(ChatTemplate plain, parsed(*sources.plain));
  ChatTemplates chats(std::move(plain));
  if (sources.with_tools.has_value()) chats.set_with_tools(parsed(*sources.with_tools));
  return std::optional<ChatTemplates>(std::move(chats));
}

}  // namespace stemma
