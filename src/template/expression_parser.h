// ExpressionParser: Jinja's expressions, by recursive descent in the order of their precedence.
//
// Thread:     one parse, one parser.
// Memory:     adds nodes to the program.
// Cost:       O(tokens).
// Not here:   statements (parser.h).
// Limits:     expressions nest at most 100 deep and form trees of at most 200 levels, so that
//             neither parsing nor evaluation can exhaust the stack.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "stemma/result.h"
#include "template/program.h"
#include "template/set_names.h"
#include "template/token_reader.h"

namespace stemma::jinja {

class ExpressionParser {
 public:
  // `names` is told of what expressions read.
  ExpressionParser(TokenReader& reader, Program& program, SetNames& names)
      : reader_(reader), program_(program), names_(names) {}

  // A whole expression, `a if b else c` included.
  Result<ExpressionId> parse();
  // One that may be followed by `if`: what a for statement iterates.
  Result<ExpressionId> parse_or();
  // One or more with commas between them: a tuple if there is a comma.
  Result<ExpressionId> parse_tuple();
  // One filter or more of what a statement renders, with | between them.
  Result<ExpressionId> parse_filters();
  // Which of these were read; as it was before.
  CallNames set_call_names(CallNames names) { return std::exchange(call_names_, names); }

 private:
  Result<ExpressionId> parse_and();
  Result<ExpressionId> parse_not();
  Result<ExpressionId> parse_comparison();
  Result<ExpressionId> parse_sum();
  Result<ExpressionId> parse_concatenation();
  Result<ExpressionId> parse_product();
  Result<ExpressionId> parse_unary();
  Result<ExpressionId> parse_postfix_and_filters();
  Result<ExpressionId> parse_primary();
  Result<ExpressionId> parse_name();
  void note_call_name();
  Result<ExpressionId> parse_number();
  Result<ExpressionId> parse_string();
  Result<ExpressionId> parse_parentheses();
  Result<ExpressionId> parse_list();
  Result<ExpressionId> parse_mapping();
  Result<ExpressionId> parse_postfix(ExpressionId object);
  Result<ExpressionId> parse_dot(ExpressionId object);
  Result<ExpressionId> parse_bracket(ExpressionId object);
  Result<ExpressionId> parse_filter(ExpressionId input);
  Result<ExpressionId> parse_test(ExpressionId input);
  Result<ExpressionId> parse_call();

  // Appends the arguments in parentheses to the node's operands and named ones.
  Status parse_arguments(Expression& node);
  Result<ExpressionId> binary(ExpressionKind kind, ExpressionId left, ExpressionId right);
  // Puts the node into the program, or refuses a tree that is too deep.
  Result<ExpressionId> add(Expression node);
  Expression node(ExpressionKind kind) const;

  TokenReader& reader_;
  Program& program_;
  SetNames& names_;
  int nesting_ = 0;
  CallNames call_names_;
};

}  // namespace stemma::jinja
