#include "template/token_reader.h"

namespace stemma::jinja {
namespace {

std::string described(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText:
      return "text";
    case TokenKind::kOutputBegin:
      return "'{{'";
    case TokenKind::kOutputEnd:
      return "'}}'";
    case TokenKind::kStatementBegin:
      return "'{%'";
    case TokenKind::kStatementEnd:
      return "'%}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return "'" + std::string(token.text) + "'";
  }
}

}  // namespace

Status TokenReader::expect_operator(std::string_view text) {
  if (try_operator(text)) return {};
  return syntax_error("'" + std::string(text) + "'");
}

Status TokenReader::expect(TokenKind kind, std::string_view what) {
  if (!at(kind)) return syntax_error(what);
  take();
  return {};
}

Result<std::string_view> TokenReader::expect_name(std::string_view what) {
  if (!at(TokenKind::kName)) return syntax_error(what);
  return take().text;
}

Error TokenReader::syntax_error(std::string_view wanted) const {
  return error(ErrorCode::kCorrupt,
               "expected " + std::string(wanted) + ", found " + described(current()));
}

Error TokenReader::unsupported(std::string_view construct) const {
  return error(ErrorCode::kUnsupported, std::string(construct) + " is not supported");
}

}  // namespace stemma::jinja
