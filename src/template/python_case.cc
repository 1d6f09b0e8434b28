#include "template/python_case.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/ascii.h"
#include "template/python_text.h"

namespace stemma::jinja {
namespace {

constexpr std::int32_t kCapitalSigma = 0x3A3;
constexpr std::int32_t kCapitalDottedI = 0x130;
constexpr std::int32_t kSharpS = 0xDF;

struct CodeRange {
  std::int32_t first;
  std::int32_t last;
};

// Those that are several characters in upper case (SpecialCasing.txt), ß apart, and what lies
// between them in the blocks of Greek that are full of them.
constexpr std::array<CodeRange, 11> kSeveralInUpper = {{{0x149, 0x149},
                                                        {0x1F0, 0x1F0},
                                                        {0x390, 0x390},
                                                        {0x3B0, 0x3B0},
                                                        {0x587, 0x587},
                                                        {0x1E96, 0x1E9A},
                                                        {0x1F50, 0x1F56},
                                                        {0x1F80, 0x1FAF},
                                                        {0x1FB2, 0x1FFC},
                                                        {0xFB00, 0xFB06},
                                                        {0xFB13, 0xFB17}}};

bool is_several_in_upper(std::int32_t code) {
  return std::any_of(kSeveralInUpper.begin(), kSeveralInUpper.end(), [&](const CodeRange& range) {
    return code >= range.first && code <= range.last;
  });
}

// Appends the character in upper case, or as a word begins with it; false: it is several, or is
// not text.
bool append_upper(std::string& out, std::string_view character, bool begins_word) {
  const std::int32_t code = code_point(character);
  if (code == kSharpS) {
    out += begins_word ? "Ss" : "SS";
    return true;
  }
  if (code < 0 || is_several_in_upper(code)) return false;
  const std::int32_t changed = begins_word ? utf8proc_totitle(code) : utf8proc_toupper(code);
  append_code_point(out, static_cast<std::uint32_t>(changed));
  return true;
}

bool append_lower(std::string& out, std::string_view character) {
  const std::int32_t code = code_point(character);
  if (code < 0 || code == kCapitalSigma) return false;
  append_code_point(out, static_cast<std::uint32_t>(utf8proc_tolower(code)));
  if (code == kCapitalDottedI) append_code_point(out, 0x307);  // the dot stays
  return true;
}

// The text, each character in upper case, or as words begin with it, where `is_upper(at)`, else in
// lower.
template <typename IsUpper>
std::optional<std::string> changed(std::string_view text, bool begins_words,
                                   const IsUpper& is_upper) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view character = text.substr(at, character_bytes(text, at));
    const bool done = is_upper(at) ? append_upper(result, character, begins_words)
                                   : append_lower(result, character);
    if (!done) return std::nullopt;
    at += character.size();
  }
  return result;
}

// str.isprintable of one character.
bool is_printable(std::int32_t code) {
  const auto category = utf8proc_category(code);
  return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

void append_escaped(std::string& out, std::uint32_t code) {
  if (code < 0x100) {
    fmt::format_to(std::back_inserter(out), "\\x{:02x}", code);
  } else if (code < 0x10000) {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", code);
  } else {
    fmt::format_to(std::back_inserter(out), "\\U{:08x}", code);
  }
}

}  // namespace

std::optional<std::string> upper(std::string_view text) {
  return changed(text, false, [](std::size_t) { return true; });
}

std::optional<std::string> lower(std::string_view text) {
  return changed(text, false, [](std::size_t) { return false; });
}

std::optional<std::string> capitalize(std::string_view text) {
  return changed(text, true, [](std::size_t at) { return at == 0; });
}

std::optional<std::string> title(std::string_view text) {
  if (!is_ascii(text)) return std::nullopt;
  return changed(text, true, [&](std::size_t at) {
    return at == 0 || lower_ascii(text[at - 1]) < 'a' || lower_ascii(text[at - 1]) > 'z';
  });
}

std::optional<std::string> words_begun_upper(std::string_view text) {
  bool begins = true;
  return changed(text, false, [&](std::size_t at) {
    const std::string_view character = text.substr(at, character_bytes(text, at));
    const bool parts = is_space(character) ||
                       (character.size() == 1 &&
                        std::string_view("-({[<").find(character[0]) != std::string_view::npos);
    return std::exchange(begins, parts) && !parts;
  });
}

std::string quoted_text(std::string_view text) {
  const bool double_quotes =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string result(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view character = text.substr(at, character_bytes(text, at));
    const std::int32_t code = code_point(character);
    if (code == quote || code == '\\') {
      result.push_back('\\');
      result.append(character);
    } else if (code == '\n' || code == '\r' || code == '\t') {
      result += code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
    } else if (code == ' ' || is_printable(code)) {
      result.append(character);
    } else {
      append_escaped(result, code < 0 ? static_cast<unsigned char>(character[0])
                                      : static_cast<std::uint32_t>(code));
    }
    at += character.size();
  }
  result.push_back(quote);
  return result;
}

}  // namespace stemma::jinja
