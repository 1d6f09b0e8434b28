// NumberRange: between which numbers a schema of JSON puts a number: minimum, maximum and their
// exclusive forms.
//
// Thread:     pure functions.
// Memory:     none.
// Cost:       four look-ups; reading some sixty numbers a bound.
// Not here:   how such numbers are written (json_parts).
#pragma once

#include <cstdint>

#include "stemma/result.h"
#include "template/chat_template.h"

namespace stemma {

// Whole numbers of units; none where least > most.
struct NumberRange {
  std::int64_t least = 0;
  std::int64_t most = 0;
  bool is_free = true;  // the schema has no bound
};

// The bounds in units of 10^-places, so that every number between them is within as it is written,
// where the bound is whole, and as who reads it as a double finds it, of any magnitude; -limit and
// limit where there are none nearer. kInvalidArgument: one is no number.
// REQUIRES: 0 <= places <= 6; 0 <= limit <= 10^18.
Result<NumberRange> read_number_range(const TemplateJson& schema, int places, std::int64_t limit);

}  // namespace stemma
