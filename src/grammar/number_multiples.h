// Numbers between two bounds that are multiples of a third (multipleOf), as texts of digits.
//
// Thread:     one thread a grammar.
// Memory:     a rule for each remainder and count of digits that is met, at most 18 times the step.
// Cost:       ten parts a rule.
// Not here:   numbers of any value (json_parts), what a schema says of them (json_schema).
#pragma once

#include <cstdint>
#include <optional>

#include "grammar/byte_grammar.h"

namespace stemma {

// What numbers are to be multiples of: whole / 10^places.
struct DecimalStep {
  static constexpr int kPlacesMax = 6;

  std::int64_t whole = 1;
  int places = 0;

  // Of x / 10^places, whole x, that are multiples of it: what x is a multiple of.
  // REQUIRES: 0 <= behind <= places.
  std::int64_t with_places(int behind) const;
};
// Of a number as people write it; nullopt: it has too many digits for what is here.
// REQUIRES: value > 0.
std::optional<DecimalStep> decimal_step(double value);

// Numbers x / 10^places, of whole x that are multiples of `step` from `least` to `most`, written
// with `places` digits behind the point.
struct Multiples {
  std::int64_t least = 0;
  std::int64_t most = 0;
  std::int64_t step = 1;
  int places = 0;
};

// Larger ones, with powers of ten taken out, would make too many rules.
inline constexpr std::int64_t kMultipleStepMax = 400;

// The step without those powers of ten that it is a multiple of.
std::int64_t bare_step(std::int64_t step);

// nullopt: there is no such number. REQUIRES: step >= 1, bare_step(step) <= kMultipleStepMax;
// 0 <= places <= 6, of a step that is a multiple of ten 0; least and most have at most 18 digits.
std::optional<ByteGrammar::Part> multiples(ByteGrammar& grammar, const Multiples& numbers);

}  // namespace stemma
