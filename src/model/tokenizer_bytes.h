// TokenizerBytes: two ways in which vocabularies spell bytes: the byte-level alphabet, and tokens
// named <0x00> to <0xFF>.
//
// The byte-level alphabet gives every byte a printable character: bytes that are printable in
// Latin-1 stand for themselves, the others follow from U+0100 on (GPT-2, Radford et al. 2019,
// encoder.py: bytes_to_unicode).
//
// Thread:     pure functions.
// Memory:     a table of 256 and one of 324 entries.
// Cost:       a look-up.
// Not here:   putting the bytes together to characters (unicode_text).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stemma {

// The character of each byte.
const std::array<char32_t, 256>& byte_level_alphabet();
// The byte of a character, or nothing.
std::optional<std::uint8_t> byte_level_byte(char32_t code);

// 0xE5 for "<0xE5>" (either case), or nothing.
std::optional<std::uint8_t> byte_token_byte(std::string_view token);
// "<0xE5>" for 0xE5.
std::string byte_token_name(std::uint8_t byte);

}  // namespace stemma
