// Strings as a schema of JSON wants them: of a pattern, a length, or a format that is known; and
// how many of something a schema wants.
//
// Thread:     one thread a grammar.
// Memory:     the parts of the grammar.
// Cost:       that of the parts (json_parts).
// Not here:   everything else that a schema says (json_schema).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "grammar/byte_grammar.h"
#include "grammar/json_parts.h"
#include "stemma/result.h"
#include "template/chat_template.h"

namespace stemma {

// From how many to how many.
struct SchemaExtent {
  std::int64_t least = 0;
  std::optional<std::int64_t> most;

  bool is_empty() const { return most.has_value() && *most < least; }
};

// What the words `least` and `most` say. kInvalidArgument, which begins with `path`: no number.
Result<SchemaExtent> read_extent(const TemplateJson& schema, const char* least, const char* most,
                                 const std::string& path);

// pattern, minLength and maxLength, format: one of them alone. Where that allows none, a part that
// is nothing. kInvalidArgument, which begins with `path`: what it says is wrong. kUnsupported: two
// of them, or a pattern that is not read, where the schema is strict; elsewhere it is passed over.
Result<ByteGrammar::Part> string_of_schema(const TemplateJson& schema, bool strict,
                                           const std::string& path, const JsonParts& json);

}  // namespace stemma
