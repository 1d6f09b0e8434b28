#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"
#include "template/chat_template.h"

namespace stemma {
namespace {

// Fields are found by their names here: where objects keep their order, each would be looked for
// among all before it, and of some models these are many thousand tokens.
using Json = nlohmann::json;

constexpr std::int64_t kFileBytesMax = std::int64_t{64} << 20;
constexpr JsonLimits kConfigLimits = {
    .text_bytes_max = kFileBytesMax, .depth_max = 64, .names_repeat = true};

Error field_error(const std::filesystem::path& path, std::string_view field,
                  std::string_view what) {
  return Error{ErrorCode::kCorrupt,
               path.string() + ": " + std::string(field) + ": " + std::string(what)};
}

// tokenizer_config.json as an object; null where there is no file.
Result<Json> read_config(const std::filesystem::path& path) {
  PosixFiles files;
  STEMMA_ASSIGN_OR_RETURN(const auto text,
                          read_file_if_exists(files, path.string(), kFileBytesMax));
  if (!text) return Json();
  return parse_json_object(*text, path.string(), kConfigLimits);
}

// A special token: a text, or an object with the text in its field content.
Result<std::string> token_text(const Json& token, const std::filesystem::path& path,
                               std::string_view field) {
  const Json* text = &token;
  if (token.is_object() && token.contains("content")) text = &token["content"];
  if (!text->is_string())
    return field_error(path, field, "neither a text nor an object with content");
  return text->get<std::string>();
}

Result<std::optional<std::string>> special_token(const Json& config,
                                                 const std::filesystem::path& path,
                                                 const char* field) {
  const auto found = config.find(field);
  if (found == config.end() || found->is_null()) return std::optional<std::string>();
  STEMMA_ASSIGN_OR_RETURN(std::string text, token_text(*found, path, field));
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
Result<Sources> sources_in_list(const Json& list, const std::filesystem::path& path,
                                const char* field) {
  Sources sources;
  const std::string whole_name = path.string() + ": " + field;
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
Result<Sources> sources_in_config(const Json& config, const std::filesystem::path& path) {
  constexpr const char* kField = "chat_template";
  const auto found = config.find(kField);
  if (found == config.end() || found->is_null()) return Sources();
  if (found->is_array()) return sources_in_list(*found, path, kField);
  if (!found->is_string()) return field_error(path, kField, "neither a text nor a list");
  Sources sources;
  sources.plain = {found->get<std::string>(), path.string() + ": " + kField};
  return sources;
}

Result<std::optional<Source>> read_source(const std::filesystem::path& path) {
  PosixFiles files;
  STEMMA_ASSIGN_OR_RETURN(std::optional<std::string> text,
                          read_file_if_exists(files, path.string(), kFileBytesMax));
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

Result<SpecialTokens> special_tokens_of(const Json& config, const std::filesystem::path& path) {
  SpecialTokens tokens;
  if (config.is_null()) return tokens;
  STEMMA_ASSIGN_OR_RETURN(tokens.bos_token, special_token(config, path, "bos_token"));
  STEMMA_ASSIGN_OR_RETURN(tokens.eos_token, special_token(config, path, "eos_token"));
  for (const char* const name :
       {"unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    STEMMA_ASSIGN_OR_RETURN(auto token, special_token(config, path, name));
    if (token) tokens.others.emplace_back(name, *std::move(token));
  }
  if (const auto named = config.find("extra_special_tokens");
      named != config.end() && named->is_object()) {
    for (const auto& [name, token] : named->items()) {
      STEMMA_ASSIGN_OR_RETURN(std::string text, token_text(token, path, "extra_special_tokens"));
      tokens.others.emplace_back(name, std::move(text));
    }
  }
  if (const auto listed = config.find("additional_special_tokens");
      listed != config.end() && listed->is_array()) {
    for (const Json& token : *listed) {
      STEMMA_ASSIGN_OR_RETURN(std::string text,
                              token_text(token, path, "additional_special_tokens"));
      tokens.additional.push_back(std::move(text));
    }
  }
  return tokens;
}

}  // namespace

Result<SpecialTokens> load_special_tokens(const std::filesystem::path& model_dir) {
  const std::filesystem::path path = model_dir / "tokenizer_config.json";
  STEMMA_ASSIGN_OR_RETURN(const Json config, read_config(path));
  return special_tokens_of(config, path);
}

Result<std::optional<ChatTemplates>> load_chat_templates(const std::filesystem::path& model_dir) {
  const std::filesystem::path config_path = model_dir / "tokenizer_config.json";
  STEMMA_ASSIGN_OR_RETURN(const Json config, read_config(config_path));
  STEMMA_ASSIGN_OR_RETURN(Sources sources, sources_in_files(model_dir));
  if (!sources.plain.has_value() && !config.is_null()) {
    STEMMA_ASSIGN_OR_RETURN(sources, sources_in_config(config, config_path));
  }
  if (!sources.plain.has_value()) return std::optional<ChatTemplates>();
  STEMMA_ASSIGN_OR_RETURN(const SpecialTokens tokens, special_tokens_of(config, config_path));
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
