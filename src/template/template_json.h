// JSON in and out of a rendering: messages and tools as values, and the filter tojson.
//
// Thread:     pure functions.
// Memory:     values made from JSON refer to its strings, which outlive the rendering.
// Cost:       O(JSON).
// Not here:   parsing of JSON text (the caller's).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "stemma/result.h"
#include "template/arena.h"
#include "template/value.h"

namespace stemma::jinja {

// JSON whose objects keep their order: a template prints them as the client wrote them.
using Json = nlohmann::ordered_json;

// `json` as a value, null as none. Integers from 2^63 on print as they are written. Those beyond 64
// bits do where they are binary values of their digits (JsonLimits::keeps_wide_integers); else they
// are doubles already, as the parser gave them. Errors: more than 90 levels.
Result<Value> from_json(Arena& arena, const Json& json);

struct JsonFormat {
  std::optional<std::int64_t> indent;  // spaces a level, one entry a line; absent: one line
  std::string_view item_separator = ", ";
  std::string_view key_separator = ": ";
  bool escape_non_ascii = false;
  bool sort_keys = false;
};

// `value` as Python's json.dumps writes it.
Result<Value> to_json(Arena& arena, const Value& value, const JsonFormat& format);

}  // namespace stemma::jinja
