#include "template/python_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/check.h"

namespace stemma::jinja {
namespace {

constexpr bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0u) == 0x80u;
}

// The length that the first byte promises, 1 for anything that begins no sequence.
constexpr std::size_t promised_bytes(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte >= 0xC2 && byte <= 0xDF) return 2;
  if (byte >= 0xE0 && byte <= 0xEF) return 3;
  if (byte >= 0xF0 && byte <= 0xF4) return 4;
  return 1;
}

// Where the last character of `text` begins. REQUIRES: text is not empty.
std::size_t last_character(std::string_view text) {
  for (std::size_t length = 1; length <= 4 && length <= text.size(); ++length) {
    const std::size_t at = text.size() - length;
    if (!is_continuation(text[at])) {
      return character_bytes(text, at) == length ? at : text.size() - 1;
    }
  }
  return text.size() - 1;
}

bool ends_line(std::int32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool contains_character(std::string_view chars, std::string_view character) {
  for (std::size_t at = 0; at < chars.size();) {
    const std::size_t bytes = character_bytes(chars, at);
    if (chars.substr(at, bytes) == character) return true;
    at += bytes;
  }
  return false;
}

}  // namespace

std::size_t character_bytes(std::string_view text, std::size_t at) {
  STEMMA_DCHECK(at < text.size(), "a character is read inside its text");
  const std::size_t bytes = promised_bytes(text[at]);
  if (bytes > text.size() - at) return 1;
  for (std::size_t i = 1; i < bytes; ++i) {
    if (!is_continuation(text[at + i])) return 1;
  }
  return bytes;
}

std::int32_t code_point(std::string_view character) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return at(0) < 0x80 ? at(0) : -1;
  std::uint32_t code = at(0) & (0xFFu >> (character.size() + 1));
  for (std::size_t i = 1; i < character.size(); ++i) code = (code << 6) | (at(i) & 0x3Fu);
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // less has a shorter form
  const bool is_text =
      code >= kLeast[character.size()] && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
  return is_text ? static_cast<std::int32_t>(code) : -1;
}

std::int64_t character_count(std::string_view text) {
  std::int64_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += character_bytes(text, at)) ++count;
  return count;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = character_bytes(text, at);
    result.push_back(text.substr(at, bytes));
    at += bytes;
  }
  return result;
}

bool is_space(std::string_view character) {
  if (character.size() == 1) {
    const char c = character[0];
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= '\x1c' && c <= '\x1f');
  }
  const std::int32_t c = code_point(character);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> chars) {
  const auto leaves = [&](std::string_view character) {
    return chars ? contains_character(*chars, character) : is_space(character);
  };
  while (side != Side::kRight && !text.empty()) {
    const std::size_t bytes = character_bytes(text, 0);
    if (!leaves(text.substr(0, bytes))) break;
    text.remove_prefix(bytes);
  }
  while (side != Side::kLeft && !text.empty()) {
    const std::size_t at = last_character(text);
    if (!leaves(text.substr(at))) break;
    text = text.substr(0, at);
  }
  return text;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    std::int64_t splits_max) {
  STEMMA_CHECK(!separator.empty(), "a separator has at least one character");
  std::vector<std::string_view> parts;
  while (splits_max != 0) {
    const std::size_t at = text.find(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
    --splits_max;
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> split_from_end(std::string_view text, std::string_view separator,
                                             std::int64_t splits_max) {
  STEMMA_CHECK(!separator.empty(), "a separator has at least one character");
  std::vector<std::string_view> parts;
  while (splits_max != 0) {
    const std::size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
    --splits_max;
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_on_space(std::string_view text, std::int64_t splits_max) {
  std::vector<std::string_view> parts;
  for (text = strip(text, Side::kLeft); !text.empty(); text = strip(text, Side::kLeft)) {
    std::size_t end = splits_max == 0 ? text.size() : 0;
    while (end < text.size() && !is_space(text.substr(end, character_bytes(text, end)))) {
      end += character_bytes(text, end);
    }
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
    --splits_max;
  }
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t bytes = character_bytes(text, at);
    if (ends_line(code_point(text.substr(at, bytes)))) {
      lines.push_back(text.substr(begin, at - begin));
      if (text.substr(at).starts_with("\r\n")) bytes = 2;
      begin = at + bytes;
    }
    at += bytes;
  }
  lines.push_back(text.substr(begin));
  return lines;
}

bool is_ascii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> digits;
  const auto print = [&](std::chars_format format) {
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, format);
    return std::string(digits.data(), end.ptr);
  };
  const double magnitude = std::fabs(value);
  if (magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16)) {
    return print(std::chars_format::scientific);
  }
  std::string text = print(std::chars_format::fixed);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

void append_code_point(std::string& out, std::uint32_t c) {
  STEMMA_CHECK(c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF), "a Unicode scalar value");
  const auto tail = [](std::uint32_t bits) { return static_cast<char>(0x80u | (bits & 0x3Fu)); };
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0u | (c >> 6)));
    out.push_back(tail(c));
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xE0u | (c >> 12)));
    out.push_back(tail(c >> 6));
    out.push_back(tail(c));
  } else {
    out.push_back(static_cast<char>(0xF0u | (c >> 18)));
    out.push_back(tail(c >> 12));
    out.push_back(tail(c >> 6));
    out.push_back(tail(c));
  }
}

}  // namespace stemma::jinja
