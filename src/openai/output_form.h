// OutputForm: where a client says what the text of an answer has to be, and which tools it has to
// call.
//
// Thread:     pure functions and values.
// Memory:     the schema.
// Cost:       O(JSON).
// Not here:   which texts are of a schema (grammar/), how calls are written (tool_calls).
//
// Fields: OpenAI's `response_format` (and as others have it, with a structural tag) and
// `tool_choice`; `guided_json`, `guided_regex`, `guided_grammar`, `guided_choice` and
// `structured_outputs` of vLLM (with `disable_any_whitespace`), `json_schema`, `regex`, `ebnf` and
// `structural_tag` of SGLang.
#pragma once

#include <optional>
#include <string>

#include "grammar/text_form.h"
#include "openai/api_error.h"
#include "template/chat_template.h"

namespace stemma {

class FieldReader;

// kFree where the request says nothing. Two forms, and one that is not known, are faults.
TextForm read_output_form(FieldReader& fields, std::optional<ApiError>& fault);

// tool_choice.
struct ToolChoice {
  bool forced = false;  // the answer is calls
  std::string name;     // of this tool; empty: of any
};

// REQUIRES: `tools` as templates read them, null where there are none.
ToolChoice read_tool_choice(FieldReader& fields, const TemplateJson& tools,
                            std::optional<ApiError>& fault);

// The function that a tool is, or nullptr if it says nothing of one.
const TemplateJson* function_of_or_null(const TemplateJson& tool);

}  // namespace stemma
