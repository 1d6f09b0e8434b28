#include "model/tokenizer_template.h"

#include <utility>

#include "model/tokenizer_vocabulary.h"

namespace stemma {
namespace {

constexpr std::size_t kAroundTokensMax = 1024;

// The ids of {"SpecialToken": {"id": "<s>"}}, as "special_tokens" gives them.
Result<std::vector<TokenId>> ids_of(const JsonField& piece, const JsonField& special_tokens) {
  STEMMA_ASSIGN_OR_RETURN(const JsonField name_field, piece.member("id"));
  STEMMA_ASSIGN_OR_RETURN(const std::string_view name, name_field.as_string());
  STEMMA_ASSIGN_OR_RETURN(const JsonField entry, special_tokens.member(name));
  STEMMA_ASSIGN_OR_RETURN(const JsonField ids, entry.member("ids"));
  STEMMA_RETURN_IF_ERROR(ids.expect_array());
  std::vector<TokenId> tokens;
  for (std::size_t position = 0; position < ids.element_count(); ++position) {
    STEMMA_ASSIGN_OR_RETURN(const std::int64_t id,
                            ids.element(position).as_integer(0, kTokenIdMax));
    tokens.push_back(static_cast<TokenId>(id));
  }
  return tokens;
}

}  // namespace

Result<TokenizerTemplate> TokenizerTemplate::parse(const JsonField& field) {
  TokenizerTemplate around;
  STEMMA_RETURN_IF_ERROR(around.add(field));
  if (around.before_.size() + around.after_.size() > kAroundTokensMax) {
    return field.error(ErrorCode::kTooLarge, "more than 1024 tokens around a text");
  }
  return around;
}

Status TokenizerTemplate::add(const JsonField& field) {
  STEMMA_ASSIGN_OR_RETURN(const std::string_view type, field.type_name());
  if (type == "TemplateProcessing") {
    return add_template(field);
  }
  if (type == "ByteLevel") {
    return {};  // about offsets, which Stemma does not give
  }
  if (type != "Sequence") {
    return field.unsupported("post_processor " + in_quotes(type) + " is not supported");
  }
  STEMMA_ASSIGN_OR_RETURN(const JsonField members, field.member("processors"));
  STEMMA_RETURN_IF_ERROR(members.expect_array());
  for (std::size_t member = 0; member < members.element_count(); ++member) {
    STEMMA_RETURN_IF_ERROR(add(members.element(member)));
  }
  return {};
}

Status TokenizerTemplate::add_template(const JsonField& field) {
  STEMMA_ASSIGN_OR_RETURN(const JsonField single, field.member("single"));
  STEMMA_RETURN_IF_ERROR(single.expect_array());
  STEMMA_ASSIGN_OR_RETURN(const JsonField special_tokens, field.member("special_tokens"));
  STEMMA_RETURN_IF_ERROR(special_tokens.expect_object());
  std::vector<TokenId> before;
  std::vector<TokenId> after;
  bool has_text = false;
  for (std::size_t position = 0; position < single.element_count(); ++position) {
    const JsonField piece = single.element(position);
    STEMMA_RETURN_IF_ERROR(piece.expect_object());
    if (const auto special = piece.try_member("SpecialToken")) {
      STEMMA_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, ids_of(*special, special_tokens));
      std::vector<TokenId>& side = has_text ? after : before;
      side.insert(side.end(), ids.begin(), ids.end());
      continue;
    }
    STEMMA_ASSIGN_OR_RETURN(const JsonField sequence, piece.member("Sequence"));
    STEMMA_ASSIGN_OR_RETURN(const JsonField which, sequence.member("id"));
    STEMMA_ASSIGN_OR_RETURN(const std::string_view name, which.as_string());
    if (name != "A" || std::exchange(has_text, true)) {
      return which.unsupported("only one text, A, is supported, not " + in_quotes(name));
    }
  }
  if (!has_text) {
    return single.corrupt("has no place for the text");
  }
  before_.insert(before_.begin(), before.begin(), before.end());
  after_.insert(after_.end(), after.begin(), after.end());
  return {};
}

}  // namespace stemma
