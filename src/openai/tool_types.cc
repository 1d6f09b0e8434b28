#include "openai/tool_types.h"

#include "grammar/marked_members.h"
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

// Of a parameter of several schemas those of any; nothing where one of them says nothing.
void add_types(const TemplateJson& schema, SchemaTypes& known, ParameterTypes& types) {
  const TemplateJson* const properties = member_or_null(schema, "properties");
  if (properties == nullptr || !properties->is_object()) return;
  for (const auto& [name, property] : properties->get_ref<const TemplateJson::object_t&>()) {
    const WordNames& said = known.of(property);
    const auto [place, is_new] = types.try_emplace(name, said);
    if (is_new || place->second.empty()) continue;
    if (said.empty()) place->second.clear();
    place->second.insert(said.begin(), said.end());
  }
}

ParameterTypes parameter_types_of(const TemplateJson& function) {
  ParameterTypes types;
  const TemplateJson* const parameters = member_or_null(function, "parameters");
  if (parameters == nullptr || !parameters->is_object()) return types;
  const auto schemas = member_schemas(*parameters, "parameters");
  if (!schemas.ok()) return types;
  SchemaReferences references(*parameters);
  SchemaTypes known(references);
  for (const TemplateJson& schema : *schemas) add_types(schema, known, types);
  std::erase_if(types, [](const auto& one) { return one.second.empty(); });
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
