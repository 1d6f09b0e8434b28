#include "server/output_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "grammar/free_text.h"
#include "grammar/json_parts.h"
#include "grammar/json_schema.h"
#include "grammar/marked_members.h"
#include "grammar/text_form.h"
#include "openai/completion_answer.h"
#include "openai/field_reader.h"
#include "openai/output_form.h"
#include "openai/text_marks.h"

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

// The arguments of calls, in the form in which a model writes them.
class ArgumentWriter {
 public:
  ArgumentWriter(const ToolCallSpelling& calls, ByteGrammar& grammar) : json_(grammar) {
    if (calls.members.has_value()) parts_.emplace(*calls.members, json_);
  }

  // A function that says nothing of its parameters has none. `path`: of these in the request.
  Result<Part> write(const TemplateJson& function, const std::string& path) const {
    const auto parameters = function.find("parameters");
    if (parameters == function.end() || parameters->is_null()) {
      return json_.grammar.text(parts_.has_value() ? "" : "{}");
    }
    const auto strict = function.find("strict");
    const SchemaRules rules = {.strict = strict != function.end() && *strict == true, .path = path};
    STEMMA_ASSIGN_OR_RETURN(const TemplateJson schema,
                            schema_of_arguments(*parameters, rules.path));
    if (!parts_.has_value()) return add_json_schema(schema, rules, json_);
    if (!schema.is_object()) {
      return Error{ErrorCode::kInvalidArgument, rules.path + ": must be an object"};
    }
    return add_marked_members(schema, rules, *parts_);
  }

  Status check_name(const std::string& name, const std::string& path) const {
    if (!parts_.has_value() || is_marked_name(name)) return {};
    return Error{ErrorCode::kUnsupported,
                 path + ".name: this name cannot be written as the model calls"};
  }

 private:
  JsonParts json_;
  std::optional<MemberParts> parts_;  // where they are between marks
};

// Where the client wrote what a function is called with.
std::string path_of_parameters(const CompletionRequest& request, const std::string& path) {
  return path + (request.shape == AnswerShape::kMessage ? ".input_schema" : ".parameters");
}

// A call of any tool that may be called.
Result<Part> add_call(const CompletionRequest& request, const ToolCallSpelling& calls,
                      ByteGrammar& grammar) {
  const bool is_chat = request.shape == AnswerShape::kCompletion;
  const ArgumentWriter writer(calls, grammar);
  std::vector<Part> ways;
  for (std::size_t i = 0; i < request.tools.size(); ++i) {
    const std::string path = item_path("tools", i) + (is_chat ? ".function" : "");
    const TemplateJson* const function = function_of_or_null(request.tools[i]);
    if (function == nullptr) return Error{ErrorCode::kInvalidArgument, path + ": missing"};
    const TemplateJson name = function->value("name", TemplateJson());
    if (!name.is_string()) return Error{ErrorCode::kInvalidArgument, path + ".name: missing"};
    const auto& text = name.get_ref<const std::string&>();
    if (!request.tool_choice.name.empty() && text != request.tool_choice.name) continue;
    STEMMA_RETURN_IF_ERROR(writer.check_name(text, path));
    STEMMA_ASSIGN_OR_RETURN(const Part arguments,
                            writer.write(*function, path_of_parameters(request, path)));
    ways.push_back(grammar.sequence({grammar.text(calls.name_is_json ? name.dump() : text),
                                     grammar.text(calls.arguments_begin), arguments}));
  }
  return grammar.rule(
      grammar.sequence({grammar.either(std::move(ways)), grammar.text(calls.call_end)}));
}

// Calls, without the mark that they begin with. Who names a tool wants one call of it.
Result<Part> add_calls(const CompletionRequest& request, const ToolCallSpelling& calls,
                       ByteGrammar& grammar) {
  STEMMA_ASSIGN_OR_RETURN(const Part call, add_call(request, calls, grammar));
  Part others = grammar.sequence({});
  if (calls.several && request.calls_in_parallel && request.tool_choice.name.empty()) {
    others = grammar.repeated(
        grammar.sequence({grammar.text(calls.between), grammar.text(calls.call_begin), call}), 0,
        {});
  }
  std::string begin = fmt::format("{}{}", calls.begin, calls.call_begin);
  begin.erase(0, calls.mark.size());
  return grammar.sequence({grammar.text(begin), call, others, grammar.text(calls.end)});
}

