// Letters of ASCII without their case: names of headers, schemes, hosts, and words of files.
//
// Thread:     any.
// Memory:     none.
// Cost:       a pass.
// Not here:   letters of other alphabets, which such names do not have.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace stemma {

constexpr char lower_ascii(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

inline std::string lower_ascii(std::string text) {
  for (char& c : text) c = lower_ascii(c);
  return text;
}

constexpr bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower_ascii(x) == lower_ascii(y); });
}

}  // namespace stemma
