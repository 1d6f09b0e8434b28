#include "template/number_text.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "base/ascii.h"
#include "template/python_text.h"

namespace stemma::jinja {
namespace {

constexpr int kRadixMax = 36;

// The value of a digit of any base; kRadixMax: it is none.
int digit_value(char c) {
  const char lower = lower_ascii(c);
  if (lower >= '0' && lower <= '9') return lower - '0';
  return lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : kRadixMax;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool take_sign(std::string_view& text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  return negative;
}

// 0x, 0o or 0b, of `base` or, where that is 0, of any; an underscore may follow. The base.
int take_prefix(std::string_view& text, int base) {
  constexpr std::pair<char, int> kPrefixes[] = {{'x', 16}, {'o', 8}, {'b', 2}};
  for (const auto& [letter, meant] : kPrefixes) {
    const bool has = text.size() > 1 && text[0] == '0' && lower_ascii(text[1]) == letter;
    if (!has || (base != 0 && base != meant)) continue;
    text.remove_prefix(text.size() > 2 && text[2] == '_' ? 3 : 2);
    return meant;
  }
  return base;
}

// Without the underscores that stand between digits; nullopt: one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text, bool (*is_digit_here)(char)) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      result.push_back(text[i]);
      continue;
    }
    const bool between =
        i > 0 && i + 1 < text.size() && is_digit_here(text[i - 1]) && is_digit_here(text[i + 1]);
    if (!between) return std::nullopt;
  }
  return result;
}

// A word that float() reads as a number.
std::optional<double> real_of_word(std::string_view text) {
  for (const std::string_view word : {"inf", "infinity"}) {
    if (equals_ignoring_case(text, word)) return std::numeric_limits<double>::infinity();
  }
  if (equals_ignoring_case(text, "nan")) return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

}  // namespace

std::optional<WholeText> whole_of_text(std::string_view text, std::int64_t base) {
  if (base < 0 || base == 1 || base > kRadixMax) return std::nullopt;
  text = strip(text, Side::kBoth);
  const bool negative = take_sign(text);
  int meant = take_prefix(text, static_cast<int>(base));
  const bool has_zeros = text.starts_with('0');
  if (meant == 0) meant = 10;
  auto digits = without_underscores(text, [](char c) { return digit_value(c) < kRadixMax; });
  const auto is_of_base = [&](char c) { return digit_value(c) < meant; };
  if (!digits.has_value() || digits->empty() ||
      !std::all_of(digits->begin(), digits->end(), is_of_base)) {
    return std::nullopt;
  }
  digits->erase(0, std::min(digits->find_first_not_of('0'), digits->size() - 1));
  // Without a prefix, base 0 takes zeros before a number for a mistake.
  if (base == 0 && meant == 10 && has_zeros && *digits != "0") return std::nullopt;
  const bool has_minus = negative && *digits != "0";
  return WholeText{(has_minus ? "-" : "") + *digits, meant};
}

std::optional<double> real_of_text(std::string_view text) {
  text = strip(text, Side::kBoth);
  const bool negative = take_sign(text);
  const double sign = negative ? -1 : 1;
  if (const auto word = real_of_word(text)) return sign * *word;
  const auto digits = without_underscores(text, is_digit);
  if (!digits.has_value() || digits->find_first_not_of("0123456789.eE+-") != std::string::npos ||
      digits->starts_with('-')) {
    return std::nullopt;
  }
  double number = 0;
  const auto [end, fault] =
      std::from_chars(digits->data(), digits->data() + digits->size(), number);
  if (end != digits->data() + digits->size()) return std::nullopt;
  if (fault == std::errc::result_out_of_range) {
    const bool is_small = digits->find("e-") != std::string::npos ||
                          digits->find("E-") != std::string::npos || digits->starts_with("0.");
    return sign * (is_small ? 0 : std::numeric_limits<double>::infinity());
  }
  if (fault != std::errc()) return std::nullopt;
  return sign * number;
}

}  // namespace stemma::jinja
