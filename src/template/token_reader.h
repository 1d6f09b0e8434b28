// TokenReader: walks the tokens of a template, with the questions and errors that both parsers
// share.
//
// Thread:     one parse, one reader.
// Memory:     refers to the tokens and the file name, which outlive it.
// Cost:       none.
// Not here:   grammar (expression_parser.h, parser.h).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "stemma/result.h"
#include "template/lexer.h"

namespace stemma::jinja {

class TokenReader {
 public:
  // REQUIRES: the last token is kEnd.
  TokenReader(std::span<const Token> tokens, std::string_view file_name)
      : tokens_(tokens), file_name_(file_name) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  bool at(TokenKind kind) const { return current().kind == kind; }
  bool at_operator(std::string_view text) const {
    return at(TokenKind::kOperator) && current().text == text;
  }
  bool at_name(std::string_view text) const {
    return at(TokenKind::kName) && current().text == text;
  }

  // The current token; moves on, but never past the end.
  const Token& take() {
    const Token& token = current();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool try_operator(std::string_view text) { return at_operator(text) && (take(), true); }
  bool try_name(std::string_view text) { return at_name(text) && (take(), true); }

  Status expect_operator(std::string_view text);
  Status expect(TokenKind kind, std::string_view what);
  Result<std::string_view> expect_name(std::string_view what);

  // The text here is not what the grammar wants.
  Error syntax_error(std::string_view wanted) const;
  // The text here is Jinja that Stemma does not render.
  Error unsupported(std::string_view construct) const;
  Error error(ErrorCode code, std::string_view what) const {
    return source_error(code, file_name_, current().line, what);
  }

 private:
  std::span<const Token> tokens_;
  std::string_view file_name_;
  std::size_t at_ = 0;
};

}  // namespace stemma::jinja
