#include "model/tokenizer_regex_syntax.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/ascii.h"

namespace stemma {
namespace {

struct CategoryName {
  std::string_view long_name;  // lower case, without spaces, '_' and '-'
  std::string_view short_name;
};

// General categories that Oniguruma also knows by their long names (Unicode, PropertyValueAliases).
constexpr std::array<CategoryName, 24> kCategories = {{
    {"letter", "L"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"other", "C"},
}};

// Properties that are neither categories nor scripts and mean the same to both libraries.
constexpr std::array<std::string_view, 10> kBinaryProperties = {
    "any",      "alphabetic",    "lowercase", "uppercase",   "whitespace",
    "hexdigit", "asciihexdigit", "emoji",     "ideographic", "joincontrol"};

// What a name means in a class of characters. POSIX names of Oniguruma mean properties.
struct PosixClass {
  std::string_view name;
  std::string_view members;
  std::string_view others = {};  // all that are none, where a class can say so
};
constexpr std::string_view kWordInClass = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::array<PosixClass, 12> kPosixClasses = {{
    {"alpha", "\\p{Alphabetic}", "\\P{Alphabetic}"},
    {"digit", "\\p{Nd}", "\\P{Nd}"},
    {"lower", "\\p{Lowercase}", "\\P{Lowercase}"},
    {"upper", "\\p{Uppercase}", "\\P{Uppercase}"},
    {"space", "\\p{White_Space}", "\\P{White_Space}"},
    {"punct", "\\p{P}\\p{S}", "\\p{L}\\p{M}\\p{N}\\p{Z}\\p{C}"},
    {"cntrl", "\\p{Cc}", "\\P{Cc}"},
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"word", kWordInClass},
    {"blank", "\\t\\p{Zs}"},
    {"xdigit", "0-9a-fA-F"},
    {"ascii", "\\x00-\\x7F"},
}};

// What \w takes where it stands alone: in Latin-1 also the numbers that are no digits.
constexpr std::string_view kWord =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";

// Letters that are also one character of Unicode's, and such characters: with (?i) Oniguruma takes
// one for the other, and PCRE2 does not.
constexpr std::array<std::string_view, 8> kJoined = {"ff", "fi", "fl",     "ss",
                                                     "st", "ß",  "\u1E9E", "\xEF\xAC"};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_octal(char c) {
  return c >= '0' && c <= '7';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

std::string folded(std::string_view name) {
  std::string out = lower_ascii(std::string(name));
  std::erase_if(out, [](char c) { return c == ' ' || c == '_' || c == '-'; });
  return out;
}

// The inside of \p{...} as PCRE2 wants it.
std::string property_name(std::string_view name) {
  const bool negated = name.starts_with('^');
  const std::string key = folded(negated ? name.substr(1) : name);
  const std::string sign = negated ? "^" : "";
  for (const CategoryName& category : kCategories) {
    if (category.long_name == key) {
      return sign + std::string(category.short_name);
    }
  }
  const bool is_plain = key.size() > 2 && std::all_of(key.begin(), key.end(), is_letter);
  if (!is_plain || std::find(kBinaryProperties.begin(), kBinaryProperties.end(), key) !=
                       kBinaryProperties.end()) {
    return std::string(name);
  }
  return sign + "sc:" + key;
}

// Walks the expression once, copying what is the same and replacing what is not.
class Translator {
 public:
  explicit Translator(std::string_view expression) : in_(expression) {}

  Result<std::string> run() {
    while (at_ < in_.size()) {
      STEMMA_RETURN_IF_ERROR(in_class_ ? step_in_class() : step());
    }
    if (ignores_case_ && !joined_.empty()) {
      return refuse("(?i) with \"" + joined_ + "\", which is also one character of Unicode's");
    }
    // Oniguruma takes both cases then, as it does not of \p{Lu}.
    if (ignores_case_ && !cased_.empty()) return refuse("(?i) with " + cased_);
    return std::move(out_);
  }

 private:
  static Error refuse(std::string_view construct) {
    return Error{ErrorCode::kUnsupported, "the regular expression uses " + std::string(construct) +
                                              ", which is not supported"};
  }

  bool follows(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  void copy(std::size_t count) {
    out_.append(in_.substr(at_, count));
    at_ = std::min(at_ + count, in_.size());
  }
  void replace(std::size_t count, std::string_view text) {
    out_.append(text);
    at_ += count;
  }

  Status step() {
    switch (in_[at_]) {
      case '\\':
        atom_ = out_.size();
        return escape();
      case '(':
        return open_group();
      case ')':
        close_group();
        return {};
      case '[':
        open_class();
        return {};
      case '{':
        return interval();
      default:
        literal();
        return {};
    }
  }

  void literal() {
    // Quantifiers and the later bytes of a character begin nothing.
    const bool is_quantifier = std::string_view("*+?|").find(in_[at_]) != std::string_view::npos;
    if (!is_quantifier && (in_[at_] & 0xC0) != 0x80) atom_ = out_.size();
    for (const std::string_view joined : kJoined) {
      if (equals_ignoring_case(in_.substr(at_, joined.size()), joined)) joined_ = joined;
    }
    copy(1);
  }

  Status open_group() {
    if (follows("(*")) return refuse("(*");
    groups_.push_back(out_.size());
    const bool special = follows("(?");
    copy(special ? 2 : 1);
    if (special) options();
    return {};
  }

  // The group is what a quantifier behind it is about.
  void close_group() {
    if (!groups_.empty()) {
      atom_ = groups_.back();
      groups_.pop_back();
    }
    copy(1);
  }

  void open_class() {
    atom_ = out_.size();
    in_class_ = true;
    copy(follows("[^") ? 2 : 1);
    if (follows("]")) {
      copy(1);  // a first ] is a member
    }
  }

  // {n}, {n,}, {,m}, {n,m}; what has another form is text. A + behind it repeats all of it, and a ?
  // behind {n} makes it optional: PCRE2 would take less back, or take less.
  Status interval() {
    const std::size_t end = in_.find('}', at_);
    const std::string_view inside =
        end == std::string_view::npos ? "" : in_.substr(at_ + 1, end - at_ - 1);
    const std::size_t comma = std::min(inside.find(','), inside.size());
    const std::string_view least = inside.substr(0, comma);
    const std::string_view most = inside.substr(std::min(comma + 1, inside.size()));
    const bool is_count = std::all_of(least.begin(), least.end(), is_digit) &&
                          std::all_of(most.begin(), most.end(), is_digit) &&
                          !(least.empty() && most.empty());
    if (!is_count) {
      atom_ = out_.size();
      replace(1, "\\{");
      return {};
    }
    at_ = end + 1;
    const bool repeats = follows("+");
    const bool optional = follows("?") && comma == inside.size();
    if ((repeats || optional) && ignores_space_) return refuse("{n}+ or {n}? with (?x)");
    if (optional && (follows("?*") || follows("?+") || follows("?{"))) {
      return refuse("a quantifier behind {n}?");
    }
    if (repeats || optional) out_.insert(atom_, "(?:");
    out_.append("{").append(least.empty() ? "0" : "").append(inside).append("}");
    if (repeats || optional) out_.append(")");
    return {};
  }

  // The letters of (?imx-imx: or (?imx-imx): m is PCRE2's s.
  void options() {
    const std::size_t end = in_.find_first_not_of("imx-", at_);
    if (end == std::string_view::npos || (in_[end] != ':' && in_[end] != ')')) {
      return;
    }
    ignores_case_ = ignores_case_ || in_.substr(at_, end - at_).find('i') != std::string_view::npos;
    ignores_space_ =
        ignores_space_ || in_.substr(at_, end - at_).find('x') != std::string_view::npos;
    for (; at_ < end; ++at_) {
      out_.push_back(in_[at_] == 'm' ? 's' : in_[at_]);
    }
  }

  Status step_in_class() {
    if (in_[at_] == '\\') {
      return escape();
    }
    if (follows("[:")) {
      return posix_class();
    }
    if (in_[at_] == '[') {
      return refuse("a class within a class");
    }
    if (follows("&&")) {
      return refuse("&& in a class");
    }
    in_class_ = in_[at_] != ']';
    copy(1);
    return {};
  }

  // [:name:] or [:^name:] in a class.
  Status posix_class() {
    const std::size_t end = in_.find(":]", at_);
    if (end == std::string_view::npos) return refuse("an unfinished [: in a class");
    const std::string_view whole = in_.substr(at_, end + 2 - at_);
    const bool negated = whole.starts_with("[:^");
    const std::string_view name =
        in_.substr(at_ + (negated ? 3 : 2), end - at_ - (negated ? 3 : 2));
    for (const PosixClass& known : kPosixClasses) {
      if (known.name != name) continue;
      if (negated && known.others.empty()) break;
      if (name == "lower" || name == "upper") cased_ = whole;
      replace(whole.size(), negated ? known.others : known.members);
      return {};
    }
    return refuse(whole);
  }

  Status escape() {
    if (at_ + 1 >= in_.size()) {
      copy(1);
      return {};
    }
    switch (in_[at_ + 1]) {
      case 's':
        replace(2, "\\p{White_Space}");
        return {};
      case 'S':
        replace(2, "\\P{White_Space}");
        return {};
      case 'w':
        return members(in_class_ ? kWordInClass : kWord);
      case 'h':
        return members("0-9a-fA-F");
      case 'W':
        return all_but("\\W", kWord);
      case 'H':
        return all_but("\\H", "0-9a-fA-F");
      case 'v':
        replace(2, "\\x0B");
        return {};
      case 'b':
      case 'B':
        word_boundary();
        return {};
      case 'Q':
      case 'E':
      case 'V':
      case 'X':
        return refuse(in_.substr(at_, 2));
      case 'x':
      case 'o':
        return number();
      case 'g':
      case 'k':
        if (in_.substr(at_ + 2).starts_with("{")) return refuse(in_.substr(at_, 3));
        copy(2);
        return {};
      case 'u':
        return code_point();
      case 'p':
      case 'P':
        return property();
      default:
        copy(1 + std::max<std::size_t>(digits_at(at_ + 1, 3, is_octal), 1));
        return {};
    }
  }

  // Between a character of a word and another or none, or not so. In a class \b is a control
  // character.
  void word_boundary() {
    if (in_class_) return copy(2);
    const std::string word = "[" + std::string(kWord) + "]";
    const bool is_boundary = in_[at_ + 1] == 'b';
    replace(2, "(?:(?<=" + word + (is_boundary ? ")(?!" : ")(?=") + word + ")|(?<!" + word +
                   (is_boundary ? ")(?=" : ")(?!") + word + "))");
  }

  // \x{41} and \x41: its braces are no quantifier, and one is about all of its digits.
  Status number() {
    if (!in_.substr(at_ + 2).starts_with("{")) {
      copy(2 + digits_at(at_ + 2, 2, is_hex));
      return {};
    }
    const std::size_t end = in_.find('}', at_);
    if (end == std::string_view::npos) {
      return refuse("an unfinished " + std::string(in_.substr(at_, 3)));
    }
    copy(end + 1 - at_);
    return {};
  }

  // How many of the characters from `at` on are such digits, `most` of them looked at.
  std::size_t digits_at(std::size_t at, std::size_t most, bool (*is_one)(char)) const {
    const std::string_view digits = in_.substr(std::min(at, in_.size()), most);
    const auto* const end = std::find_if_not(digits.begin(), digits.end(), is_one);
    return static_cast<std::size_t>(end - digits.begin());
  }

  Status members(std::string_view set) {
    replace(2, in_class_ ? std::string(set) : "[" + std::string(set) + "]");
    return {};
  }

  Status all_but(std::string_view name, std::string_view set) {
    if (in_class_) {
      return refuse(std::string(name) + " in a class");
    }
    replace(2, "[^" + std::string(set) + "]");
    return {};
  }

  Status code_point() {
    const std::string_view digits = in_.substr(at_ + 2, 4);
    if (digits.size() < 4 || !std::all_of(digits.begin(), digits.end(), is_hex)) {
      return refuse("\\u without four hexadecimal digits");
    }
    replace(6, "\\x{" + std::string(digits) + "}");
    return {};
  }

  Status property() {
    const std::size_t end = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || end == std::string_view::npos) {
      copy(2);
      return {};
    }
    const std::string name = property_name(in_.substr(at_ + 3, end - at_ - 3));
    out_.append(in_.substr(at_, 3)).append(name).append("}");
    at_ = end + 1;
    return {};
  }

  std::string_view in_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  bool ignores_case_ = false;   // (?i) somewhere
  bool ignores_space_ = false;  // (?x) somewhere
  std::string joined_;          // the last of kJoined, if any
  std::string cased_;           // the last class of letters of one case, if any
  std::string out_;
  // In out_: where what a quantifier would be about begins, and the groups that are open.
  std::size_t atom_ = 0;
  std::vector<std::size_t> groups_;
};

}  // namespace

Result<std::string> translate_regex(std::string_view expression) {
  return Translator(expression).run();
}

}  // namespace stemma
