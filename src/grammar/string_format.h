// StringFormat: the formats of strings that outputs are kept to, as regular expressions.
//
// Each is narrower than what may be called so: no day of February is its 29th, and names of hosts
// have at most four parts. Sources: RFC 3339 (dates and times), RFC 4122 (UUIDs), RFC 1123 (names
// of hosts), RFC 5321 (mailboxes), RFC 4291 (addresses), ISO 8601 as RFC 3339 has it (durations).
//
// Thread:     pure function.
// Memory:     the expression.
// Cost:       none to speak of.
// Not here:   schemas (json_schema), expressions (byte_regex).
#pragma once

#include <string>
#include <string_view>

namespace stemma {

// The expression of a format of JSON Schema; empty: it is not known, and only describes.
std::string expression_of_format(std::string_view format);

}  // namespace stemma
