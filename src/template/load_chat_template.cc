#include <utility>

#include "base/file.h"
#include "template/chat_template.h"

namespace stemma {
namespace {

constexpr std::int64_t kFileBytesMax = std::int64_t{64} << 20;

Error field_error(const std::filesystem::path& path, std::string_view field,
                  std::string_view what) {
  return Error{ErrorCode::kCorrupt,
               path.string() + ": " + std::string(field) + ": " + std::string(what)};
}

// tokenizer_config.json as an object; null where there is no file.
Result<TemplateJson> read_config(const std::filesystem::path& path) {
  PosixFiles files;
  STEMMA_ASSIGN_OR_RETURN(const auto text,
                          read_file_if_exists(files, path.string(), kFileBytesMax));
  if (!text) return TemplateJson();
  TemplateJson config = TemplateJson::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    return Error{ErrorCode::kCorrupt, path.string() + ": not a JSON object"};
  }
  return config;
}

// A special token: a text, or an object with the text in its field content.
Result<std::optional<std::string>> special_token(const TemplateJson& config,
                                                 const std::filesystem::path& path,
                                                 const char* field) {
  const auto found = config.find(field);
  if (found == config.end() || found->is_null()) return std::optional<std::string>();
  const TemplateJson* text = &*found;
  if (found->is_object() && found->contains("content")) text = &(*found)["content"];
  if (!text->is_string())
    return field_error(path, field, "neither a text nor an object with content");
  return std::optional<std::string>(text->get<std::string>());
}

// The template in tokenizer_config.json, if there is one.
Result<std::optional<std::string>> template_field(const TemplateJson& config,
                                                  const std::filesystem::path& path) {
  constexpr const char* kField = "chat_template";
  const auto found = config.find(kField);
  if (found == config.end() || found->is_null()) return std::optional<std::string>();
  if (found->is_string()) return std::optional<std::string>(found->get<std::string>());
  if (!found->is_array()) return field_error(path, kField, "neither a text nor a list");
  for (const TemplateJson& entry : *found) {
    const bool whole = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                       entry.contains("template") && entry["template"].is_string();
    if (!whole) return field_error(path, kField, "an entry without the texts name and template");
    if (entry["name"].get_ref<const std::string&>() == "default") {
      return std::optional<std::string>(entry["template"].get<std::string>());
    }
  }
  return field_error(path, kField, "a list without an entry named \"default\"");
}

Result<SpecialTokens> special_tokens_of(const TemplateJson& config,
                                        const std::filesystem::path& path) {
  SpecialTokens tokens;
  if (config.is_null()) return tokens;
  STEMMA_ASSIGN_OR_RETURN(tokens.bos_token, special_token(config, path, "bos_token"));
  STEMMA_ASSIGN_OR_RETURN(tokens.eos_token, special_token(config, path, "eos_token"));
  return tokens;
}

}  // namespace

Result<SpecialTokens> load_special_tokens(const std::filesystem::path& model_dir) {
  const std::filesystem::path path = model_dir / "tokenizer_config.json";
  STEMMA_ASSIGN_OR_RETURN(const TemplateJson config, read_config(path));
  return special_tokens_of(config, path);
}

Result<std::optional<ChatTemplate>> load_chat_template(const std::filesystem::path& model_dir) {
  const std::filesystem::path jinja_path = model_dir / "chat_template.jinja";
  const std::filesystem::path config_path = model_dir / "tokenizer_config.json";
  STEMMA_ASSIGN_OR_RETURN(const TemplateJson config, read_config(config_path));
  PosixFiles files;
  STEMMA_ASSIGN_OR_RETURN(std::optional<std::string> source,
                          read_file_if_exists(files, jinja_path.string(), kFileBytesMax));
  std::string name = jinja_path.string();
  if (!source && !config.is_null()) {
    STEMMA_ASSIGN_OR_RETURN(source, template_field(config, config_path));
    name = config_path.string() + ": chat_template";
  }
  if (!source) return std::optional<ChatTemplate>();
  STEMMA_ASSIGN_OR_RETURN(ChatTemplate chat, ChatTemplate::parse(*source, name));
  STEMMA_ASSIGN_OR_RETURN(SpecialTokens tokens, special_tokens_of(config, config_path));
  chat.set_special_tokens(std::move(tokens.bos_token), std::move(tokens.eos_token));
  return std::optional<ChatTemplate>(std::move(chat));
}

}  // namespace stemma
