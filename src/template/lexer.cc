#include "template/lexer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "template/python_text.h"
#include "template/string_literal.h"

namespace stemma::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_begin(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// Longer operators first.
constexpr std::array<std::string_view, 27> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]",
    "(",  ")",  "{",  "}",  ">",  "<",  "=", ".", ":", "|", ",", ";", "!"};

// One pass over a source.
class Lexer {
 public:
  Lexer(std::string_view source, std::string_view file_name, std::deque<std::string>& texts)
      : source_(source), file_name_(file_name), texts_(texts) {}

  Result<std::vector<Token>> run();

 private:
  Status tag(std::size_t at);
  Status comment();
  // Text between {% raw %} and {% endraw %}, which is as it stands. Behind "{%" and its sign;
  // whether there is one.
  Result<bool> try_raw();
  // The bytes from `at`, behind "{%" and its sign, of a tag that has this name and nothing else, up
  // to and with its end; 0 where it is another.
  std::size_t bare_tag_bytes(std::size_t at, std::string_view name) const;
  Status expression(TokenKind end);
  Status next_token();
  Status string_token();
  void number_token();
  Status operator_token();
  bool try_end(TokenKind end);

  // The text between `text_begin_` and the tag at `at`, which strips it by its sign.
  void text_before(std::size_t at);
  void skip_space();
  // Takes away what a tag of statements or a comment takes that ends with `sign`.
  void space_behind(char sign);
  void advance(std::size_t bytes);
  void push(TokenKind kind, std::string_view text) { tokens_.push_back({kind, text, line_}); }
  std::string_view rest() const { return source_.substr(at_); }
  Error error(ErrorCode code, std::string_view what) const {
    return source_error(code, file_name_, line_, what);
  }

  std::string_view source_;
  std::string_view file_name_;
  std::deque<std::string>& texts_;
  std::vector<Token> tokens_;
  std::vector<char> open_;  // brackets not yet closed in this tag
  std::size_t at_ = 0;
  std::int32_t line_ = 1;
};

Result<std::vector<Token>> Lexer::run() {
  while (at_ < source_.size()) {
    std::size_t tag_at = at_;
    for (; tag_at < source_.size(); ++tag_at) {
      tag_at = std::min(source_.find('{', tag_at), source_.size());
      const std::string_view opening = source_.substr(tag_at, 2);
      if (opening == "{{" || opening == "{%" || opening == "{#") break;
    }
    if (tag_at >= source_.size()) {
      push(TokenKind::kText, rest());
      break;
    }
    STEMMA_RETURN_IF_ERROR(tag(tag_at));
  }
  push(TokenKind::kEnd, {});
  return std::move(tokens_);
}

Status Lexer::tag(std::size_t tag_at) {
  text_before(tag_at);
  const char opening = source_[tag_at + 1];
  advance(tag_at + 2 - at_);
  if (!rest().empty() && (rest()[0] == '-' || rest()[0] == '+')) advance(1);
  if (opening == '#') return comment();
  const bool output = opening == '{';
  if (!output) {
    STEMMA_ASSIGN_OR_RETURN(const bool raw, try_raw());
    if (raw) return {};
  }
  push(output ? TokenKind::kOutputBegin : TokenKind::kStatementBegin, {});
  return expression(output ? TokenKind::kOutputEnd : TokenKind::kStatementEnd);
}

void Lexer::text_before(std::size_t tag_at) {
  std::string_view text = source_.substr(at_, tag_at - at_);
  const char sign = tag_at + 2 < source_.size() ? source_[tag_at + 2] : '\0';
  if (sign == '-') {
    text = strip(text, Side::kRight);
  } else if (sign != '+' && source_[tag_at + 1] != '{') {
    const std::size_t line_begin = text.rfind('\n') + 1;  // 0 where there is no newline
    const bool at_line_begin = line_begin > 0 || at_ == 0 || source_[at_ - 1] == '\n';
    if (at_line_begin && strip(text.substr(line_begin), Side::kLeft).empty()) {
      text = text.substr(0, line_begin);
    }
  }
  if (!text.empty()) push(TokenKind::kText, text);
}

Status Lexer::comment() {
  const std::size_t end = source_.find("#}", at_);
  if (end == std::string_view::npos) return error(ErrorCode::kCorrupt, "a comment is not closed");
  const char sign = end > at_ ? source_[end - 1] : '\0';
  advance(end + 2 - at_);
  space_behind(sign);
  return {};
}

std::size_t Lexer::bare_tag_bytes(std::size_t at, std::string_view name) const {
  std::string_view text = strip(source_.substr(at), Side::kLeft);
  if (!text.starts_with(name)) return 0;
  text = strip(text.substr(name.size()), Side::kLeft);
  if (text.starts_with("-") || text.starts_with("+")) text.remove_prefix(1);
  if (!text.starts_with("%}")) return 0;
  return source_.size() - at - (text.size() - 2);
}

// As Jinja has it, no line break is taken away behind the first tag, and one is behind the last.
Result<bool> Lexer::try_raw() {
  const std::size_t begin_bytes = bare_tag_bytes(at_, "raw");
  const auto sign_of = [&](std::size_t end) { return source_[end - 3]; };
  if (begin_bytes == 0 || sign_of(at_ + begin_bytes) == '+') return false;
  const bool minus = sign_of(at_ + begin_bytes) == '-';
  advance(begin_bytes);
  if (minus) skip_space();
  for (std::size_t tag_at = at_;; tag_at += 2) {
    tag_at = source_.find("{%", tag_at);
    if (tag_at == std::string_view::npos) {
      return error(ErrorCode::kCorrupt, "a {% raw %} is not closed");
    }
    const char sign = tag_at + 2 < source_.size() ? source_[tag_at + 2] : '\0';
    const std::size_t name_at = tag_at + (sign == '-' || sign == '+' ? 3 : 2);
    const std::size_t end_bytes = bare_tag_bytes(name_at, "endraw");
    if (end_bytes == 0) continue;
    text_before(tag_at);
    advance(name_at + end_bytes - at_);
    space_behind(sign_of(at_));
    return true;
  }
}

