// Numbers in texts, as Python's int() and float() read them.
//
// Thread:     pure functions.
// Memory:     digits.
// Cost:       O(text).
// Not here:   what a filter makes of a text without a number (filters.cc).
// Limits:     digits are those of ASCII; Python reads other scripts' too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stemma::jinja {

// An integer of any size: a minus or none, and digits without zeros before them.
struct WholeText {
  std::string digits;
  int base = 10;
};

// int(text, base): white space around it, a sign, the prefix of its base and underscores between
// digits may be there; of base 0 the prefix says the base. nullopt: it is no integer, or there is
// no such base.
std::optional<WholeText> whole_of_text(std::string_view text, std::int64_t base);

// float(text): infinities and what is no number too. nullopt: it is none.
std::optional<double> real_of_text(std::string_view text);

}  // namespace stemma::jinja
