// CodedFields: checks that sections of `quantization_config` have in common.
//
// Thread:     pure functions.
// Memory:     none.
// Cost:       a look at a field.
// Not here:   what sections say (float8_config, int8_config, packed_int_config).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stemma {

class JsonFields;

// Remembers that field `name` has a value that is not read here; `known`: those that are, behind
// "is" or "are".
void refuse_value(JsonFields& fields, std::string_view name, const std::string& value,
                  std::string_view known);

// A field that must have one value, if it is there.
void expect_text(JsonFields& fields, std::string_view name, const std::string& known);

// A field that must be that number.
void expect_bits(JsonFields& fields, std::string_view name, std::int64_t bits);

}  // namespace stemma
