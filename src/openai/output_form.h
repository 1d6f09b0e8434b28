// OutputForm: what a client asks the text of an answer to be: JSON of a schema, or one of several
// texts; and which tools it has to call.
//
// Thread:     pure functions and values.
// Memory:     the schema.
// Cost:       O(JSON).
// Not here:   which texts are of a schema (grammar/), how calls are written (tool_calls).
//
// Fields: OpenAI's `response_format` and `tool_choice`; `guided_json`, `guided_choice` and
// `structured_outputs` of vLLM, `json_schema` of SGLang.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "openai/api_error.h"
#include "template/chat_template.h"

namespace stemma {

class FieldReader;

struct OutputForm {
  enum class Kind : std::uint8_t { kFree, kSchema, kOneOf };
  Kind kind = Kind::kFree;
  std::string path;                     // of what says so in the request
  TemplateJson schema = {};             // kSchema
  bool strict = true;                   // what the schema says and cannot be kept to is refused
  std::vector<std::string> texts = {};  // kOneOf
};

// kFree where the request says nothing. Two forms, and one that is not known, are faults.
OutputForm read_output_form(FieldReader& fields, std::optional<ApiError>& fault);

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
