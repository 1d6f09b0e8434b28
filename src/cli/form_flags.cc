#include "cli/form_flags.h"

#include <utility>

#include "base/file.h"
#include "model/json_text.h"
#include "model/unicode_text.h"

namespace stemma {

void FormFlags::add_to(Flags& command) {
  command.add("--json-schema", schema_file_,
              "FILE with a schema of JSON: every answer is a text that keeps to it");
  command.add("--regex", expression_, "every answer is all that this expression matches");
}

Result<TextForm> FormFlags::form() const {
  TextForm form;
  if (expression_.has_value()) {
    if (!schema_file_.empty()) {
      return Error{ErrorCode::kInvalidArgument, "--json-schema or --regex, not both"};
    }
    if (!is_utf8(*expression_)) return Error{ErrorCode::kInvalidArgument, "--regex: no UTF-8"};
    form.kind = TextForm::Kind::kRegex;
    form.path = "--regex";
    form.expression = *expression_;
  } else if (!schema_file_.empty()) {
    PosixFiles files;
    const JsonLimits limits = {.depth_max = 64};
    STEMMA_ASSIGN_OR_RETURN(
        const std::string text,
        read_file(files, schema_file_, static_cast<std::int64_t>(limits.text_bytes_max)));
    STEMMA_ASSIGN_OR_RETURN(form.schema, parse_ordered_json(text, schema_file_, limits));
    form.kind = TextForm::Kind::kSchema;
    form.path = schema_file_;
  }
  return form;
}

}  // namespace stemma