void Lexer::space_behind(char sign) {
  if (sign == '-') {
    skip_space();
  } else if (sign != '+' && rest().starts_with('\n')) {
    advance(1);
  }
}

Status Lexer::expression(TokenKind end) {
  open_.clear();
  while (true) {
    if (open_.empty() && try_end(end)) return {};
    if (at_ >= source_.size()) return error(ErrorCode::kCorrupt, "a tag is not closed");
    if (rest()[0] == ' ' || is_space(rest().substr(0, character_bytes(source_, at_)))) {
      advance(character_bytes(source_, at_));
      continue;
    }
    STEMMA_RETURN_IF_ERROR(next_token());
  }
}

bool Lexer::try_end(TokenKind end) {
  const bool output = end == TokenKind::kOutputEnd;
  const std::string_view closing = output ? "}}" : "%}";
  const char first = rest().empty() ? '\0' : rest()[0];
  const bool is_sign = first == '-' || (first == '+' && !output);
  const char sign = is_sign && rest().substr(1).starts_with(closing) ? first : '\0';
  if (sign == '\0' && !rest().starts_with(closing)) return false;
  push(end, {});
  advance(sign == '\0' ? 2 : 3);
  if (!output || sign == '-') space_behind(sign);
  return true;
}

Status Lexer::next_token() {
  const char c = rest()[0];
  if (c == '\'' || c == '"') return string_token();
  if (is_digit(c)) {
    number_token();
    return {};
  }
  if (!is_name_begin(c)) return operator_token();
  std::size_t bytes = 1;
  while (bytes < rest().size() && (is_name_begin(rest()[bytes]) || is_digit(rest()[bytes])))
    ++bytes;
  push(TokenKind::kName, rest().substr(0, bytes));
  advance(bytes);
  return {};
}

Status Lexer::string_token() {
  const char quote = rest()[0];
  std::size_t end = 1;
  while (end < rest().size() && rest()[end] != quote) end += rest()[end] == '\\' ? 2U : 1U;
  if (end >= rest().size()) return error(ErrorCode::kCorrupt, "a string is not closed");
  const std::string_view body = rest().substr(1, end - 1);
  std::string_view text = body;
  if (body.find('\\') != std::string_view::npos) {
    Result<std::string> decoded = decode_string_literal(body);
    if (!decoded.ok()) return error(decoded.error().code, decoded.error().detail);
    text = texts_.emplace_back(std::move(decoded).value());
  }
  push(TokenKind::kString, text);
  advance(end + 1);
  return {};
}

void Lexer::number_token() {
  const std::string_view text = rest();
  const auto digits_from = [&](std::size_t at) {
    while (at < text.size() && is_digit(text[at])) ++at;
    return at;
  };
  const bool after_dot = tokens_.back().kind == TokenKind::kOperator && tokens_.back().text == ".";
  const std::size_t whole = digits_from(0);
  std::size_t end = whole;
  if (!after_dot) {
    if (end + 1 < text.size() && text[end] == '.' && is_digit(text[end + 1])) {
      end = digits_from(end + 1);
    }
    if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
      const bool sign = end + 1 < text.size() && (text[end + 1] == '+' || text[end + 1] == '-');
      const std::size_t exponent = end + (sign ? 2 : 1);
      if (exponent < text.size() && is_digit(text[exponent])) end = digits_from(exponent);
    }
  }
  push(end == whole ? TokenKind::kInteger : TokenKind::kFloat, text.substr(0, end));
  advance(end);
}

Status Lexer::operator_token() {
  for (const std::string_view name : kOperators) {
    if (rest().substr(0, name.size()) != name) continue;
    const char c = name[0];
    if (c == '(' || c == '[' || c == '{') open_.push_back(c);
    if (c == ')' || c == ']' || c == '}') {
      const char partner = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open_.empty() || open_.back() != partner) {
        return error(ErrorCode::kCorrupt, "'" + std::string(name) + "' closes nothing");
      }
      open_.pop_back();
    }
    push(TokenKind::kOperator, name);
    advance(name.size());
    return {};
  }
  const std::string_view character = rest().substr(0, character_bytes(source_, at_));
  return error(ErrorCode::kCorrupt,
               "unexpected character '" + std::string(character) + "' in a tag");
}

void Lexer::skip_space() {
  advance(rest().size() - strip(rest(), Side::kLeft).size());
}

void Lexer::advance(std::size_t bytes) {
  const std::string_view passed = rest().substr(0, bytes);
  line_ += static_cast<std::int32_t>(std::count(passed.begin(), passed.end(), '\n'));
  at_ += bytes;
}

}  // namespace

Error source_error(ErrorCode code, std::string_view file_name, std::int32_t line,
                   std::string_view what) {
  return Error{code,
               std::string(file_name) + ":" + std::to_string(line) + ": " + std::string(what)};
}

std::string normalized_source(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      result.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      result.push_back(source[i]);
    }
  }
  if (!result.empty() && result.back() == '\n') result.pop_back();
  return result;
}

Result<std::vector<Token>> tokenize(std::string_view source, std::string_view file_name,
                                    std::deque<std::string>& texts) {
  return Lexer(source, file_name, texts).run();
}

}  // namespace stemma::jinja
