#include "model/tokenizer_flags.h"

#include <array>
#include <nlohmann/json.hpp>

namespace stemma {
namespace {

// A class that reads the flags, without the "Fast" at the end of its name, and its tokens where the
// file names none.
struct TokenizerClass {
  std::string_view name;
  std::string_view begin_token;
  std::string_view end_token;
};
constexpr std::array kReadersOfFlags = {
    TokenizerClass{"LlamaTokenizer", "<s>", "</s>"},
    TokenizerClass{"CodeLlamaTokenizer", "<s>", "</s>"},
    TokenizerClass{"GemmaTokenizer", "<bos>", "<eos>"},
};

const TokenizerClass* find_class_or_null(std::string_view name) {
  constexpr std::string_view kFast = "Fast";
  if (name.ends_with(kFast)) name.remove_suffix(kFast.size());
  for (const TokenizerClass& known : kReadersOfFlags) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

// A special token: a text, or an object with the text in its field content.
Result<std::string> token_text(const JsonField& root, std::string_view name,
                               std::string_view usual) {
  if (!root.value().contains(name)) return std::string(usual);
  STEMMA_ASSIGN_OR_RETURN(JsonField field, root.member(name));
  if (field.value().is_object()) {
    STEMMA_ASSIGN_OR_RETURN(field, field.member("content"));
  }
  STEMMA_ASSIGN_OR_RETURN(const std::string_view text, field.as_string());
  if (text.empty()) return field.corrupt("is no token");
  return std::string(text);
}

Status read_flag(const JsonField& root, std::string_view token_name, std::string_view usual,
                 TokenizerFlag& flag) {
  if (!root.try_member(flag.name)) return {};
  STEMMA_ASSIGN_OR_RETURN(const bool adds, root.bool_or(flag.name, false));
  flag.token.emplace();
  if (adds) {
    STEMMA_ASSIGN_OR_RETURN(flag.token, token_text(root, token_name, usual));
  }
  return {};
}

}  // namespace

Result<TokenizerFlags> read_tokenizer_flags(const JsonField& config) {
  TokenizerFlags flags;
  STEMMA_ASSIGN_OR_RETURN(const std::string_view name, config.string_or("tokenizer_class", ""));
  const TokenizerClass* const reader = find_class_or_null(name);
  if (reader == nullptr) return flags;
  STEMMA_RETURN_IF_ERROR(read_flag(config, "bos_token", reader->begin_token, flags.begin));
  STEMMA_RETURN_IF_ERROR(read_flag(config, "eos_token", reader->end_token, flags.end));
  return flags;
}

}  // namespace stemma
