// UnicodeText: the few things a tokenizer does with Unicode: UTF-8, normal forms, lower case, white
// space.
//
// Thread:     pure functions; a Utf8Assembler belongs to one thread.
// Memory:     the returned strings; normal forms need four bytes a character while they run.
// Cost:       one pass; text that is all ASCII is returned as it is by the normal forms.
// Not here:   regular expressions (tokenizer_regex).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stemma {

// What stands for bytes that are not UTF-8: U+FFFD.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// Puts bytes together to characters as they come; never hands out part of one.
class Utf8Assembler {
 public:
  // What an ill-formed sequence becomes: one U+FFFD for the sequence (each longest start of a
  // character counts as one, as the Unicode standard recommends, section 3.9), or one for every
  // byte of it.
  enum class IllFormed : std::uint8_t { kOnePerSequence, kOnePerByte };

  explicit Utf8Assembler(IllFormed ill_formed) : ill_formed_(ill_formed) {}

  // Appends to `out` every character that is certain now.
  void push(std::uint8_t byte, std::string& out);
  // The bytes end here: an unfinished character is ill-formed.
  void flush(std::string& out);
  // Whether none is begun.
  bool is_whole() const noexcept { return held_bytes_ == 0; }

 private:
  void start(std::uint8_t byte, std::string& out);

  IllFormed ill_formed_;
  char held_[4] = {};
  std::uint8_t held_bytes_ = 0;
  std::uint8_t wanted_bytes_ = 0;
  // Range of the next byte: narrower after E0, ED, F0, F4 (overlong forms, surrogates, beyond
  // U+10FFFF).
  std::uint8_t least_ = 0x80;
  std::uint8_t most_ = 0xBF;
};

bool is_utf8(std::string_view bytes);
// `bytes` with every ill-formed sequence replaced by U+FFFD.
std::string utf8_repaired(std::string_view bytes);

// The following read well-formed UTF-8 only. REQUIRES: `at` is a boundary, and below the end unless
// said otherwise.
std::size_t utf8_next(std::string_view text, std::size_t at);
char32_t utf8_code_at(std::string_view text, std::size_t at);
std::int64_t characters_in(std::string_view text);
// The last boundary at or before `limit`; any limit.
std::size_t utf8_floor(std::string_view text, std::size_t limit);
void utf8_append(char32_t code, std::string& out);

// Unicode White_Space.
bool is_white_space(char32_t code);
// Leading, trailing white space of well-formed UTF-8, in bytes.
std::size_t leading_space_bytes(std::string_view text);
std::size_t trailing_space_bytes(std::string_view text);

enum class NormalForm : std::uint8_t { kNfc, kNfd, kNfkc, kNfkd };
// REQUIRES: well-formed UTF-8.
std::string normal_form(std::string_view text, NormalForm form);
// Every character by its own lower-case mapping, without regard to its neighbours. REQUIRES:
// well-formed UTF-8.
std::string lower_case(std::string_view text);

}  // namespace stemma
