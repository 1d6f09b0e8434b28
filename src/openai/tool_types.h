// ToolTypes: the tools that may be called, and of which types the values of their parameters are:
// for models that write values as texts.
//
// Thread:     pure functions and values.
// Memory:     the names.
// Cost:       linear in the tools' parameters.
// Not here:   how calls are written (tool_calls), what else schemas say (grammar/json_schema).
#pragma once

#include <functional>
#include <map>
#include <string>

#include "grammar/schema_words.h"
#include "template/chat_template.h"

namespace stemma {

// By parameter, where its schema says it: types as SchemaTypes names them, at least one.
using ParameterTypes = std::map<std::string, WordNames, std::less<>>;
// By tool.
using ToolTypes = std::map<std::string, ParameterTypes, std::less<>>;

// Of a request's tools. What is no tool, or has no name, is left out.
ToolTypes tool_types_of(const TemplateJson& tools);

}  // namespace stemma
