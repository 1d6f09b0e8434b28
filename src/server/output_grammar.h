// OutputGrammar: the grammar of what a request asks its answers to be: texts of a form, calls of
// tools as the model writes them, or any text in which calls keep to their tools' schemas.
//
// Thread:     pure functions.
// Memory:     the parts of the grammar.
// Cost:       linear in the schemas.
// Not here:   forms of texts (grammar/text_form), what requests say (openai/output_form).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "grammar/byte_grammar.h"
#include "openai/completion_request.h"
#include "openai/thoughts.h"
#include "openai/tool_calls.h"
#include "stemma/result.h"

namespace stemma {

// Whether an answer has a form at all, where calls are written so (nullopt: the model writes none):
// it says one, it forces calls, or a tool that may be called is strict.
bool has_form(const CompletionRequest& request, const std::optional<ToolCallSpelling>& calls);

// What two requests of a tenant have in common whose answers have the same form.
std::string form_key(const CompletionRequest& request, ThoughtPlace thoughts,
                     std::string_view tenant = {});

// The form. Errors begin with the path of what cannot be kept to.
// REQUIRES: has_form(request, calls).
Result<ByteGrammar::Part> add_form(const CompletionRequest& request,
                                   const std::optional<ToolCallSpelling>& calls,
                                   ByteGrammar& grammar);

// What a client is told of a form that cannot be kept to; `detail` is the error's.
ApiError form_error(const CompletionRequest& request, const std::string& detail);

// The form, behind what is left of thoughts.
Result<ByteGrammar::Part> add_thoughts(ThoughtPlace place, ByteGrammar::Part form,
                                       ByteGrammar& grammar, const ThoughtMarks& marks = {});

}  // namespace stemma
