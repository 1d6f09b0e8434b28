// NumberRange: between which numbers a schema of JSON puts a number: minimum, maximum and their
// exclusive forms.
//
// Thread:     pure functions.
// Memory:     none.
// Cost:       four look-ups.
// Not here:   how such numbers are written (json_parts).
#pragma once

#include "stemma/result.h"
#include "template/chat_template.h"

namespace stemma {

// Whole numbers of units; none where least > most.
struct NumberRange {
  double least = 0;
  double most = 0;
  bool is_free = true;  // the schema has no bound
};

// The bounds in units of 1 / unit, each rounded into the range, so that who reads such a number
// finds it within; -limit and limit where there are none. kInvalidArgument: one is no number.
Result<NumberRange> read_number_range(const TemplateJson& schema, double unit, double limit);

}  // namespace stemma
