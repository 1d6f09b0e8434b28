#include "model/tokenizer_bytes.h"

#include <charconv>

namespace stemma {
namespace {

// 256 bytes that stand for themselves or follow from U+0100: 68 of them do the latter.
constexpr std::size_t kAlphabetEnd = 256 + 68;

constexpr bool stands_for_itself(std::uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char32_t, 256> make_alphabet() {
  std::array<char32_t, 256> alphabet{};
  char32_t next = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    alphabet[byte] = stands_for_itself(byte) ? byte : next++;
  }
  return alphabet;
}

constexpr std::array<char32_t, 256> kAlphabet = make_alphabet();

constexpr std::array<std::int16_t, kAlphabetEnd> make_inverse() {
  std::array<std::int16_t, kAlphabetEnd> inverse{};
  inverse.fill(-1);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    inverse[kAlphabet[byte]] = static_cast<std::int16_t>(byte);
  }
  return inverse;
}

constexpr std::array<std::int16_t, kAlphabetEnd> kInverse = make_inverse();

}  // namespace

const std::array<char32_t, 256>& byte_level_alphabet() {
  return kAlphabet;
}

std::optional<std::uint8_t> byte_level_byte(char32_t code) {
  if (code >= kAlphabetEnd || kInverse[code] < 0) {
    return std::nullopt;
  }
  return static_cast<std::uint8_t>(kInverse[code]);
}

std::optional<std::uint8_t> byte_token_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') {
    return std::nullopt;
  }
  std::uint8_t byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) {
    return std::nullopt;
  }
  return byte;
}

std::string byte_token_name(std::uint8_t byte) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string name = "<0x";
  name.push_back(kHex[byte >> 4]);
  name.push_back(kHex[byte & 15]);
  return name.append(">");
}

}  // namespace stemma
