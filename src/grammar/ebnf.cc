#include "grammar/ebnf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "grammar/byte_regex.h"
#include "grammar/text_cursor.h"
#include "model/unicode_text.h"

namespace stemma {
namespace {

using Part = ByteGrammar::Part;

constexpr int kDepthMax = 100;
constexpr int kDotsMax = 16;  // in a name: what may be one is looked at again behind each dot
constexpr std::string_view kDefines = "::=";

// XGrammar's, which look like names before a group.
constexpr std::array<std::string_view, 4> kMacros = {"TagDispatch", "TokenTagDispatch", "Token",
                                                     "ExcludeToken"};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}
bool begins_name(char c) {
  return is_word(c) || c == '-';
}
bool goes_on_name(char c) {
  return begins_name(c) || c == '.';
}

// Of escapes that C has, and what they mean.
constexpr std::string_view kEscapes{"nrtabfve0"};
constexpr std::string_view kEscaped{"\n\r\t\a\b\f\v\x1B\0", 9};

class EbnfReader : private TextCursor {
 public:
  EbnfReader(std::string_view text, ByteGrammar& grammar) : TextCursor(text), grammar_(grammar) {}

  Result<Part> read() {
    skip_blanks();
    if (text_.find(kDefines) == std::string_view::npos) {
      unsupported("a grammar without ::= (of Lark?) is");
    }
    find_defined();
    while (!done()) definition();
    STEMMA_RETURN_IF_ERROR(grammar_.check_room());
    check_names();
    if (!status_.ok()) return status_.error();
    return rules_.find("root")->second.part;
  }

 private:
  struct Rule {
    Part part;
    std::size_t first_named_at = 0;
    bool defined = false;
  };

  // What is refused for its size is not read any further: others wait.
  bool done() const { return at_end() || !status_.ok() || grammar_.is_full(); }
  // As take, and what is blank behind it.
  bool take_sign(std::string_view what) {
    const bool taken = take(what);
    if (taken) skip_blanks();
    return taken;
  }
  void skip_blanks() {
    while (!at_end()) {
      if (text_[at_] == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) {
        ++at_;
      } else {
        return;
      }
    }
  }

  Part fail(ErrorCode code, std::size_t at, std::string_view what) {
    if (status_.ok()) {
      const auto begin = text_.begin();
      const auto line = std::count(begin, begin + static_cast<std::ptrdiff_t>(at), '\n') + 1;
      status_ = Error{code, fmt::format("line {}: {}", line, what)};
    }
    return grammar_.sequence({});
  }
  Part invalid(std::string_view what) { return fail(ErrorCode::kInvalidArgument, at_, what); }
  Part unsupported(std::string_view what) {
    return fail(ErrorCode::kUnsupported, at_, fmt::format("{} not supported", what));
  }

  // Names before a ::=, wherever it is: only those with a dot within are looked up.
  void find_defined() {
    for (std::size_t at = text_.find(kDefines); at != std::string_view::npos;
         at = text_.find(kDefines, at + 1)) {
      const std::size_t last = text_.substr(0, at).find_last_not_of(" \t\r\n");
      if (last == std::string_view::npos) continue;
      std::size_t begin = last + 1;
      while (begin > 0 && goes_on_name(text_[begin - 1])) --begin;
      const std::string_view name = text_.substr(begin, last + 1 - begin);
      if (name.find('.') != std::string_view::npos) dotted_.insert(name);
    }
  }

  // Of a rule: where none has dots as here, a dot behind a name is any character.
  std::string_view take_rule_name() {
    const std::size_t begin = at_;
    std::string_view name = take_name();
    while (!dotted_.contains(name) && name.find('.') != std::string_view::npos) {
      name = name.substr(0, name.rfind('.'));
    }
    at_ = begin + name.size();
    return name;
  }

  // Empty where none begins.
  std::string_view take_name() {
    if (at_end() || !begins_name(text_[at_])) return {};
    const std::size_t begin = at_;
    int dots = 0;
    for (; !at_end() && goes_on_name(text_[at_]); ++at_) {
      if (text_[at_] == '.' && ++dots > kDotsMax) break;
    }
    return text_.substr(begin, at_ - begin);
  }
  // Whether the next rule begins here.
  bool sees_definition() {
    const std::size_t begin = at_;
    const bool is_named = !take_name().empty();
    skip_blanks();
    const bool defines = is_named && sees(kDefines);
    at_ = begin;
    return defines;
  }

  Rule& rule_of(std::string_view name, std::size_t named_at) {
    const auto found = rules_.find(name);
    if (found != rules_.end()) return found->second;
    const Rule made = {.part = grammar_.rule(), .first_named_at = named_at};
    return rules_.emplace(std::string(name), made).first->second;
  }

  void definition() {
    const std::size_t begin = at_;
    const std::string_view name = take_name();
    skip_blanks();
    if (name.empty() || !take_sign(kDefines)) {
      fail(ErrorCode::kInvalidArgument, begin, "no rule begins here: name ::= ...");
      return;
    }
    Rule& rule = rule_of(name, begin);
    if (rule.defined) {
      fail(ErrorCode::kInvalidArgument, begin, fmt::format("a second rule {}", name));
      return;
    }
    rule.defined = true;
    const Part body = alternatives(/*depth=*/0);
    if (status_.ok() && !done() && !sees_definition()) invalid("a ) without a (");
    if (status_.ok()) grammar_.define(rule.part, body);
  }

  void check_names() {
    for (const auto& [name, rule] : rules_) {
      if (rule.defined || !status_.ok()) continue;
      fail(ErrorCode::kInvalidArgument, rule.first_named_at, fmt::format("no rule is {}", name));
    }
    if (status_.ok() && rules_.find("root") == rules_.end()) invalid("no rule is root");
  }

