#include "openai/output_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/json_text.h"
#include "openai/field_reader.h"

namespace stemma {
namespace {

using Json = TemplateJson;

constexpr std::size_t kNameBytesMax = 512;
constexpr std::size_t kExpressionBytesMax = std::size_t{64} << 10;
constexpr std::size_t kChoicesMax = 16384;

constexpr RefusedField kRefused[] = {{"guided_whitespace_pattern", "null", "not supported"}};
constexpr RefusedField kRefusedOfStructured[] = {{"whitespace_pattern", "null", "not supported"}};

class FormReader {
 public:
  explicit FormReader(std::optional<ApiError>& fault) : fault_(fault) {}

  // OpenAI's: a strict schema is one that says so.
  void read_format(const Json& format) {
    FieldReader fields(format, "response_format", fault_);
    const std::string type = fields.text("type", kNameBytesMax).value_or("");
    if (type == "text") return;
    if (type == "json_object") return read_object(fields);
    if (type == "structural_tag") return take_tag(format, "response_format");
    if (type != "json_schema") {
      return fields.fail("type",
                         R"(must be "text", "json_object", "json_schema" or "structural_tag")");
    }
    const Json* const named = fields.object_or_null("json_schema");
    if (named == nullptr) return fields.fail("json_schema", "missing");
    FieldReader inner(*named, fields.path_of("json_schema"), fault_);
    const Json* const schema = inner.object_or_null("schema");
    const bool strict = inner.boolean("strict").value_or(false);
    if (schema == nullptr) return take_object(inner.path_of("schema"));
    take_schema(*schema, inner.path_of("schema"), strict);
  }

  // vLLM's of now.
  void read_structured(const Json& outputs) {
    FieldReader fields(outputs, "structured_outputs", fault_);
    fields.refuse(kRefusedOfStructured);
    const bool has_space = !fields.boolean("disable_any_whitespace").value_or(false);
    space_ = has_space ? JsonSpace::kSome : JsonSpace::kNone;
    read_schema(fields, "json");
    read_regex(fields, "regex");
    read_grammar(fields, "grammar");
    read_choice(fields, "choice");
    read_tag(fields, "structural_tag");
    if (fields.boolean("json_object").value_or(false)) {
      take_object(fields.path_of("json_object"));
    }
  }

  void read_schema(FieldReader& fields, std::string_view name) {
    std::optional<Json> schema = read_json(fields, name, "must be a schema, or a text of one");
    if (schema.has_value()) take_schema(*std::move(schema), fields.path_of(name), /*strict=*/true);
  }

  void read_tag(FieldReader& fields, std::string_view name) {
    std::optional<Json> tag = read_json(fields, name, "must be an object, or a text of one");
    if (tag.has_value()) take_tag(*std::move(tag), fields.path_of(name));
  }

  void read_regex(FieldReader& fields, std::string_view name) {
    auto expression = fields.text(name, kExpressionBytesMax);
    if (!expression.has_value()) return;
    take({.kind = TextForm::Kind::kRegex,
          .path = fields.path_of(name),
          .expression = *std::move(expression)});
  }

  void read_grammar(FieldReader& fields, std::string_view name) {
    auto rules = fields.text(name, kExpressionBytesMax);
    if (!rules.has_value()) return;
    take({.kind = TextForm::Kind::kEbnf, .path = fields.path_of(name), .rules = *std::move(rules)});
  }

  void read_choice(FieldReader& fields, std::string_view name) {
    const Json* const list = fields.array_or_null(name);
    if (list == nullptr) return;
    TextForm form = {.kind = TextForm::Kind::kOneOf, .path = fields.path_of(name)};
    for (std::size_t i = 0; i < list->size(); ++i) {
      if (!(*list)[i].is_string()) return fields.fail(item_path(name, i), "must be a string");
      form.texts.push_back((*list)[i].get<std::string>());
    }
    if (form.texts.empty() || form.texts.size() > kChoicesMax) {
      return fields.fail(name, fmt::format("must have from 1 to {} texts", kChoicesMax));
    }
    take(std::move(form));
  }

  // White space is of JSON, whichever field says which; in other forms it is none between things.
  TextForm form() && {
    form_.space = space_;
    if (space_ == JsonSpace::kNone && form_.kind == TextForm::Kind::kTag && !fault_.has_value()) {
      fault_ = field_error("structured_outputs.disable_any_whitespace",
                           fmt::format("not together with {}", form_.path));
    }
    return std::move(form_);
  }

