#include "template/expression_parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

namespace stemma::jinja {
namespace {

constexpr int kNestingMax = 100;
constexpr std::int32_t kTreeDepthMax = 200;

struct OperatorName {
  std::string_view text;
  Operator op;
};

constexpr std::array kComparisons = {
    OperatorName{"==", Operator::kEqual},     OperatorName{"!=", Operator::kNotEqual},
    OperatorName{"<=", Operator::kLessEqual}, OperatorName{">=", Operator::kGreaterEqual},
    OperatorName{"<", Operator::kLess},       OperatorName{">", Operator::kGreater},
};
constexpr std::array kProducts = {
    OperatorName{"*", Operator::kMultiply},
    OperatorName{"//", Operator::kFloorDivide},
    OperatorName{"/", Operator::kDivide},
    OperatorName{"%", Operator::kModulo},
};

std::optional<Operator> try_any(TokenReader& reader, std::span<const OperatorName> names) {
  for (const OperatorName& name : names) {
    if (reader.try_operator(name.text)) return name.op;
  }
  return std::nullopt;
}

std::optional<Operator> try_comparison(TokenReader& reader) {
  if (reader.try_name("in")) return Operator::kIn;
  if (reader.at_name("not") && reader.next().kind == TokenKind::kName &&
      reader.next().text == "in") {
    reader.take();
    reader.take();
    return Operator::kNotIn;
  }
  return try_any(reader, kComparisons);
}

// Globals of Jinja that Stemma does not have.
bool is_foreign_function(std::string_view name) {
  return name == "lipsum" || name == "cycler" || name == "joiner" || name == "super" ||
         name == "varargs" || name == "kwargs" || name == "self";
}

}  // namespace

Result<ExpressionId> ExpressionParser::parse() {
  if (++nesting_ > kNestingMax) return reader_.unsupported("an expression nested this deeply");
  STEMMA_ASSIGN_OR_RETURN(ExpressionId value, parse_or());
  while (reader_.at_name("if")) {
    Expression conditional = node(ExpressionKind::kConditional);
    reader_.take();
    STEMMA_ASSIGN_OR_RETURN(const ExpressionId condition, parse_or());
    ExpressionId otherwise;
    if (reader_.try_name("else")) {
      STEMMA_ASSIGN_OR_RETURN(otherwise, parse());
    }
    conditional.operands = {value, condition, otherwise};
    STEMMA_ASSIGN_OR_RETURN(value, add(std::move(conditional)));
  }
  --nesting_;
  return value;
}

Result<ExpressionId> ExpressionParser::parse_tuple() {
  STEMMA_ASSIGN_OR_RETURN(const ExpressionId first, parse());
  if (!reader_.at_operator(",")) return first;
  Expression tuple = node(ExpressionKind::kTuple);
  tuple.operands.push_back(first);
  while (reader_.try_operator(",")) {
    if (reader_.at_operator(")") || reader_.at(TokenKind::kStatementEnd)) break;
    STEMMA_ASSIGN_OR_RETURN(const ExpressionId item, parse());
    tuple.operands.push_back(item);
  }
  return add(std::move(tuple));
}

Result<ExpressionId> ExpressionParser::parse_or() {
  STEMMA_ASSIGN_OR_RETURN(ExpressionId left, parse_and());
  while (reader_.try_name("or")) {
    STEMMA_ASSIGN_OR_RETURN(const ExpressionId right, parse_and());
    STEMMA_ASSIGN_OR_RETURN(left, binary(ExpressionKind::kOr, left, right));
  }
  return left;
}

Result<ExpressionId> ExpressionParser::parse_and() {
  STEMMA_ASSIGN_OR_RETURN(ExpressionId left, parse_not());
  while (reader_.try_name("and")) {
    STEMMA_ASSIGN_OR_RETURN(const ExpressionId right, parse_not());
    STEMMA_ASSIGN_OR_RETURN(left, binary(ExpressionKind::kAnd, left, right));
  }
  return left;
}

Result<ExpressionId> ExpressionParser::parse_not() {
  if (!reader_.at_name("not")) return parse_comparison();
  Expression negation = node(ExpressionKind::kNot);
  reader_.take();
  if (++nesting_ > kNestingMax) return reader_.unsupported("an expression nested this deeply");
  STEMMA_ASSIGN_OR_RETURN(const ExpressionId operand, parse_not());
  --nesting_;
  negation.operands = {operand};
  return add(std::move(negation));
}

Result<ExpressionId> ExpressionParser::parse_comparison() {
  Expression comparison = node(ExpressionKind::kComparison);
  STEMMA_ASSIGN_OR_RETURN(const ExpressionId first, parse_sum());
  comparison.operands.push_back(first);
  while (const auto op = try_comparison(reader_)) {
    STEMMA_ASSIGN_OR_RETURN(const ExpressionId operand, parse_sum());
    comparison.operands.push_back(operand);
    comparison.operators.push_back(*op);
  }
  if (comparison.operators.empty()) return first;
  return add(std::move(comparison));
}

Result<ExpressionId> ExpressionParser::parse_sum() {
  STEMMA_ASSIGN_OR_RETURN(ExpressionId left, parse_concatenation());
  while (reader_.at_operator("+") || reader_.at_operator("-")) {
    Expression sum = node(ExpressionKind::kArithmetic);
    sum.operators = {reader_.take().text == "+" ? Operator::kAdd : Operator::kSubtract};
    STEMMA_ASSIGN_OR_RETURN(const ExpressionId right, parse_concatenation());
    sum.operands = {left, right};
    STEMMA_ASSIGN_OR_RETURN(left, add(std::move(sum)));
  }
  return left;
}

Result<ExpressionId> ExpressionParser::parse_concatenation() {
  STEMMA_ASSIGN_OR_RETURN(ExpressionId left, parse_product());
  while (reader_.at_operator("~")) {
    Expression concatenation = node(ExpressionKind::kArithmetic);
    concatenation.operators = {Operator::kConcatenate};
    reader_.take();
    STEMMA_ASSIGN_OR_RETURN(const ExpressionId right, parse_product());
    concatenation.operands = {left, right};
    STEMMA_ASSIGN_OR_RETURN(left, add(std::move(concatenation)));
  }
  return left;
}

Result<ExpressionId> ExpressionParser::parse_product() {
  STEMMA_ASSIGN_OR_RETURN(ExpressionId left, parse_unary());
  while (true) {
    Expression product = node(ExpressionKind::kArithmetic);
    if (reader_.at_operator("**")) return reader_.unsupported("the operator **");
    const auto op = try_any(reader_, kProducts);
    if (!op) return left;
    product.operators = {*op};
    STEMMA_ASSIGN_OR_RETURN(const ExpressionId right, parse_unary());
    product.operands = {left, right};
    STEMMA_ASSIGN_OR_RETURN(left, add(std::move(product)));
  }
}

Result<ExpressionId> ExpressionParser::parse_unary() {
  if (!reader_.at_operator("-") && !reader_.at_operator("+")) return parse_postfix_and_filters();
  Expression unary =
      node(reader_.at_operator("-") ? ExpressionKind::kNegative : ExpressionKind::kPositive);
  reader_.take();
  if (reader_.at_operator("-") || reader_.at_operator("+")) {
    return reader_.unsupported("a second sign");
  }
  // The sign binds less tightly than a subscript and more tightly than a filter.
  STEMMA_ASSIGN_OR_RETURN(const ExpressionId primary, parse_primary());
  STEMMA_ASSIGN_OR_RETURN(const ExpressionId operand, parse_postfix(primary));
  if (reader_.at_operator("|") || reader_.at_name("is")) {
    return reader_.unsupported("a filter or test of a signed value without parentheses");
  }
  unary.operands = {operand};
  return add(std::move(unary));
}

Result<ExpressionId> ExpressionParser::parse_postfix_and_filters() {
  STEMMA_ASSIGN_OR_RETURN(const ExpressionId primary, parse_primary());
  STEMMA_ASSIGN_OR_RETURN(ExpressionId value, parse_postfix(primary));
  while (true) {
    if (reader_.try_operator("|")) {
      STEMMA_ASSIGN_OR_RETURN(value, parse_filter(value));
    } else if (reader_.at_name("is")) {
      STEMMA_ASSIGN_OR_RETURN(value, parse_test(value));
    } else {
      return value;
    }
  }
}

Result<ExpressionId> ExpressionParser::parse_primary() {
  switch (reader_.current().kind) {
    case TokenKind::kName:
      return parse_name();
    case TokenKind::kString:
      return parse_string();
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return parse_number();
    default:
      break;
  }
  if (reader_.at_operator("(")) return parse_parentheses();
  if (reader_.at_operator("[")) return parse_list();
  if (reader_.at_operator("{")) return parse_mapping();
  return reader_.syntax_error("an expression");
}

Result<ExpressionId> ExpressionParser::parse_name() {
  note_call_name();
  if (reader_.next().kind == TokenKind::kOperator && reader_.next().text == "(") {
    return parse_call();
  }
  Expression literal = node(ExpressionKind::kLiteral);
  const std::string_view name = reader_.take().text;
  if (name == "true" || name == "True") {
    literal.literal = Value::boolean(true);
  } else if (name == "false" || name == "False") {
    literal.literal = Value::boolean(false);
  } else if (name == "none" || name == "None") {
    literal.literal = Value::none();
  } else {
    literal.kind = ExpressionKind::kName;
    literal.name = name;
    names_.read(name);
  }
  return add(std::move(literal));
}

void ExpressionParser::note_call_name() {
  call_names_.caller |= reader_.at_name("caller");
  call_names_.varargs |= reader_.at_name("varargs");
  call_names_.kwargs |= reader_.at_name("kwargs");
}

Result<ExpressionId> ExpressionParser::parse_call() {
  Expression call = node(ExpressionKind::kCall);
  call.name = reader_.current().text;
  if (is_foreign_function(call.name)) {
    return reader_.unsupported("the function " + std::string(call.name) + "()");
  }
  names_.read(call.name);
  reader_.take();
  STEMMA_RETURN_IF_ERROR(parse_arguments(call));
  return add(std::move(call));
}

Result<ExpressionId> ExpressionParser::parse_number() {
  Expression literal = node(ExpressionKind::kLiteral);
  const Token& token = reader_.current();
  const char* const end = token.text.data() + token.text.size();
  if (token.kind == TokenKind::kInteger) {
    std::int64_t value = 0;
    const auto read = std::from_chars(token.text.data(), end, value);
    if (read.ec != std::errc{} || (token.text.size() > 1 && token.text[0] == '0')) {
      return reader_.error(ErrorCode::kUnsupported,
                           "the integer " + std::string(token.text) + " is not supported");
    }
    literal.literal = Value::integer(value);
  } else {
    double value = 0;
    const auto read = std::from_chars(token.text.data(), end, value);
    if (read.ec != std::errc{}) {
      return reader_.error(ErrorCode::kUnsupported,
                           "the number " + std::string(token.text) + " is not supported");
    }
    literal.literal = Value::real(value);
  }
  reader_.take();
  return add(std::move(literal));
}

Result<ExpressionId> ExpressionParser::parse_string() {
  Expression literal = node(ExpressionKind::kLiteral);
  std::string_view text = reader_.take().text;
  if (reader_.at(TokenKind::kString)) {  // neighbours are one string
    std::string joined(text);
    while (reader_.at(TokenKind::kString)) joined += reader_.take().text;
    text = program_.texts.emplace_back(std::move(joined));
  }
  literal.literal = Value::text(text);
  return add(std::move(literal));
}

Result<ExpressionId> ExpressionParser::parse_parentheses() {
  Expression tuple = node(ExpressionKind::kTuple);
  reader_.take();
  if (reader_.try_operator(")")) return add(std::move(tuple));
  STEMMA_ASSIGN_OR_RETURN(const ExpressionId value, parse_tuple());
  STEMMA_RETURN_IF_ERROR(reader_.expect_operator(")"));
  return value;
}

Result<ExpressionId> ExpressionParser::parse_list() {
  Expression list = node(ExpressionKind::kList);
  reader_.take();
  while (!reader_.try_operator("]")) {
    if (!list.operands.empty()) STEMMA_RETURN_IF_ERROR(reader_.expect_operator(","));
    if (reader_.try_operator("]")) break;
    STEMMA_ASSIGN_OR_RETURN(const ExpressionId item, parse());
    list.operands.push_back(item);
  }
  return add(std::move(list));
}

Result<ExpressionId> ExpressionParser::parse_mapping() {
  Expression mapping = node(ExpressionKind::kMapping);
  reader_.take();
  while (!reader_.try_operator("}")) {
    if (!mapping.operands.empty()) STEMMA_RETURN_IF_ERROR(reader_.expect_operator(","));
    if (reader_.try_operator("}")) break;
    STEMMA_ASSIGN_OR_RETURN(const ExpressionId key, parse());
    STEMMA_RETURN_IF_ERROR(reader_.expect_operator(":"));
    STEMMA_ASSIGN_OR_RETURN(const ExpressionId value, parse());
    mapping.operands.push_back(key);
    mapping.operands.push_back(value);
  }
  return add(std::move(mapping));
}

Result<ExpressionId> ExpressionParser::parse_postfix(ExpressionId object) {
  while (true) {
    if (reader_.at_operator(".")) {
      STEMMA_ASSIGN_OR_RETURN(object, parse_dot(object));
    } else if (reader_.at_operator("[")) {
      STEMMA_ASSIGN_OR_RETURN(object, parse_bracket(object));
    } else if (reader_.at_operator("(")) {
      return reader_.unsupported("a call of what is neither a function's name nor a method");
    } else {
      return object;
    }
  }
}

Result<ExpressionId> ExpressionParser::parse_dot(ExpressionId object) {
  Expression attribute = node(ExpressionKind::kAttribute);
  reader_.take();
  attribute.operands = {object};
  if (reader_.at(TokenKind::kInteger)) {
    STEMMA_ASSIGN_OR_RETURN(const ExpressionId key, parse_number());
    attribute.kind = ExpressionKind::kSubscript;
    attribute.operands.push_back(key);
    return add(std::move(attribute));
  }
  const Token& name = reader_.current();
  if (name.text.substr(0, 2) == "__") return reader_.unsupported("an attribute with __");
  STEMMA_ASSIGN_OR_RETURN(attribute.name, reader_.expect_name("an attribute's name"));
  if (!reader_.at_operator("(")) return add(std::move(attribute));
  if (!is_method(name.text)) {
    return reader_.unsupported("the method ." + std::string(name.text) + "()");
  }
  attribute.kind = ExpressionKind::kMethod;
  STEMMA_RETURN_IF_ERROR(parse_arguments(attribute));
  return add(std::move(attribute));
}

Result<ExpressionId> ExpressionParser::parse_bracket(ExpressionId object) {
  Expression slice = node(ExpressionKind::kSlice);
  reader_.take();
  slice.operands = {object};
  int colons = 0;
  ExpressionId part;
  while (!reader_.at_operator("]")) {
    if (reader_.try_operator(":")) {
      if (++colons > 2) return reader_.syntax_error("']'");
      slice.operands.push_back(std::exchange(part, ExpressionId()));
    } else if (part.valid()) {
      return reader_.syntax_error("']'");
    } else {
      STEMMA_ASSIGN_OR_RETURN(part, parse());
    }
  }
  reader_.take();
  if (colons == 0 && !part.valid()) return reader_.syntax_error("a subscript");
  slice.operands.push_back(part);
  if (colons == 0) slice.kind = ExpressionKind::kSubscript;
  if (colons == 1) slice.operands.push_back(ExpressionId());
  return add(std::move(slice));
}

Result<ExpressionId> ExpressionParser::parse_filters() {
  STEMMA_ASSIGN_OR_RETURN(ExpressionId value, add(node(ExpressionKind::kRendered)));
  do {
    STEMMA_ASSIGN_OR_RETURN(value, parse_filter(value));
  } while (reader_.try_operator("|"));
  return value;
}

Result<ExpressionId> ExpressionParser::parse_filter(ExpressionId input) {
  Expression filter = node(ExpressionKind::kFilter);
  const std::string_view name = reader_.current().text;
  if (reader_.at(TokenKind::kName)) filter.builtin = find_filter_or_null(name);
  if (reader_.at(TokenKind::kName) && filter.builtin == nullptr) {
    return reader_.unsupported("the filter '" + std::string(name) + "'");
  }
  STEMMA_ASSIGN_OR_RETURN(filter.name, reader_.expect_name("a filter's name"));
  filter.operands = {input};
  if (reader_.at_operator("(")) STEMMA_RETURN_IF_ERROR(parse_arguments(filter));
  return add(std::move(filter));
}

Result<ExpressionId> ExpressionParser::parse_test(ExpressionId input) {
  Expression test = node(ExpressionKind::kTest);
  reader_.take();
  test.negated = reader_.try_name("not");
  const std::string_view name = reader_.current().text;
  if (reader_.at(TokenKind::kName)) test.builtin = find_test_or_null(name);
  if (reader_.at(TokenKind::kName) && test.builtin == nullptr) {
    return reader_.unsupported("the test 'is " + std::string(name) + "'");
  }
  STEMMA_ASSIGN_OR_RETURN(test.name, reader_.expect_name("a test's name"));
  test.operands = {input};
  if (reader_.at_operator("(")) {
    STEMMA_RETURN_IF_ERROR(parse_arguments(test));
    return add(std::move(test));
  }
  if (test.builtin->required > 0) {  // `is divisibleby 3`
    STEMMA_ASSIGN_OR_RETURN(const ExpressionId primary, parse_primary());
    STEMMA_ASSIGN_OR_RETURN(const ExpressionId argument, parse_postfix(primary));
    test.operands.push_back(argument);
  }
  return add(std::move(test));
}

Status ExpressionParser::parse_arguments(Expression& node) {
  STEMMA_RETURN_IF_ERROR(reader_.expect_operator("("));
  bool first = true;
  while (!reader_.try_operator(")")) {
    if (!std::exchange(first, false)) {
      STEMMA_RETURN_IF_ERROR(reader_.expect_operator(","));
      if (reader_.try_operator(")")) break;
    }
    if (reader_.at_operator("*") || reader_.at_operator("**")) {
      return reader_.unsupported("an argument list unpacked with *");
    }
    std::string_view name;
    if (reader_.at(TokenKind::kName) && reader_.next().kind == TokenKind::kOperator &&
        reader_.next().text == "=") {
      name = reader_.take().text;
      reader_.take();
    } else if (!node.named.empty()) {
      return reader_.syntax_error("a named argument");
    }
    STEMMA_ASSIGN_OR_RETURN(const ExpressionId value, parse());
    if (name.empty()) {
      node.operands.push_back(value);
    } else {
      node.named.push_back({name, value});
    }
  }
  return {};
}

Result<ExpressionId> ExpressionParser::binary(ExpressionKind kind, ExpressionId left,
                                              ExpressionId right) {
  Expression expression = node(kind);
  expression.operands = {left, right};
  return add(std::move(expression));
}

Result<ExpressionId> ExpressionParser::add(Expression node) {
  for (const ExpressionId operand : node.operands) {
    if (operand.valid()) node.depth = std::max(node.depth, 1 + program_.at(operand).depth);
  }
  for (const NamedExpression& named : node.named) {
    node.depth = std::max(node.depth, 1 + program_.at(named.value).depth);
  }
  if (node.depth > kTreeDepthMax) return reader_.unsupported("an expression of this depth");
  program_.expressions.push_back(std::move(node));
  return ExpressionId(static_cast<std::int32_t>(program_.expressions.size() - 1));
}

Expression ExpressionParser::node(ExpressionKind kind) const {
  Expression result;
  result.kind = kind;
  result.line = reader_.current().line;
  return result;
}

}  // namespace stemma::jinja
