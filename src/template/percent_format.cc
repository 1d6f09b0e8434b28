#include "template/percent_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "template/builtin.h"
#include "template/operators.h"
#include "template/python_case.h"
#include "template/python_text.h"

namespace stemma::jinja {
namespace {

constexpr std::int64_t kWidthMax = 4096;

// "%-08.3f": what stands between the % and its letter, and the letter.
struct FormatPlace {
  bool left = false;
  bool zeros = false;
  bool plus = false;
  bool space = false;
  bool other_form = false;
  std::int64_t width = 0;
  std::optional<std::int64_t> precision;
  char letter = '\0';
};

Error unsupported(std::string_view what) {
  return {ErrorCode::kUnsupported,
          "formatting text with " + std::string(what) + " is not supported"};
}

// The number at `at`, which is moved behind it; 0 where there is none.
Result<std::int64_t> number_at(std::string_view format, std::size_t& at) {
  std::int64_t number = 0;
  const char* const begin = format.data() + at;
  const auto read = std::from_chars(begin, format.data() + format.size(), number);
  if (read.ec == std::errc::invalid_argument) return std::int64_t{0};
  if (read.ec != std::errc() || number < 0 || number > kWidthMax)
    return type_error("a width that is too large");
  at += static_cast<std::size_t>(read.ptr - begin);
  return number;
}

bool take_flag(char c, FormatPlace& place) {
  if (c == '-') return place.left = true;
  if (c == '0') return place.zeros = true;
  if (c == '+') return place.plus = true;
  if (c == ' ') return place.space = true;
  if (c == '#') return place.other_form = true;
  return false;
}

// The place behind the % before `at`, which is moved behind its letter.
Result<FormatPlace> place_at(std::string_view format, std::size_t& at) {
  FormatPlace place;
  while (at < format.size() && take_flag(format[at], place)) ++at;
  STEMMA_ASSIGN_OR_RETURN(place.width, number_at(format, at));
  if (at < format.size() && format[at] == '.') {
    ++at;
    STEMMA_ASSIGN_OR_RETURN(place.precision, number_at(format, at));
  }
  if (at == format.size()) return type_error("the format ends within a place");
  place.letter = format[at++];
  return place;
}

// Digits with their sign in the place's width.
std::string in_width(const FormatPlace& place, bool is_negative, std::string_view before,
                     std::string digits) {
  std::string sign = is_negative ? "-" : place.plus ? "+" : place.space ? " " : "";
  sign += before;
  const auto width = static_cast<std::size_t>(place.width);
  const std::size_t bytes = sign.size() + digits.size();
  const std::size_t short_of = width > bytes ? width - bytes : 0;
  if (place.left) return sign + digits + std::string(short_of, ' ');
  if (place.zeros) return sign + std::string(short_of, '0') + digits;
  return std::string(short_of, ' ') + sign + digits;
}

Result<std::string> whole_at(const FormatPlace& place, const Value& value) {
  if (!value.is_number()) return type_error("%d needs a number, not " + described(value));
  if (value.is_wide_integer() || (value.is(Kind::kFloat) && !(std::abs(value.real()) < 0x1p63))) {
    return unsupported("an integer beyond 64 bits");
  }
  if (place.letter == 'x' && !value.is_whole()) {
    return type_error("%x needs an int, not " + described(value));
  }
  const std::int64_t number =
      value.is_whole() ? value.integer() : static_cast<std::int64_t>(value.real());
  const auto magnitude =
      number < 0 ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
  std::string digits =
      place.letter == 'x' ? fmt::format("{:x}", magnitude) : fmt::format("{}", magnitude);
  const auto least = static_cast<std::size_t>(place.precision.value_or(0));
  if (digits.size() < least) digits.insert(0, least - digits.size(), '0');
  const bool says_base = place.letter == 'x' && place.other_form;
  return in_width(place, number < 0, says_base ? "0x" : "", std::move(digits));
}

Result<std::string> real_at(const FormatPlace& place, const Value& value) {
  if (!value.is_number()) return type_error("%f needs a number, not " + described(value));
  if (place.other_form) return unsupported("%#f");
  const double real = value.real();
  if (!std::isfinite(real)) return unsupported("%f of a number that is not finite");
  std::string digits = fmt::format("{:.{}f}", std::fabs(real), place.precision.value_or(6));
  return in_width(place, std::signbit(real), "", std::move(digits));
}

Result<std::string> text_at(Arena& arena, const FormatPlace& place, const Value& value) {
  STEMMA_ASSIGN_OR_RETURN(const Value written, to_text(arena, value));
  const bool quotes = place.letter == 'r' && value.is(Kind::kText);
  std::string text = quotes ? quoted_text(written.text()) : std::string(written.text());
  std::int64_t count = character_count(text);
  if (place.precision.has_value() && count > *place.precision) {
    const auto kept = characters(text);
    std::string begin;
    for (std::int64_t i = 0; i < *place.precision; ++i) begin += kept[static_cast<std::size_t>(i)];
    text = std::move(begin);
    count = *place.precision;
  }
  const std::string gap(static_cast<std::size_t>(std::max<std::int64_t>(place.width - count, 0)),
                        ' ');
  return place.left ? text + gap : gap + text;
}

Result<std::string> written_at(Arena& arena, const FormatPlace& place, const Value& value) {
  switch (place.letter) {
    case 's':
    case 'r':
      return text_at(arena, place, value);
    case 'd':
    case 'i':
    case 'x':
      return whole_at(place, value);
    case 'f':
      return real_at(place, value);
    default:
      return unsupported(std::string("%") + place.letter);
  }
}

}  // namespace

Result<Value> percent_format(Arena& arena, std::string_view format, std::span<const Value> values) {
  TextBuilder out(arena);
  std::size_t used = 0;
  for (std::size_t at = 0; at < format.size() && arena.exceeded().empty();) {
    const std::size_t percent = std::min(format.find('%', at), format.size());
    out.append(format.substr(at, percent - at));
    at = percent + 1;
    if (percent == format.size()) break;
    STEMMA_ASSIGN_OR_RETURN(const FormatPlace place, place_at(format, at));
    if (place.letter == '%') {
      out.append("%");
      continue;
    }
    if (used == values.size()) return type_error("fewer values than the format has places");
    STEMMA_ASSIGN_OR_RETURN(const std::string written, written_at(arena, place, values[used++]));
    out.append(written);
  }
  if (used < values.size()) return type_error("more values than the format has places");
  return out.finish();
}

}  // namespace stemma::jinja
