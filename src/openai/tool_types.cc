#include "openai/tool_types.h"

#include "grammar/schema_types.h"
#include "openai/output_form.h"

namespace stemma {
namespace {

// nullptr: it has no such member, or is no object.
const TemplateJson* member_or_null(const TemplateJson& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

ParameterTypes parameter_types_of(const TemplateJson& function) {
  ParameterTypes types;
  const TemplateJson* const parameters = member_or_null(function, "parameters");
  if (parameters == nullptr) return types;
  const TemplateJson* const properties = member_or_null(*parameters, "properties");
  if (properties == nullptr || !properties->is_object()) return types;
  SchemaReferences references(*parameters);
  SchemaTypes known(references);
  for (const auto& [name, schema] : properties->get_ref<const TemplateJson::object_t&>()) {
    const WordNames& said = known.of(schema);
    if (!said.empty()) types.emplace(name, said);
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
    types.emplace(name.get<std::string>(), parameter_types_of(*function));
  }
  return types;
}

}  // namespace stemma
