#include "model/tokenizer_flags.h"

#include <nlohmann/json.hpp>

#include "template/tokenizer_config.h"

namespace stemma {
namespace {

Result<std::string> token_text(const JsonField& root, std::string_view name) {
  STEMMA_ASSIGN_OR_RETURN(const JsonField field, root.member(name));
  const std::string* const text = special_token_text_or_null(field.value());
  if (text == nullptr || text->empty()) return field.corrupt("is no token");
  return *text;
}

Status read_flag(const JsonField& root, std::string_view token_name, TokenizerFlag& flag) {
  if (!root.try_member(flag.name)) return {};
  STEMMA_ASSIGN_OR_RETURN(const bool adds, root.bool_or(flag.name, false));
  flag.token.emplace();
  if (adds) {
    STEMMA_ASSIGN_OR_RETURN(flag.token, token_text(root, token_name));
  }
  return {};
}

}  // namespace

Result<TokenizerFlags> read_tokenizer_flags(const JsonField& config) {
  TokenizerFlags flags;
  STEMMA_ASSIGN_OR_RETURN(const std::string_view name, config.string_or("tokenizer_class", ""));
  flags.obeyed = obeys_token_flags(name);
  if (!flags.obeyed) return flags;
  STEMMA_RETURN_IF_ERROR(read_flag(config, "bos_token", flags.begin));
  STEMMA_RETURN_IF_ERROR(read_flag(config, "eos_token", flags.end));
  return flags;
}

}  // namespace stemma
