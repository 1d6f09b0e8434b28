// The characters of a text of UTF-8, as clients' bounds and places count them.
//
// Thread:     a pure function.
// Memory:     none.
// Cost:       O(bytes).
// Not here:   which texts are UTF-8 (base/json_text), normal forms (model/unicode_text).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace stemma {

inline std::int64_t characters_in(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; });
}

}  // namespace stemma
