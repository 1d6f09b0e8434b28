// Python's `text % values`.
//
// Thread:     a pure function; the new text goes to the arena.
// Memory:     the arena's.
// Cost:       O(the format and what is made of it).
// Not here:   str.format, the formats of dates (template_date.h).
// Limits:     %s, %r, %d, %i, %x, %f and %% with flags, width and precision; another conversion, a
//             width of "*" and a mapping's names are kUnsupported.
#pragma once

#include <span>
#include <string_view>

#include "stemma/result.h"
#include "template/arena.h"
#include "template/value.h"

namespace stemma::jinja {

// kInvalidArgument where there are more or fewer values than places, or one is no number.
Result<Value> percent_format(Arena& arena, std::string_view format, std::span<const Value> values);

}  // namespace stemma::jinja
