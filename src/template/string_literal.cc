#include "template/string_literal.h"

#include <charconv>
#include <cstdint>
#include <optional>

#include "template/python_text.h"

namespace stemma::jinja {
namespace {

// The character that a one-letter escape stands for.
std::optional<std::string_view> simple_escape(char c) {
  switch (c) {
    case 'n':
      return "\n";
    case 't':
      return "\t";
    case 'r':
      return "\r";
    case 'a':
      return "\a";
    case 'b':
      return "\b";
    case 'f':
      return "\f";
    case 'v':
      return "\v";
    case '\\':
      return "\\";
    case '\'':
      return "'";
    case '"':
      return "\"";
    case '\n':
      return "";
    default:
      return std::nullopt;
  }
}

std::size_t hex_digits(char c) {
  if (c == 'x') return 2;
  if (c == 'u') return 4;
  return c == 'U' ? 8 : 0;
}

// Appends the character that `digits` in `radix` names.
Status append_number(std::string& out, std::string_view digits, int radix) {
  std::uint32_t code = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), code, radix);
  if (digits.empty() || end.ec != std::errc{} || end.ptr != digits.data() + digits.size()) {
    return Error{ErrorCode::kCorrupt, "a string has a malformed escape"};
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
    return Error{ErrorCode::kUnsupported, "a string has an escape that is no Unicode character"};
  }
  append_code_point(out, code);
  return {};
}

}  // namespace

Result<std::string> decode_string_literal(std::string_view body) {
  std::string out;
  std::size_t at = 0;
  while (at < body.size()) {
    const char c = body[at++];
    if (c != '\\' || at >= body.size()) {
      out.push_back(c);
      continue;
    }
    const char escape = body[at];
    if (const auto simple = simple_escape(escape)) {
      out += *simple;
      ++at;
    } else if (const std::size_t digits = hex_digits(escape); digits > 0) {
      if (body.size() - at - 1 < digits) {
        return Error{ErrorCode::kCorrupt, "a string has a malformed escape"};
      }
      STEMMA_RETURN_IF_ERROR(append_number(out, body.substr(at + 1, digits), 16));
      at += 1 + digits;
    } else if (escape >= '0' && escape <= '7') {
      std::size_t octal = 1;
      while (octal < 3 && at + octal < body.size() && body[at + octal] >= '0' &&
             body[at + octal] <= '7') {
        ++octal;
      }
      STEMMA_RETURN_IF_ERROR(append_number(out, body.substr(at, octal), 8));
      at += octal;
    } else if (escape == 'N') {
      return Error{ErrorCode::kUnsupported, "the escape \\N{...} is not supported"};
    } else {
      out.push_back('\\');
    }
  }
  return out;
}

}  // namespace stemma::jinja
