#include "grammar/byte_regex.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/text_cursor.h"
#include "model/unicode_text.h"

namespace stemma {
namespace {

using Part = ByteGrammar::Part;
using Chars = std::vector<CharRange>;

constexpr int kDepthMax = 100;

const Chars kDigit = {{'0', '9'}};
const Chars kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Chars kSpace = {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680},
                      {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                      {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const Chars kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

// Sorted, and what touches is one.
Chars united(Chars chars) {
  std::sort(chars.begin(), chars.end(),
            [](const CharRange& a, const CharRange& b) { return a.first < b.first; });
  Chars out;
  for (const CharRange& range : chars) {
    if (!out.empty() && range.first <= out.back().last + 1) {
      out.back().last = std::max(out.back().last, range.last);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

class RegexReader : private TextCursor {
 public:
  RegexReader(std::string_view expression, RegexMatch match, ByteGrammar& grammar, CharWriter write)
      : TextCursor(expression), match_(match), grammar_(grammar), write_(write) {}

  Result<Part> read() {
    const Part whole = alternatives(/*depth=*/0);
    STEMMA_RETURN_IF_ERROR(grammar_.check_room());
    if (status_.ok() && at_ < text_.size()) invalid("a ) without a (");
    if (!status_.ok()) return status_.error();
    return whole;
  }

 private:
  // What is refused for its size is not read any further: others wait.
  bool done() const { return at_end() || !status_.ok() || grammar_.is_full(); }
  char32_t take_char() {
    const char32_t code = utf8_code_at(text_, at_);
    at_ = utf8_next(text_, at_);
    return code;
  }

  Part fail(ErrorCode code, std::string_view what) {
    if (status_.ok()) status_ = Error{code, fmt::format("at {}: {}", at_, what)};
    return grammar_.sequence({});
  }
  Part invalid(std::string_view what) { return fail(ErrorCode::kInvalidArgument, what); }
  Part unsupported(std::string_view what) {
    return fail(ErrorCode::kUnsupported, fmt::format("{} not supported", what));
  }

  Part anything() { return grammar_.repeated(chars({{0, kCharMax}}), 0, std::nullopt); }
  Part chars(Chars of) {
    std::erase_if(of, [](const CharRange& range) {
      return range.first >= 0xD800 && range.last <= 0xDFFF;  // halves of characters
    });
    if (of.empty()) return invalid("a class without characters");
    return write_(of);
  }

  Part alternatives(int depth) {
    if (depth > kDepthMax) return invalid("groups nested too deep");
    std::vector<Part> parts = {alternative(depth)};
    while (!done() && take("|")) parts.push_back(alternative(depth));
    return grammar_.either(std::move(parts));
  }

  Part alternative(int depth) {
    std::vector<Part> parts;
    const bool is_outer = depth == 0;
    const bool begins = is_outer && take("^");
    bool ends = false;
    while (!done() && !sees("|") && !sees(")") && !ends) {
      if (is_outer && sees("$")) {
        take("$");
        ends = true;
      } else {
        parts.push_back(quantified(depth));
      }
    }
    if (ends && !done() && !sees("|")) return unsupported("$ within an expression is");
    if (is_outer && match_ == RegexMatch::kAnywhere) {
      if (!begins) parts.insert(parts.begin(), anything());
      if (!ends) parts.push_back(anything());
    }
    return grammar_.sequence(std::move(parts));
  }

  Part quantified(int depth) {
    const Part one = atom(depth);
    if (done()) return one;
    std::int64_t least = 0;
    std::optional<std::int64_t> most;
    if (take("+")) {
      least = 1;
    } else if (take("?")) {
      most = 1;
    } else if (!take("*")) {
      if (!sees_counts()) return one;
      if (!take_counts(least, most)) return one;
    }
    take("?");
    if (sees("+")) return unsupported("possessive quantifiers are");
    if (sees("*") || sees("?")) return invalid("a quantifier of a quantifier");
    return grammar_.repeated(most == 1 ? one : grammar_.rule(one), least, most);
  }

  // Whether {n}, {n,} or {n,m} comes. Other braces are characters, as browsers have it (ECMA-262,
  // annex B) and Python.
  bool sees_counts() const {
    if (!sees("{")) return false;
    std::string_view rest = text_.substr(at_ + 1);
    const auto skip_digits = [&] {
      const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
      rest.remove_prefix(digits);
      return digits > 0;
    };
    if (!skip_digits()) return false;
    if (rest.starts_with(",")) {
      rest.remove_prefix(1);
      skip_digits();
    }
    return rest.starts_with("}");
  }

  // REQUIRES: sees_counts().
  bool take_counts(std::int64_t& least, std::optional<std::int64_t>& most) {
    take("{");
    least = take_number().value_or(0);
    most = least;
    if (take(",")) most = take_number();
    take("}");
    if (most.has_value() && *most < least) invalid("counts in the wrong order");
    return status_.ok();
  }

  Part atom(int depth) {
    if (take("(")) return group(depth);
    if (take("[")) return char_class();
    if (take(".")) return chars(other_chars(kLineEnds));
    if (take("\\")) return escaped();
    if (sees("^") || sees("$")) return unsupported("^ and $ within an expression are");
    if (sees("*") || sees("+") || sees("?") || sees_counts()) {
      return invalid("a quantifier of nothing");
    }
    if (sees("{,")) return unsupported("{ before a comma is");  // a count to Python
    const char32_t code = take_char();
    return chars({{code, code}});
  }

  Part group(int depth) {
    if (sees("?")) {
      const bool is_named = sees("?<") && !sees("?<=") && !sees("?<!");
      if (take("?P<") || (is_named && take("?<"))) {
        const std::size_t end = text_.find('>', at_);
        if (end == std::string_view::npos) return invalid("a name without an end");
        at_ = end + 1;
      } else if (!take("?:")) {
        return unsupported("groups that begin with (? are");
      }
    }
    const Part inner = alternatives(depth + 1);
    if (status_.ok() && !take(")")) return invalid("a ( without a )");
    return inner;
  }

  // Behind a backslash, outside of a class.
  Part escaped() {
    if (at_ >= text_.size()) return invalid("a \\ without a character");
    const char letter = text_[at_];
    if (letter == 'b' || letter == 'B') return unsupported("\\b is");
    if (letter >= '1' && letter <= '9') return unsupported("backreferences are");
    return chars(escaped_chars());
  }

  Chars escaped_chars() {
    if (at_ >= text_.size()) return {};
    const char32_t letter = take_char();
    switch (letter) {
      case 'd':
        return kDigit;
      case 'D':
        return other_chars(kDigit);
      case 'w':
        return kWord;
      case 'W':
        return other_chars(kWord);
      case 's':
        return kSpace;
      case 'S':
        return other_chars(kSpace);
      default:
        break;
    }
    const std::optional<char32_t> code = escaped_char(letter);
    if (!code.has_value()) return {};
    return {{*code, *code}};
  }

  std::optional<char32_t> escaped_char(char32_t letter) {
    constexpr std::string_view kLetters = "nrtfv0";
    constexpr std::string_view kMeant{"\n\r\t\f\v\0", 6};
    if (letter < 0x80) {
      const std::size_t place = kLetters.find(static_cast<char>(letter));
      if (place != std::string_view::npos) return static_cast<char32_t>(kMeant[place]);
    }
    if (letter == 'x') return take_code(2);
    if (letter == 'u') return take_unit();
    const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    if (is_letter || (letter >= '0' && letter <= '9')) {
      unsupported(fmt::format("\\{} is", static_cast<char>(letter)));
      return std::nullopt;
    }
    return letter;
  }

  // \u0061, two of them for a character beyond, or \u{1F600}.
  std::optional<char32_t> take_unit() {
    if (take("{")) {
      const std::size_t end = text_.find('}', at_);
      const std::size_t digits = end == std::string_view::npos ? 0 : end - at_;
      if (digits < 1 || digits > 6) {
        invalid("\\u{ without a character");
        return std::nullopt;
      }
      const auto code = take_code(digits);
      take("}");
      return code;
    }
    const auto high = take_code(4);
    if (!high.has_value() || *high < 0xD800 || *high > 0xDBFF || !take("\\u")) return high;
    const auto low = take_code(4);
    if (!low.has_value() || *low < 0xDC00 || *low > 0xDFFF) {
      invalid("half of a character");
      return std::nullopt;
    }
    return 0x10000 + ((*high - 0xD800) << 10) + (*low - 0xDC00);
  }

  std::optional<char32_t> take_code(std::size_t digits) {
    const std::optional<char32_t> code = take_hex(digits);
    if (!code.has_value()) {
      invalid("a character without its digits");
    } else if (*code > kCharMax) {
      invalid("no character of Unicode");
      return std::nullopt;
    }
    return code;
  }

  Part char_class() {
    const bool is_other = take("^");
    Chars all;
    while (!done() && !sees("]")) {
      const Chars first = class_atom();
      const bool is_range = first.size() == 1 && first[0].first == first[0].last && sees("-") &&
                            !sees("-]") && at_ + 1 < text_.size();
      if (!is_range) {
        all.insert(all.end(), first.begin(), first.end());
        continue;
      }
      take("-");
      const Chars last = class_atom();
      if (!status_.ok()) break;
      if (last.size() != 1 || last[0].first != last[0].last || last[0].first < first[0].first) {
        return invalid("a range in the wrong order");
      }
      all.push_back({first[0].first, last[0].first});
    }
    if (!take("]")) return invalid("a [ without a ]");
    all = united(std::move(all));
    return chars(is_other ? other_chars(all) : all);
  }

  Chars class_atom() {
    if (!take("\\")) {
      const char32_t code = take_char();
      return {{code, code}};
    }
    if (take("b")) return {{0x08, 0x08}};
    return escaped_chars();
  }

  const RegexMatch match_;
  ByteGrammar& grammar_;
  CharWriter write_;
  Status status_;
};

}  // namespace

Result<Part> add_regex(std::string_view expression, RegexMatch match, ByteGrammar& grammar,
                       CharWriter write) {
  return RegexReader(expression, match, grammar, write).read();
}

Result<Part> add_regex(std::string_view expression, RegexMatch match, ByteGrammar& grammar) {
  return add_regex(expression, match, grammar,
                   [&](std::span<const CharRange> chars) { return grammar.one_of(chars); });
}

}  // namespace stemma
