#include "model/unicode_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"

namespace stemma {
namespace {

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char byte) { return static_cast<unsigned char>(byte) < 0x80; });
}

utf8proc_option_t options_of(NormalForm form) {
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compat = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE |
                                        (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                        (compat ? UTF8PROC_COMPAT : 0));
}

std::vector<utf8proc_int32_t> decomposed(std::string_view text, utf8proc_option_t options) {
  constexpr std::size_t kCodesOfOneMax = 32;  // U+FDFA has the most, 18
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); at = utf8_next(text, at)) {
    std::array<utf8proc_int32_t, kCodesOfOneMax> own;
    int bound_class = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(utf8_code_at(text, at)), own.data(),
                                std::ssize(own), options, &bound_class);
    STEMMA_CHECK(count >= 0 && count <= std::ssize(own), "normal forms need well-formed UTF-8");
    codes.insert(codes.end(), own.begin(), own.begin() + count);
  }
  return codes;
}

// The canonical ordering of the Unicode standard (3.11). What utf8proc does for it is quadratic in
// the marks behind one letter, of which a text may have any number.
void order_marks(std::vector<utf8proc_int32_t>& codes) {
  const auto class_of = [](utf8proc_int32_t code) {
    return utf8proc_get_property(code)->combining_class;
  };
  const auto is_mark = [&](utf8proc_int32_t code) { return class_of(code) != 0; };
  for (auto begin = codes.begin(); begin != codes.end();) {
    begin = std::find_if(begin, codes.end(), is_mark);
    const auto end = std::find_if_not(begin, codes.end(), is_mark);
    std::stable_sort(begin, end, [&](utf8proc_int32_t a, utf8proc_int32_t b) {
      return class_of(a) < class_of(b);
    });
    begin = end;
  }
}

}  // namespace

void Utf8Assembler::push(std::uint8_t byte, std::string& out) {
  if (held_bytes_ > 0 && (byte < least_ || byte > most_)) {
    flush(out);
  }
  if (held_bytes_ == 0) {
    start(byte, out);
    return;
  }
  held_[held_bytes_++] = static_cast<char>(byte);
  least_ = 0x80;
  most_ = 0xBF;
  if (held_bytes_ == wanted_bytes_) {
    out.append(held_, held_bytes_);
    held_bytes_ = 0;
  }
}

void Utf8Assembler::start(std::uint8_t byte, std::string& out) {
  if (byte < 0x80) {
    out.push_back(static_cast<char>(byte));
    return;
  }
  if (byte < 0xC2 || byte > 0xF4) {
    out.append(kReplacementCharacter);
    return;
  }
  held_[held_bytes_++] = static_cast<char>(byte);
  wanted_bytes_ = byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
  least_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
  most_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
}

void Utf8Assembler::flush(std::string& out) {
  const int marks = ill_formed_ == IllFormed::kOnePerByte ? held_bytes_ : held_bytes_ > 0 ? 1 : 0;
  for (int mark = 0; mark < marks; ++mark) {
    out.append(kReplacementCharacter);
  }
  held_bytes_ = 0;
}

bool is_utf8(std::string_view bytes) {
  if (is_ascii(bytes)) {
    return true;
  }
  std::size_t at = 0;
  while (at < bytes.size()) {
    utf8proc_int32_t code = 0;
    const utf8proc_ssize_t length =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(bytes.data()) + at,
                         static_cast<utf8proc_ssize_t>(bytes.size() - at), &code);
    if (length <= 0) {
      return false;
    }
    at += static_cast<std::size_t>(length);
  }
  return true;
}

std::string utf8_repaired(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  Utf8Assembler assembler(Utf8Assembler::IllFormed::kOnePerSequence);
  for (const char byte : bytes) {
    assembler.push(static_cast<std::uint8_t>(byte), text);
  }
  assembler.flush(text);
  return text;
}

std::size_t utf8_next(std::string_view text, std::size_t at) {
  STEMMA_DCHECK(at < text.size(), "a character begins here");
  ++at;
  while (at < text.size() && is_continuation(text[at])) {
    ++at;
  }
  return at;
}

char32_t utf8_code_at(std::string_view text, std::size_t at) {
  STEMMA_DCHECK(at < text.size(), "a character begins here");
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) {
    return lead;
  }
  const std::size_t end = utf8_next(text, at);
  char32_t code = lead & (lead < 0xE0 ? 0x1Fu : lead < 0xF0 ? 0x0Fu : 0x07u);
  for (std::size_t byte = at + 1; byte < end; ++byte) {
    code = (code << 6) | (static_cast<unsigned char>(text[byte]) & 0x3Fu);
  }
  return code;
}

std::int64_t characters_in(std::string_view text) {
  return std::ssize(text) - std::count_if(text.begin(), text.end(), is_continuation);
}

std::size_t utf8_floor(std::string_view text, std::size_t limit) {
  if (limit >= text.size()) {
    return text.size();
  }
  while (limit > 0 && is_continuation(text[limit])) {
    --limit;
  }
  return limit;
}

void utf8_append(char32_t code, std::string& out) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length));
}

bool is_white_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

std::size_t leading_space_bytes(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && is_white_space(utf8_code_at(text, at))) {
    at = utf8_next(text, at);
  }
  return at;
}

std::size_t trailing_space_bytes(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const std::size_t at = utf8_floor(text, end - 1);
    if (!is_white_space(utf8_code_at(text, at))) {
      break;
    }
    end = at;
  }
  return text.size() - end;
}

std::string normal_form(std::string_view text, NormalForm form) {
  if (is_ascii(text)) {
    return std::string(text);
  }
  const utf8proc_option_t options = options_of(form);
  std::vector<utf8proc_int32_t> codes = decomposed(text, options);
  order_marks(codes);
  const auto count = static_cast<utf8proc_ssize_t>(codes.size());
  codes.push_back(0);  // reencode writes a zero behind its text
  const utf8proc_ssize_t out_bytes = utf8proc_reencode(codes.data(), count, options);
  STEMMA_CHECK(out_bytes >= 0, "normal forms need well-formed UTF-8");
  return std::string(reinterpret_cast<const char*>(codes.data()),
                     static_cast<std::size_t>(out_bytes));
}

std::string lower_case(std::string_view text) {
  constexpr char32_t kCapitalIWithDot =
      0x130;  // the one character whose lower case is two: i, U+0307
  std::string lower;
  lower.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); at = utf8_next(text, at)) {
    const char32_t code = utf8_code_at(text, at);
    if (code == kCapitalIWithDot) {
      lower.append("i\xCC\x87");
    } else {
      utf8_append(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))),
                  lower);
    }
  }
  return lower;
}

}  // namespace stemma
