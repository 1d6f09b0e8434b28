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
// place; its `<` is left out where it has a length or a pattern. A value that cannot be a string is
// JSON. What else a value may be is refused by its place where the schema is strict; where it is
// not, the value is any text.
//
// Thread:     pure function.
// Memory:     the parts of the grammar.
// Cost:       as json_schema; for each property a look at what it says.
// Not here:   reading such texts (openai/xml_calls), names that marks cannot hold.
#pragma once

#include <string_view>

#include "grammar/byte_grammar.h"
#include "grammar/json_parts.h"
#include "grammar/json_schema.h"
#include "stemma/result.h"
#include "template/chat_template.h"

namespace stemma {

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

// kInvalidArgument or kUnsupported: where in the schema, and what is wrong there.
// REQUIRES: `schema` is an object; the values it has are objects.
Result<ByteGrammar::Part> add_marked_members(const TemplateJson& schema, const SchemaRules& rules,
                                             const MemberParts& parts);

}  // namespace stemma
