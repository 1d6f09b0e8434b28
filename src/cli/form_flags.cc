#include "cli/form_flags.h"

#include <utility>

#include "base/file.h"
#include "base/json_text.h"
#include "cli/flag_errors.h"
#include "model/unicode_text.h"

namespace stemma {
namespace {

constexpr std::int64_t kGrammarBytesMax = std::int64_t{1} << 20;

}  // namespace

void FormFlags::add_to(Flags& command) {
  command.add("--json-schema", schema_file_,
              "FILE with a schema of JSON: every answer is a text that keeps to it");
  command.add("--regex", expression_, "every answer is all that this expression matches");
  command.add("--grammar", grammar_file_,
              "FILE with rules (name ::= ...): every answer is a text that root is");
  command.add("--structural-tag", tag_file_,
              "FILE of JSON as XGrammar has it: every answer has forms where it says");
}

std::vector<NamedFile> FormFlags::files() const {
  return {{"--json-schema", schema_file_},
          {"--grammar", grammar_file_},
          {"--structural-tag", tag_file_}};
}

Result<std::string> FormFlags::read(const std::string& file, std::string_view flag,
                                    std::int64_t bytes_max, TextForm& form) {
  PosixFiles files;
  form.path = std::string(flag) + ": " + file;
  Result<std::string> text = read_file(files, file, bytes_max);
  if (!text.ok()) return named(flag, text.error());
  return text;
}

Status FormFlags::read_json(const std::string& file, std::string_view flag, TextForm& form) {
  const JsonLimits limits = {.depth_max = 64};
  STEMMA_ASSIGN_OR_RETURN(const std::string text,
                          read(file, flag, static_cast<std::int64_t>(limits.text_bytes_max), form));
  STEMMA_ASSIGN_OR_RETURN(form.schema, parse_ordered_json(text, form.path, limits));
  return {};
}

Result<TextForm> FormFlags::form() const {
  TextForm form;
  const int forms = (expression_.has_value() ? 1 : 0) + (schema_file_.empty() ? 0 : 1) +
                    (grammar_file_.empty() ? 0 : 1) + (tag_file_.empty() ? 0 : 1);
  if (forms > 1) {
    return Error{ErrorCode::kInvalidArgument,
                 "--json-schema, --regex, --grammar or --structural-tag, not several"};
  }
  if (expression_.has_value()) {
    if (!is_utf8(*expression_)) return Error{ErrorCode::kInvalidArgument, "--regex: no UTF-8"};
    form.kind = TextForm::Kind::kRegex;
    form.path = "--regex";
    form.expression = *expression_;
  } else if (!schema_file_.empty()) {
    STEMMA_RETURN_IF_ERROR(read_json(schema_file_, "--json-schema", form));
    form.kind = TextForm::Kind::kSchema;
  } else if (!tag_file_.empty()) {
    STEMMA_RETURN_IF_ERROR(read_json(tag_file_, "--structural-tag", form));
    form.kind = TextForm::Kind::kTag;
  } else if (!grammar_file_.empty()) {
    STEMMA_ASSIGN_OR_RETURN(form.rules, read(grammar_file_, "--grammar", kGrammarBytesMax, form));
    if (!is_utf8(form.rules)) {
      return Error{ErrorCode::kInvalidArgument, form.path + ": no UTF-8"};
    }
    form.kind = TextForm::Kind::kEbnf;
  }
  return form;
}

}  // namespace stemma