  Part alternatives(int depth) {
    if (depth > kDepthMax) return invalid("groups nested too deep");
    std::vector<Part> parts = {alternative(depth)};
    while (!done() && take_sign("|")) parts.push_back(alternative(depth));
    return grammar_.either(std::move(parts));
  }

  Part alternative(int depth) {
    std::vector<Part> parts;
    while (!done() && !sees("|") && !sees(")") && !sees_definition()) {
      parts.push_back(quantified(depth));
    }
    return grammar_.sequence(std::move(parts));
  }

  Part quantified(int depth) {
    const Part one = item(depth);
    skip_blanks();
    if (done()) return one;
    std::int64_t least = 0;
    std::optional<std::int64_t> most;
    if (take_sign("+")) {
      least = 1;
    } else if (take_sign("?")) {
      most = 1;
    } else if (!take_sign("*")) {
      if (!take_sign("{")) return one;
      take_counts(least, most);
      if (!status_.ok()) return one;
    }
    for (const char* const quantifier : {"*", "+", "?", "{"}) {
      if (sees(quantifier)) return invalid("a quantifier of a quantifier");
    }
    return grammar_.repeated(most == 1 ? one : grammar_.rule(one), least, most);
  }

  // Behind the brace.
  void take_counts(std::int64_t& least, std::optional<std::int64_t>& most) {
    const auto first = take_count();
    if (!first.has_value()) {
      invalid("{ without a count");
      return;
    }
    least = *first;
    most = least;
    if (take_sign(",")) most = take_count();
    if (!take_sign("}")) invalid("{ without a }");
    if (most.has_value() && *most < least) invalid("counts in the wrong order");
  }
  std::optional<std::int64_t> take_count() {
    const std::optional<std::int64_t> number = take_number();
    skip_blanks();
    return number;
  }

  Part item(int depth) {
    if (take("\"")) return grammar_.text(literal());
    if (sees("[")) return char_class();
    if (take(".")) return grammar_.one_of(std::array{CharRange{0, kCharMax}});
    if (sees("<")) return unsupported("a token is");
    if (take("(")) {
      if (sees("=")) return unsupported("what looks ahead is");
      skip_blanks();
      const Part inner = alternatives(depth + 1);
      if (status_.ok() && !take(")")) return invalid("a ( without a )");
      return inner;
    }
    const std::size_t begin = at_;
    const std::string_view name = take_rule_name();
    if (name.empty()) return invalid("neither a text nor a class, a group or a name");
    if (sees("(") && std::find(kMacros.begin(), kMacros.end(), name) != kMacros.end()) {
      return unsupported(fmt::format("the macro {} is", name));
    }
    return rule_of(name, begin).part;
  }

  // Behind the quotation mark.
  std::string literal() {
    const std::size_t begin = at_;
    std::string text;
    while (status_.ok()) {
      if (at_end()) {
        fail(ErrorCode::kInvalidArgument, begin, "a text without an end");
      } else if (take("\"")) {
        break;
      } else if (take("\\")) {
        escaped(text);
      } else {
        text += text_[at_++];
      }
    }
    return text;
  }

  void escaped(std::string& text) {
    const char letter = !at_end() ? text_[at_] : '\n';
    if (const std::size_t i = kEscapes.find(letter); i != std::string_view::npos) {
      ++at_;
      text += kEscaped[i];
    } else if (take("x")) {
      append_code(2, text);
    } else if (take("u")) {
      append_code(4, text);
    } else if (take("U")) {
      append_code(8, text);
    } else if (letter > ' ' && letter <= '~' && !is_word(letter)) {
      ++at_;
      text += letter;
    } else {
      invalid("\\ without a character");
    }
  }

  void append_code(std::size_t digits, std::string& text) {
    if (const auto code = take_code(digits); code.has_value()) utf8_append(*code, text);
  }
  std::optional<char32_t> take_code(std::size_t digits) {
    const std::optional<char32_t> code = take_hex(digits);
    if (!code.has_value()) {
      invalid("a character without its digits");
    } else if (*code > kCharMax || (*code >= 0xD800 && *code <= 0xDFFF)) {
      invalid("no character of Unicode");
      return std::nullopt;
    }
    return code;
  }

  // Classes are those of regular expressions, but for escapes that these do not have.
  Part char_class() {
    const std::size_t begin = at_;
    std::string expression;
    while (!at_end() && !sees("]")) {
      if (take("\\U")) {
        const auto code = take_code(8);
        if (!code.has_value()) return grammar_.sequence({});
        expression += fmt::format("\\u{{{:x}}}", std::uint32_t{*code});
      } else if (take("\\a")) {
        expression += "\\x07";
      } else if (take("\\e")) {
        expression += "\\x1b";
      } else {
        const std::size_t bytes = sees("\\") ? 2 : 1;
        expression += text_.substr(at_, bytes);
        at_ = std::min(at_ + bytes, text_.size());
      }
    }
    if (!take("]")) return fail(ErrorCode::kInvalidArgument, begin, "a [ without a ]");
    const Result<Part> part = add_regex(expression + "]", RegexMatch::kWhole, grammar_);
    if (!part.ok()) {
      return fail(part.error().code, begin,
                  fmt::format("{}: {}", text_.substr(begin, at_ - begin), part.error().detail));
    }
    return *part;
  }

  ByteGrammar& grammar_;
  std::map<std::string, Rule, std::less<>> rules_;
  std::set<std::string_view> dotted_;  // names of rules
  Status status_;
};

}  // namespace

Result<Part> add_ebnf(std::string_view text, ByteGrammar& grammar) {
  return EbnfReader(text, grammar).read();
}

}  // namespace stemma
