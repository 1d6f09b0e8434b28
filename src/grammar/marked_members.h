// MarkedMembers: the members of an object that a schema of JSON describes, as some models write
// them: between marks, with strings as plain texts.
//
//   <parameter=at>
//   sea
//   </parameter>
//
// Members come in the order of `properties`; those that are not required may be left out, others do
// not come, but where there are no properties: then any may, with any text. A value that may be a
// string is any text that does not have the mark behind it where the schema says no more than
// types, else what json_schema makes of it, where nothing but null, true and false may come in its
// place, or numbers where the schema lists the strings and none reads as one; its `<` is left out
// where it has a length or a pattern. A value that cannot be a string is JSON. What else a value
// may be is refused by its place where the schema is strict; where it is not, the value is any
// text. Of a schema that stands for several the members of one are written.
//
// Thread:     pure function.
// Memory:     the parts of the grammar.
// Cost:       as json_schema; for each property a look at what it says.
// Not here:   reading such texts (openai/xml_calls).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/byte_grammar.h"
#include "grammar/json_parts.h"
#include "grammar/json_schema.h"
#include "stemma/result.h"
#include "template/chat_template.h"

namespace stemma {

inline constexpr std::size_t kMarkedNameBytesMax = 1024;  // with white space around it

// Whether a name of a tool or a member is read as it is written between marks.
bool is_marked_name(std::string_view name);

struct MemberMarks {
  std::string_view name_begin;
  std::string_view name_end;
  std::string_view value_end;
  std::string_view end;  // of these, what no text of a value has: `value_end` without white space
};

// What schemas share that are written so in one grammar.
struct MemberParts {
  MemberParts(const MemberMarks& between, const JsonParts& values)
      : marks(between), json(values), plain(json.with_plain_strings(between.end)) {}

  MemberMarks marks;
  JsonParts json;
  JsonParts plain;
};

// Of a schema that stands for others (schema_merge) those of which the members are one's; else
// itself. What they name is in `schema`. Errors are those of merged_schema.
Result<std::vector<TemplateJson>> member_schemas(const TemplateJson& schema,
                                                 const std::string& path);

// kInvalidArgument or kUnsupported: where in the schema, and what is wrong there.
// REQUIRES: `schema` is an object; the values it has are objects.
Result<ByteGrammar::Part> add_marked_members(const TemplateJson& schema, const SchemaRules& rules,
                                             const MemberParts& parts);

}  // namespace stemma