 private:
  // Any; llama.cpp and some hosts have a schema there.
  void read_object(FieldReader& fields) {
    const Json* const schema = fields.object_or_null("schema");
    if (schema == nullptr) return take_object("response_format");
    take_schema(*schema, fields.path_of("schema"), /*strict=*/false);
  }

  // A value, or its text: `wanted` says what it has to be.
  static std::optional<Json> read_json(FieldReader& fields, std::string_view name,
                                       std::string_view wanted) {
    const Json* const given = fields.find_or_null(name);
    if (given == nullptr) return std::nullopt;
    if (!given->is_string()) return *given;
    const auto& text = given->get_ref<const std::string&>();
    const JsonLimits limits = {
        .text_bytes_max = std::size_t{1} << 20, .depth_max = 64, .fields_max = 512};
    Result<Json> parsed = parse_ordered_json(text, fields.path_of(name), limits);
    if (parsed.ok()) return std::move(parsed).value();
    fields.fail(name, std::string(wanted));
    return std::nullopt;
  }

  void take_object(std::string path) {
    take_schema({{"type", "object"}}, std::move(path), /*strict=*/true);
  }
  void take_schema(Json schema, std::string path, bool strict) {
    take({.kind = TextForm::Kind::kSchema,
          .path = std::move(path),
          .schema = std::move(schema),
          .strict = strict});
  }
  void take_tag(Json tag, std::string path) {
    take({.kind = TextForm::Kind::kTag, .path = std::move(path), .schema = std::move(tag)});
  }
  void take(TextForm form) {
    if (form_.kind != TextForm::Kind::kFree && !fault_.has_value()) {
      fault_ = field_error(form.path, fmt::format("not together with {}", form_.path));
    }
    form_ = std::move(form);
  }

  std::optional<ApiError>& fault_;
  JsonSpace space_ = JsonSpace::kSome;
  TextForm form_;
};

}  // namespace

TextForm read_output_form(FieldReader& fields, std::optional<ApiError>& fault) {
  fields.refuse(kRefused);
  FormReader reader(fault);
  if (const Json* const format = fields.object_or_null("response_format")) {
    reader.read_format(*format);
  }
  if (const Json* const outputs = fields.object_or_null("structured_outputs")) {
    reader.read_structured(*outputs);
  }
  reader.read_schema(fields, "guided_json");
  reader.read_schema(fields, "json_schema");
  reader.read_regex(fields, "guided_regex");
  reader.read_regex(fields, "regex");
  reader.read_grammar(fields, "guided_grammar");
  reader.read_grammar(fields, "ebnf");
  reader.read_choice(fields, "guided_choice");
  reader.read_tag(fields, "structural_tag");
  return std::move(reader).form();
}

const Json* function_of_or_null(const Json& tool) {
  const auto function = tool.find("function");
  return function == tool.end() || !function->is_object() ? nullptr : &*function;
}

ToolChoice read_tool_choice(FieldReader& fields, const Json& tools,
                            std::optional<ApiError>& fault) {
  ToolChoice choice;
  const Json* const given = fields.find_or_null("tool_choice");
  if (given == nullptr || *given == "auto" || *given == "none") return choice;
  choice.forced = true;
  if (tools.is_null()) {
    fields.fail("tool_choice", "needs tools");
  } else if (given->is_object()) {
    FieldReader inner(*given, "tool_choice", fault);
    const Json* const function = inner.object_or_null("function");
    if (inner.text("type", kNameBytesMax) != "function" || function == nullptr) {
      fields.fail("tool_choice",
                  R"(must be "auto", "none", "required" or {"type": "function", ...})");
      return choice;
    }
    FieldReader named(*function, "tool_choice.function", fault);
    choice.name = named.text("name", kNameBytesMax).value_or("");
    const bool known = std::any_of(tools.begin(), tools.end(), [&](const Json& tool) {
      const Json* const one = function_of_or_null(tool);
      return one != nullptr && one->value("name", Json()) == choice.name;
    });
    if (!known) named.fail("name", "is none of the tools");
  } else if (*given != "required") {
    fields.fail("tool_choice", R"(must be "auto", "none", "required" or a function)");
  }
  return choice;
}

}  // namespace stemma
