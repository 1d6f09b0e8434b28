// Dates in prompts: what strftime_now gives to the templates that print one.
//
// Thread:     any.
// Memory:     the text.
// Cost:       one strftime a date.
// Not here:   which time it is (base/wall_clock), who calls it (evaluator.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stemma/result.h"

namespace stemma {

// The moment `time_s`, seconds since 1970, in local time, as Python's strftime writes it in the C
// locale; nothing where that has more than 4096 bytes. Templates that print the day alone make the
// same prompts all day, and another at midnight.
std::string date_text(std::string_view format, std::int64_t time_s);

// When the day YYYY-MM-DD begins, in local time. kInvalidArgument: there is no such day.
Result<std::int64_t> begin_of_day(std::string_view day);

}  // namespace stemma
