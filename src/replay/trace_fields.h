// Fields that lines of several formats have in common, read so that an error names file, line and
// field.
//
// Thread:     pure functions.
// Memory:     what they return.
// Cost:       linear in what they read.
// Not here:   which fields a format has (one parser a family).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_text.h"
#include "stemma/result.h"

namespace stemma {

// A line longer than this is refused: no request of a real trace comes near.
inline constexpr std::size_t kTraceLineBytesMax = std::size_t{4} << 20;
inline constexpr JsonFields::Range kTraceTokens = {.min = 0, .max = std::int64_t{1} << 40};
inline constexpr JsonLimits kTraceLineLimits = {.text_bytes_max = kTraceLineBytesMax,
                                                .depth_max = 8};

// kCorrupt, "WHERE: FIELD: WHY".
Error wrong_trace_field(std::string_view where, std::string_view field, std::string_view why);

// In microseconds, 64 bits hold it.
inline constexpr double kTraceTimeMsMax = 9e15;

// Milliseconds from 0 to kTraceTimeMsMax, of a time in the unit of the format. `field_or_null` is
// nullptr where it is absent.
Result<double> read_trace_time_ms(const nlohmann::json* field_or_null, double ms_per_unit,
                                  std::string_view where, std::string_view field);

enum class HashForms : std::uint8_t { kIntegers, kIntegersAndTexts };

// One hash: an integer of 64 bits, signed or not, or a text, which is hashed again.
Result<std::int64_t> read_trace_hash(const nlohmann::json& value, HashForms forms,
                                     std::string_view where, std::string_view field);

// An array of them; an error names the element.
Result<std::vector<std::int64_t>> read_trace_hashes(const nlohmann::json* field_or_null,
                                                    HashForms forms, std::string_view where,
                                                    std::string_view field);

}  // namespace stemma
