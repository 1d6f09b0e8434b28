#include "model/tokenizer_regex_syntax.h"

#include <algorithm>
#include <array>
#include <utility>

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

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

std::string folded(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != ' ' && c != '_' && c != '-') {
      out.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
    }
  }
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
    if (in_[at_] == '\\') {
      return escape();
    }
    if (follows("(*")) {
      return refuse("(*");
    }
    if (follows("(?")) {
      copy(2);
      options();
      return {};
    }
    if (in_[at_] == '[') {
      in_class_ = true;
      copy(follows("[^") ? 2 : 1);
      if (follows("]")) {
        copy(1);  // a first ] is a member
      }
      return {};
    }
    copy(1);
    return {};
  }

  // The letters of (?imx-imx: or (?imx-imx): m is PCRE2's s.
  void options() {
    const std::size_t end = in_.find_first_not_of("imx-", at_);
    if (end == std::string_view::npos || (in_[end] != ':' && in_[end] != ')')) {
      return;
    }
    for (; at_ < end; ++at_) {
      out_.push_back(in_[at_] == 'm' ? 's' : in_[at_]);
    }
  }

  Status step_in_class() {
    if (in_[at_] == '\\') {
      return escape();
    }
    if (follows("[:")) {
      const std::size_t end = in_.find(":]", at_);
      if (end == std::string_view::npos) {
        return refuse("an unfinished [: in a class");
      }
      copy(end + 2 - at_);
      return {};
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
        return members("\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}");
      case 'h':
        return members("0-9a-fA-F");
      case 'W':
        return all_but("\\W", "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}");
      case 'H':
        return all_but("\\H", "0-9a-fA-F");
      case 'v':
        replace(2, "\\x0B");
        return {};
      case 'Q':
        return refuse("\\Q");
      case 'u':
        return code_point();
      case 'p':
      case 'P':
        return property();
      default:
        copy(2);
        return {};
    }
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
  std::string out_;
};

}  // namespace

Result<std::string> translate_regex(std::string_view expression) {
  return Translator(expression).run();
}

}  // namespace stemma
