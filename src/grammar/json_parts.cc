#include "grammar/json_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <utility>

#include "base/check.h"
#include "grammar/byte_regex.h"
#include "grammar/free_text.h"
#include "model/unicode_text.h"

namespace stemma {
namespace {

using Part = ByteGrammar::Part;

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kHex = "0123456789abcdefABCDEF";
constexpr std::int64_t kBlanksMax = 20;
// With 18 digits before and behind the point and two of an exponent a number fits a double.
constexpr std::int64_t kDigitsMax = 18;
constexpr std::int64_t kExponentDigitsMax = 2;

// Characters that stand for themselves in a string.
constexpr CharRange kPlain[] = {{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, kCharMax}};
// And those that never do.
constexpr CharRange kEscaped[] = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
bool is_escaped(char32_t code) {
  return std::any_of(std::begin(kEscaped), std::end(kEscaped), [&](const CharRange& range) {
    return range.first <= code && code <= range.last;
  });
}

// \n and its like, \u0000 and two of them for a character beyond U+FFFF.
Part escape(ByteGrammar& grammar) {
  const Part hex = grammar.one_of(kHex);
  const Part two = grammar.sequence({hex, hex});
  const auto unit = [&](std::initializer_list<Part> rest) {
    std::vector<Part> parts = {grammar.text("\\u")};
    parts.insert(parts.end(), rest);
    return grammar.sequence(std::move(parts));
  };
  const Part d = grammar.one_of("dD");
  const Part single =
      grammar.either({grammar.sequence({grammar.one_of("0123456789abcefABCEF"), hex}),
                      grammar.sequence({d, grammar.one_of("01234567")})});
  const Part high = unit({d, grammar.one_of("89abAB"), two});
  const Part low = unit({d, grammar.one_of("cdefCDEF"), two});
  return grammar.either({grammar.sequence({grammar.text("\\"), grammar.one_of("\"\\/bfnrt")}),
                         unit({single, two}), grammar.sequence({high, low})});
}

Part number_of(ByteGrammar& grammar) {
  const Part digit = grammar.rule(grammar.one_of(kDigits));
  const auto digits = [&](std::int64_t least, std::int64_t most) {
    return grammar.repeated(digit, least, most);
  };
  const Part whole =
      grammar.either({grammar.text("0"),
                      grammar.sequence({grammar.one_of("123456789"), digits(0, kDigitsMax - 1)})});
  const Part fraction = grammar.sequence({grammar.text("."), digits(1, kDigitsMax)});
  const Part exponent =
      grammar.sequence({grammar.one_of("eE"), grammar.optional(grammar.one_of("+-")),
                        digits(1, kExponentDigitsMax)});
  return grammar.sequence({grammar.optional(grammar.text("-")), whole, grammar.optional(fraction),
                           grammar.optional(exponent)});
}

}  // namespace

JsonParts::JsonParts(ByteGrammar& to, JsonSpace between) : grammar(to) {
  if (between == JsonSpace::kNone) {
    space = blank = grammar.sequence({});
  } else {
    space = grammar.rule(grammar.optional(grammar.either(
        {grammar.text(" "),
         grammar.sequence(
             {grammar.text("\n"), grammar.repeated(grammar.one_of(" \t"), 0, kBlanksMax)})})));
    blank = grammar.optional(grammar.text(" "));
  }
  character = grammar.rule(grammar.either({grammar.one_of(kPlain), escape(grammar)}));
  number = grammar.rule(number_of(grammar));
  any = grammar.rule();
  any_object = grammar.rule();
  const Part text = grammar.rule(string(0, std::nullopt));
  const auto list_of = [&](Part item) {
    return grammar.optional(grammar.sequence(
        {item, grammar.repeated(grammar.sequence({comma(), item}), 0, std::nullopt)}));
  };
  const Part member = grammar.rule(grammar.sequence({text, colon(), any}));
  grammar.define(any_object, enclosed("{", list_of(member), "}"));
  grammar.define(
      any, grammar.either({any_object, enclosed("[", list_of(any), "]"), text, number,
                           grammar.text("true"), grammar.text("false"), grammar.text("null")}));
}

JsonParts JsonParts::with_plain_strings(std::string_view end) const {
  JsonParts parts = *this;
  parts.plain_end_ = end;
  parts.plain_text_ = grammar.rule();
  const Status status = define_free_text(parts.plain_text_, {.ends = {std::string(end)}}, grammar);
  STEMMA_CHECK(status.ok(), "a mark is short");
  const CharRange excluded[] = {
      {static_cast<unsigned char>(end.front()), static_cast<unsigned char>(end.front())}};
  parts.character = grammar.rule(grammar.one_of(other_chars(excluded)));
  return parts;
}

Part JsonParts::string(std::int64_t least, std::optional<std::int64_t> most) const {
  if (has_plain_strings()) {
    const bool is_any = least == 0 && !most.has_value();
    return is_any ? plain_text_ : grammar.repeated(character, least, most);
  }
  const Part quote = grammar.text("\"");
  return grammar.sequence({quote, grammar.repeated(character, least, most), quote});
}

// One of these characters that is not the first of what ends a plain text.
Part JsonParts::plain_of(std::span<const CharRange> chars) const {
  const auto left_out = static_cast<unsigned char>(plain_end_.front());
  std::vector<CharRange> plain;
  for (const CharRange& range : chars) {
    if (range.first > left_out || range.last < left_out) {
      plain.push_back(range);
      continue;
    }
    if (range.first < left_out) plain.push_back({range.first, left_out - 1U});
    if (range.last > left_out) plain.push_back({left_out + 1U, range.last});
  }
  return plain.empty() ? grammar.nothing(fmt::format("a text here has no {}", plain_end_.front()))
                       : grammar.one_of(plain);
}

// One of these characters, as a string has it: most stand for themselves, others have escapes.
Part JsonParts::written(std::span<const CharRange> chars) const {
  constexpr std::pair<char32_t, std::string_view> kEscapes[] = {
      {U'"', "\\\""}, {U'\\', "\\\\"}, {U'\b', "\\b"}, {U'\f', "\\f"},
      {U'\n', "\\n"}, {U'\r', "\\r"},  {U'\t', "\\t"}};
  std::vector<std::string> escapes;
  std::vector<CharRange> plain;
  for (const CharRange& range : chars) {
    for (const CharRange& allowed : kPlain) {
      const CharRange both = {std::max(range.first, allowed.first),
                              std::min(range.last, allowed.last)};
      if (both.first <= both.last) plain.push_back(both);
    }
    for (const auto& [code, escape] : kEscapes) {
      if (range.first <= code && code <= range.last) escapes.emplace_back(escape);
    }
    for (char32_t code = range.first; code <= std::min<char32_t>(range.last, 0x1F); ++code) {
      const bool has_short = std::any_of(std::begin(kEscapes), std::end(kEscapes),
                                         [&](const auto& one) { return one.first == code; });
      if (!has_short) escapes.push_back(fmt::format("\\u{:04x}", code + 0U));
    }
  }
  std::vector<Part> parts;
  const std::vector<std::string_view> views(escapes.begin(), escapes.end());
  if (!views.empty()) parts.push_back(grammar.one_text_of(views));
  if (!plain.empty()) parts.push_back(grammar.one_of(plain));
  return grammar.rule(grammar.either(std::move(parts)));
}

Result<Part> JsonParts::string_of(std::string_view expression) const {
  const Part quote = grammar.text("\"");
  const bool is_plain = has_plain_strings();
  STEMMA_ASSIGN_OR_RETURN(
      const Part inner,
      add_regex(expression, RegexMatch::kAnywhere, grammar, [&](std::span<const CharRange> chars) {
        return is_plain ? plain_of(chars) : written(chars);
      }));
  return is_plain ? inner : grammar.sequence({quote, inner, quote});
}

Part JsonParts::comma() const {
  return grammar.sequence({grammar.text(","), space});
}

Part JsonParts::colon() const {
  return grammar.sequence({grammar.text(":"), blank});
}

Part JsonParts::enclosed(std::string_view open, Part inner, std::string_view close) const {
  return grammar.sequence({grammar.text(open), space, inner, space, grammar.text(close)});
}

// Names as a tree of characters: at each place the string goes on with one of a name's, or with
// another one and then in any way. Up to there a character is written in one way, so that no name
// comes in another.
Part JsonParts::other_string(const std::vector<std::string>& names) const {
  const Part quote = grammar.text("\"");
  const Part any_rest = grammar.rule(grammar.sequence({grammar.repeated(character, 0, {}), quote}));
  const Part escaped_rest = grammar.rule(grammar.sequence({written(kEscaped), any_rest}));
  struct Place {
    Part rule;
    std::vector<std::string_view> rests;  // of the names that begin so
  };
  const Part whole = grammar.rule();
  std::vector<Place> open = {{whole, {names.begin(), names.end()}}};
  while (!open.empty()) {
    const Place place = std::move(open.back());
    open.pop_back();
    std::map<char32_t, std::vector<std::string_view>> by_char;
    bool ends = false;
    for (const std::string_view rest : place.rests) {
      if (rest.empty()) {
        ends = true;
      } else {
        by_char[utf8_code_at(rest, 0)].push_back(rest.substr(utf8_next(rest, 0)));
      }
    }
    std::vector<Part> parts;
    std::vector<CharRange> taken;
    bool is_plain = true;
    for (auto& [code, rests] : by_char) {
      const CharRange one[] = {{code, code}};
      taken.push_back(one[0]);
      is_plain = is_plain && !is_escaped(code);
      const Part rest = grammar.rule();
      const Part begin = is_escaped(code) ? written(one) : grammar.one_of(one);
      parts.push_back(grammar.sequence({begin, rest}));
      open.push_back({rest, std::move(rests)});
    }
    if (is_plain) {  // of which there are many: they share the others that have escapes
      taken.insert(taken.end(), std::begin(kEscaped), std::end(kEscaped));
      std::sort(taken.begin(), taken.end(),
                [](const CharRange& a, const CharRange& b) { return a.first < b.first; });
      parts.push_back(grammar.sequence({grammar.one_of(other_chars(taken)), any_rest}));
      parts.push_back(escaped_rest);
    } else {
      parts.push_back(grammar.sequence({written(other_chars(taken)), any_rest}));
    }
    if (!ends) parts.push_back(quote);
    grammar.define(place.rule, grammar.either(std::move(parts)));
  }
  return grammar.sequence({quote, whole});
}

// Digits, as many as `bound` has, that as a number are not less than it, or not greater.
Part JsonParts::digits_beyond(std::string_view bound, Side side) const {
  std::vector<Part> parts;
  const Part digit = grammar.rule(grammar.one_of(kDigits));
  // Equal up to a place, beyond it there, and anything behind.
  for (std::size_t at = 0; at < bound.size(); ++at) {
    const auto value = static_cast<std::size_t>(bound[at] - '0');
    const std::string_view beyond =
        side == Side::kAbove ? kDigits.substr(value + 1) : kDigits.substr(0, value);
    if (beyond.empty()) continue;
    const auto rest = static_cast<std::int64_t>(bound.size() - at - 1);
    parts.push_back(grammar.sequence({grammar.text(bound.substr(0, at)), grammar.one_of(beyond),
                                      grammar.repeated(digit, rest, rest)}));
  }
  parts.push_back(grammar.text(bound));
  return grammar.either(std::move(parts));
}

// REQUIRES: as many digits, and least <= most.
Part JsonParts::digits_between(std::string_view least, std::string_view most) const {
  const auto at = static_cast<std::size_t>(
      std::mismatch(least.begin(), least.end(), most.begin()).first - least.begin());
  if (at == least.size()) return grammar.text(least);
  const std::string_view low = least.substr(at + 1);
  const std::string_view high = most.substr(at + 1);
  std::vector<Part> parts = {
      grammar.sequence({grammar.text(least.substr(at, 1)), digits_beyond(low, Side::kAbove)}),
      grammar.sequence({grammar.text(most.substr(at, 1)), digits_beyond(high, Side::kBelow)})};
  const auto first = static_cast<std::size_t>(least[at] - '0') + 1;
  const auto last = static_cast<std::size_t>(most[at] - '0');
  if (first < last) {
    const auto rest = static_cast<std::int64_t>(low.size());
    parts.push_back(grammar.sequence({grammar.one_of(kDigits.substr(first, last - first)),
                                      grammar.repeated(grammar.one_of(kDigits), rest, rest)}));
  }
  return grammar.sequence({grammar.text(least.substr(0, at)), grammar.either(std::move(parts))});
}

// Of numbers of so many digits all are meant, or those between two: of the first and the last count
// of digits alone.
Part JsonParts::whole_numbers(std::int64_t least, std::int64_t most) const {
  const std::string low = std::to_string(least);
  const std::string high = std::to_string(most);
  const auto count = [](std::size_t digits) { return static_cast<std::int64_t>(digits); };
  std::size_t first_full = low.size();  // counts of digits of which all numbers are meant
  std::size_t last_full = high.size();
  if (low != "1" + std::string(low.size() - 1, '0')) ++first_full;
  if (high != std::string(high.size(), '9')) --last_full;
  std::vector<Part> parts;
  if (first_full > low.size()) {
    const bool is_last = low.size() == high.size();
    parts.push_back(digits_between(low, is_last ? high : std::string(low.size(), '9')));
  }
  if (first_full <= last_full) {
    parts.push_back(grammar.sequence(
        {grammar.one_of("123456789"),
         grammar.repeated(grammar.one_of(kDigits), count(first_full) - 1, count(last_full) - 1)}));
  }
  if (last_full < high.size() && first_full <= high.size()) {
    parts.push_back(digits_between("1" + std::string(high.size() - 1, '0'), high));
  }
  return grammar.either(std::move(parts));
}

Part JsonParts::integer(std::int64_t least, std::int64_t most) const {
  STEMMA_CHECK(-kIntegerMax <= least && least <= most && most <= kIntegerMax, "a range");
  std::vector<Part> parts;
  if (most >= 0) parts.push_back(whole_numbers(std::max<std::int64_t>(least, 0), most));
  if (least < 0) {
    const Part magnitude = whole_numbers(std::max<std::int64_t>(-most, 1), -least);
    parts.push_back(grammar.sequence({grammar.text("-"), magnitude}));
  }
  return grammar.either(std::move(parts));
}

// What may follow a whole number: nothing, or a point and digits that as a fraction lie between
// `least` and `most`. At a place the digits before are those of both, of either or of none; digits
// of a bound count only as long as those behind them could still go beyond it.
Part JsonParts::fraction(std::string_view least, std::string_view most) const {
  constexpr unsigned kLeast = 1;
  constexpr unsigned kMost = 2;
  const std::size_t places = least.size();
  const Part digit = grammar.one_of(kDigits);
  Part rests[4] = {};  // behind a place, by the bounds that count there
  for (std::size_t at = places + 1; at-- > 0;) {
    Part here[4] = {};
    const auto pointed = [&](Part digits) {
      return at > 0 ? digits : grammar.sequence({grammar.text("."), digits});
    };
    const auto left = static_cast<std::int64_t>(places - at);
    here[0] = left == 0 ? grammar.sequence({})
                        : grammar.optional(pointed(grammar.repeated(digit, 1, left)));
    for (unsigned bounds = 1; bounds < 4; ++bounds) {
      unsigned count = bounds;
      if (least.find_first_not_of('0', at) == std::string_view::npos) count &= ~kLeast;
      if (most.find_first_not_of('9', at) == std::string_view::npos) count &= ~kMost;
      if (count != bounds) {
        here[bounds] = here[count];
        continue;
      }
      const bool is_least = (bounds & kLeast) != 0;
      const bool is_most = (bounds & kMost) != 0;
      const char first = is_least ? least[at] : '0';
      const char last = is_most ? most[at] : '9';
      std::vector<Part> ways;
      for (char one = first; one <= last; ++one) {
        const unsigned next =
            (is_least && one == first ? kLeast : 0) | (is_most && one == last ? kMost : 0);
        // Those between the bounds go on alike: one way for all.
        const char until = next == 0 ? static_cast<char>(last - (is_most ? 1 : 0)) : one;
        if (rests[next].number >= 0) {
          const CharRange range[] = {{static_cast<char32_t>(one), static_cast<char32_t>(until)}};
          ways.push_back(grammar.sequence({grammar.one_of(range), rests[next]}));
        }
        one = until;
      }
      if (!ways.empty()) ways = {pointed(grammar.either(std::move(ways)))};
      if (!is_least) ways.push_back(grammar.sequence({}));
      if (!ways.empty()) here[bounds] = grammar.rule(grammar.either(std::move(ways)));
    }
    std::copy(std::begin(here), std::end(here), std::begin(rests));
  }
  return rests[3];
}

// REQUIRES: 0 <= least <= most.
Part JsonParts::decimals(std::int64_t least, std::int64_t most) const {
  const auto digits_of = [](std::int64_t rest) {
    return fmt::format("{:06}", rest);  // of kNumberUnit
  };
  const std::string from = digits_of(least % kNumberUnit);
  const std::string to = digits_of(most % kNumberUnit);
  const std::string none = digits_of(0);
  const std::string all = digits_of(kNumberUnit - 1);
  const std::int64_t low = least / kNumberUnit;
  const std::int64_t high = most / kNumberUnit;
  const auto decimal = [&](std::int64_t whole, std::string_view first, std::string_view last) {
    return grammar.sequence({grammar.text(std::to_string(whole)), fraction(first, last)});
  };
  if (low == high) return decimal(low, from, to);
  std::vector<Part> parts = {decimal(low, from, all), decimal(high, none, to)};
  if (low + 1 < high) {
    parts.push_back(grammar.sequence({whole_numbers(low + 1, high - 1), fraction(none, all)}));
  }
  return grammar.either(std::move(parts));
}

Part JsonParts::number_between(std::int64_t least, std::int64_t most) const {
  STEMMA_CHECK(-kNumberMax <= least && least <= most && most <= kNumberMax, "a range");
  std::vector<Part> parts;
  if (most >= 0) parts.push_back(decimals(std::max<std::int64_t>(least, 0), most));
  if (least < 0) {
    const Part magnitude = decimals(std::max<std::int64_t>(-most, 1), -least);
    parts.push_back(grammar.sequence({grammar.text("-"), magnitude}));
  }
  return grammar.either(std::move(parts));
}

}  // namespace stemma