// Any text that is not read as a call where an answer is text or a call.
Part add_text_of_bare_style(ByteGrammar& grammar) {
  constexpr CharRange kBegins[] = {{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}, {'{', '{'}};
  const Part any = grammar.one_of(other_chars({}));
  const Part begun =
      grammar.sequence({grammar.one_of(other_chars(kBegins)), grammar.repeated(any, 0, {})});
  return grammar.sequence(
      {grammar.repeated(grammar.one_of(kMarkSpace), 0, {}), grammar.optional(begun)});
}

// Any text in which what begins as a call is one.
Result<Part> add_text_with_calls(const CompletionRequest& request, const ToolCallSpelling& calls,
                                 ByteGrammar& grammar) {
  STEMMA_ASSIGN_OR_RETURN(const Part some, add_calls(request, calls, grammar));
  if (calls.mark.empty()) return grammar.either({add_text_of_bare_style(grammar), some});
  const Part whole = grammar.rule();
  const Part behind = request.calls_in_parallel ? whole : grammar.sequence({});
  FreeText text = {.triggers = {{std::string(calls.mark), grammar.sequence({some, behind})}}};
  if (!calls.other_mark.empty()) text.excluded.emplace_back(calls.other_mark);
  STEMMA_RETURN_IF_ERROR(define_free_text(whole, text, grammar));
  return whole;
}

bool has_strict_tool(const TemplateJson& tools) {
  return std::any_of(tools.begin(), tools.end(), [](const TemplateJson& tool) {
    const TemplateJson* const function = function_of_or_null(tool);
    return function != nullptr && function->value("strict", TemplateJson()) == true;
  });
}

}  // namespace

// Errors of schemas begin with where in the request they are; those of whole grammars do not.
ApiError form_error(const CompletionRequest& request, const std::string& detail) {
  const std::string path = request.tool_choice.forced ? "tool_choice" : request.form.path;
  const bool is_of_form = detail.starts_with(request.form.path) && !request.form.path.empty();
  const bool says_where = is_of_form || detail.starts_with("tool");
  ApiError error = field_error("", says_where ? detail : path + ": " + detail);
  error.param = !is_of_form && detail.starts_with("tools[") ? "tools" : path;
  return error;
}

bool has_form(const CompletionRequest& request, const std::optional<ToolCallSpelling>& calls) {
  return request.form.kind != TextForm::Kind::kFree || request.tool_choice.forced ||
         (calls.has_value() && has_strict_tool(request.tools));
}

std::string form_key(const CompletionRequest& request, ThoughtPlace thoughts,
                     std::string_view tenant) {
  const TemplateJson key = {text_form_key(request.form), request.tools,
                            request.tool_choice.forced,  request.tool_choice.name,
                            request.calls_in_parallel,   static_cast<int>(thoughts),
                            std::string(tenant)};
  return json_text(key);
}

Result<Part> add_form(const CompletionRequest& request,
                      const std::optional<ToolCallSpelling>& calls, ByteGrammar& grammar) {
  const bool has_text = request.form.kind != TextForm::Kind::kFree;
  if (request.tool_choice.forced && !calls.has_value()) {
    return Error{ErrorCode::kUnsupported,
                 "tool_choice: the model's template does not show how it would call"};
  }
  if (!has_text && !request.tool_choice.forced) {
    return add_text_with_calls(request, *calls, grammar);
  }
  std::vector<Part> ways;
  if (has_text) {
    STEMMA_ASSIGN_OR_RETURN(const Part text, add_text_form(request.form, grammar));
    ways.push_back(text);
  }
  if (calls.has_value() && !request.tools.is_null()) {
    STEMMA_ASSIGN_OR_RETURN(const Part some, add_calls(request, *calls, grammar));
    ways.push_back(grammar.sequence({grammar.text(calls->mark), some}));
  }
  return grammar.either(std::move(ways));
}

// Behind the mark models put an empty line at most. Spaces are the form's.
Result<Part> add_thoughts(ThoughtPlace place, Part form, ByteGrammar& grammar,
                          const ThoughtMarks& marks) {
  if (place == ThoughtPlace::kBehind) return form;
  const std::string end(marks.end);
  const Part text = grammar.rule();
  STEMMA_RETURN_IF_ERROR(define_free_text(text, {.ends = {end}}, grammar));
  const Part answer = grammar.rule(form);
  const Part thoughts = grammar.sequence(
      {text, grammar.text(end), grammar.repeated(grammar.one_of("\r\n"), 0, 4), answer});
  if (place == ThoughtPlace::kInside) return thoughts;
  return grammar.either({answer, grammar.sequence({grammar.text(marks.begin), thoughts})});
}

}  // namespace stemma
