// CallIds: identifiers of calls, of which templates of Mistral's models want nine letters and
// digits each, and refuse others.
//
// Thread:     pure functions.
// Memory:     the text.
// Cost:       linear in the identifier.
// Not here:   which templates those are (message_form).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/prng.h"

namespace stemma {

inline constexpr std::size_t kShortIdBytes = 9;

// `id` if it is of that form; else one that is, the same for the same `id`, and hardly that of
// another.
inline std::string short_call_id(std::string_view id) {
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  if (id.size() == kShortIdBytes && std::all_of(id.begin(), id.end(), is_plain)) {
    return std::string(id);
  }
  std::uint64_t hash = id.size();
  for (const char byte : id) hash = mix64(hash ^ static_cast<unsigned char>(byte));
  std::string made;
  for (; made.size() < kShortIdBytes; hash /= kDigits.size())
    made += kDigits[hash % kDigits.size()];
  return made;
}

}  // namespace stemma
