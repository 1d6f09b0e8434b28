#include "grammar/text_form.h"

#include <string_view>
#include <utility>

#include "grammar/byte_regex.h"
#include "grammar/ebnf.h"
#include "grammar/json_schema.h"
#include "grammar/structural_tag.h"

namespace stemma {
namespace {

using Part = ByteGrammar::Part;

Error behind(const std::string& path, const Error& error) {
  return {error.code, path + ": " + error.detail};
}

}  // namespace

std::string text_form_key(const TextForm& form) {
  const TemplateJson key = {static_cast<int>(form.kind),
                            form.strict,
                            form.schema,
                            static_cast<int>(form.space),
                            form.expression,
                            form.rules,
                            form.texts};
  return key.dump(-1, ' ', false, TemplateJson::error_handler_t::replace);
}

Result<Part> add_text_form(const TextForm& form, ByteGrammar& grammar) {
  switch (form.kind) {
    case TextForm::Kind::kFree:
      break;
    case TextForm::Kind::kSchema:
      return add_json_schema(form.schema, {.strict = form.strict, .path = form.path},
                             JsonParts(grammar, form.space));
    case TextForm::Kind::kRegex: {
      Result<Part> part = add_regex(form.expression, RegexMatch::kWhole, grammar);
      if (!part.ok()) return behind(form.path, part.error());
      return part;
    }
    case TextForm::Kind::kEbnf: {
      Result<Part> part = add_ebnf(form.rules, grammar);
      if (!part.ok()) return behind(form.path, part.error());
      return part;
    }
    case TextForm::Kind::kOneOf:
      return grammar.one_text_of(
          std::vector<std::string_view>(form.texts.begin(), form.texts.end()));
    case TextForm::Kind::kTag:
      return add_structural_tag(form.schema, form.path, grammar);
  }
  return Error{ErrorCode::kInvalidArgument, form.path + ": a text of no form"};
}

Result<OwnedConstraint> open_text_form(const TextForm& form, GrammarBook& book) {
  if (form.kind == TextForm::Kind::kFree) return OwnedConstraint();
  Result<OwnedConstraint> opened = book.open(
      text_form_key(form), [&](ByteGrammar& grammar) { return add_text_form(form, grammar); });
  if (opened.ok() || opened.error().detail.starts_with(form.path)) return opened;
  return behind(form.path, opened.error());
}

}  // namespace stemma
