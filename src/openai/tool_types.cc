#include "openai/tool_types.h"

#include <utility>

#include "grammar/schema_types.h"
#include "openai/output_form.h"

namespace stemma {
namespace {

ParameterTypes parameter_types_of(const TemplateJson& parameters) {
  ParameterTypes types;
  const TemplateJson properties =
      parameters.is_object() ? parameters.value("properties", TemplateJson()) : TemplateJson();
  if (!properties.is_object()) return types;
  for (const auto& [name, schema] : properties.items()) {
    WordNames said = types_of_schema(schema, parameters);
    if (!said.empty()) types.emplace(name, std::move(said));
  }
  return types;
}

}  // namespace

ToolTypes tool_types_of(const TemplateJson& tools) {
  ToolTypes types;
  for (const TemplateJson& tool : tools) {
    const TemplateJson* const function = function_of_or_null(tool);
    if (function == nullptr) continue;
    const TemplateJson name = function->value("name", TemplateJson());
    if (!name.is_string()) continue;
    types.emplace(name.get<std::string>(),
                  parameter_types_of(function->value("parameters", TemplateJson())));
  }
  return types;
}

}  // namespace stemma
