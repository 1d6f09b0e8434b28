#include "server/output_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "grammar/byte_regex.h"
#include "grammar/json_parts.h"
#include "grammar/json_schema.h"
#include "grammar/text_form.h"
#include "openai/completion_answer.h"
#include "openai/field_reader.h"
#include "openai/output_form.h"

namespace stemma {
namespace {

using Part = ByteGrammar::Part;

// Arguments are an object, whatever else the schema would allow.
Result<TemplateJson> schema_of_arguments(const TemplateJson& parameters, const std::string& path) {
  if (parameters == true) return TemplateJson{{"type", "object"}};
  TemplateJson schema = parameters;
  if (!schema.is_object()) return schema;
  const TemplateJson type = schema.value("type", TemplateJson());
  const bool allows =
      type.is_null() || type == "object" ||
      (type.is_array() && std::find(type.begin(), type.end(), "object") != type.end());
  if (!allows) {
    return Error{ErrorCode::kInvalidArgument, path + ".type: arguments are an \"object\""};
  }
  schema["type"] = "object";
  // Beside values a type is only looked at where another schema says it.
  const bool has_values = schema.contains("enum") || schema.contains("const");
  if (has_values && !schema.contains("allOf")) schema["allOf"].push_back({{"type", "object"}});
  return schema;
}

// A function that says nothing of its parameters has none.
Result<Part> add_arguments(const TemplateJson& function, const std::string& path,
                           const JsonParts& json) {
  const auto parameters = function.find("parameters");
  if (parameters == function.end() || parameters->is_null()) return json.grammar.text("{}");
  const auto strict = function.find("strict");
  const SchemaRules rules = {.strict = strict != function.end() && *strict == true,
                             .path = path + ".parameters"};
  STEMMA_ASSIGN_OR_RETURN(const TemplateJson schema, schema_of_arguments(*parameters, rules.path));
  return add_json_schema(schema, rules, json);
}

Result<Part> add_calls(const CompletionRequest& request, const ToolCallSpelling& calls,
                       ByteGrammar& grammar) {
  const bool is_chat = request.response.is_null();
  const JsonParts json(grammar);
  std::vector<Part> ways;
  for (std::size_t i = 0; i < request.tools.size(); ++i) {
    const std::string path = item_path("tools", i) + (is_chat ? ".function" : "");
    const TemplateJson* const function = function_of_or_null(request.tools[i]);
    if (function == nullptr) return Error{ErrorCode::kInvalidArgument, path + ": missing"};
    const TemplateJson name = function->value("name", TemplateJson());
    if (!name.is_string()) return Error{ErrorCode::kInvalidArgument, path + ".name: missing"};
    const auto& text = name.get_ref<const std::string&>();
    if (!request.tool_choice.name.empty() && text != request.tool_choice.name) continue;
    STEMMA_ASSIGN_OR_RETURN(const Part arguments, add_arguments(*function, path, json));
    ways.push_back(grammar.sequence({grammar.text(calls.name_is_json ? name.dump() : text),
                                     grammar.text(calls.arguments_begin), arguments}));
  }
  const Part call = grammar.rule(
      grammar.sequence({grammar.text(calls.call_begin), grammar.either(std::move(ways)),
                        grammar.text(calls.call_end)}));
  Part others = grammar.sequence({});
  if (calls.several && request.calls_in_parallel) {
    others = grammar.repeated(grammar.sequence({grammar.text(calls.between), call}), 0, {});
  }
  return grammar.sequence({grammar.text(calls.begin), call, others, grammar.text(calls.end)});
}

// Any text that does not have the mark, and then the mark. As that begins with a character that it
// has once, a text is pieces that begin with one, of which none goes on as the mark does.
std::string text_up_to(std::string_view mark) {
  std::string behind;  // what may follow the first bytes of a mark, up to its next begin
  for (std::size_t i = mark.size() - 1; i > 0; --i) {
    const std::string others = fmt::format("[^{}{}][^{}]*", mark[0], mark[i], mark[0]);
    const bool is_last = i + 1 == mark.size();
    behind = fmt::format("(?:{}{})?", others, is_last ? "" : fmt::format("|{}{}", mark[i], behind));
  }
  return fmt::format("[^{0}]*(?:{0}{1})*{2}", mark[0], behind, mark);
}

}  // namespace

bool has_form(const CompletionRequest& request) {
  return request.form.kind != TextForm::Kind::kFree || request.tool_choice.forced;
}

std::string form_key(const CompletionRequest& request, ThoughtPlace thoughts) {
  const TemplateJson key = {text_form_key(request.form), request.tools, request.tool_choice.name,
                            request.calls_in_parallel, static_cast<int>(thoughts)};
  return json_text(key);
}

Result<Part> add_form(const CompletionRequest& request,
                      const std::optional<ToolCallSpelling>& calls, ByteGrammar& grammar) {
  std::vector<Part> ways;
  if (request.form.kind != TextForm::Kind::kFree) {
    STEMMA_ASSIGN_OR_RETURN(const Part text, add_text_form(request.form, grammar));
    ways.push_back(text);
  }
  if (request.tool_choice.forced && !calls.has_value()) {
    return Error{ErrorCode::kUnsupported,
                 "tool_choice: the model's template does not show how it would call"};
  }
  if (calls.has_value() && !request.tools.is_null()) {
    STEMMA_ASSIGN_OR_RETURN(const Part some, add_calls(request, *calls, grammar));
    ways.push_back(some);
  }
  return grammar.either(std::move(ways));
}

// Behind the mark models put an empty line at most. Spaces are the form's.
Result<Part> add_thoughts(ThoughtPlace place, Part form, ByteGrammar& grammar) {
  if (place == ThoughtPlace::kBehind) return form;
  STEMMA_ASSIGN_OR_RETURN(const Part rest, add_regex(text_up_to(kThoughtsEnd) + "[\\r\\n]{0,4}",
                                                     RegexMatch::kWhole, grammar));
  const Part answer = grammar.rule(form);
  const Part thoughts = grammar.sequence({rest, answer});
  if (place == ThoughtPlace::kInside) return thoughts;
  return grammar.either({answer, grammar.sequence({grammar.text(kThoughtsBegin), thoughts})});
}

}  // namespace stemma
