// Program: a parsed template, as a tree of expressions and statements that name each other by id.
//
// Thread:     immutable once parsed; any number of renderings at a time.
// Memory:     owns its source and every decoded string; nodes lie in two arrays, so that a deep
//             tree is freed without recursion.
// Cost:       none.
// Not here:   parsing (parser.h), meaning (evaluator.h, renderer.h).
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/ids.h"
#include "template/builtin.h"
#include "template/set_names.h"
#include "template/value.h"

namespace stemma::jinja {

using ExpressionId = StrongId<struct ExpressionTag>;
using StatementId = StrongId<struct StatementTag>;

enum class ExpressionKind : std::uint8_t {
  kLiteral,      // literal
  kName,         // name
  kRendered,     // what a statement has rendered, which its filters begin with
  kList,         // operands: items
  kTuple,        // operands: items
  kMapping,      // operands: key, value, key, value, ...
  kAttribute,    // operands: object; name
  kSubscript,    // operands: object, key
  kSlice,        // operands: object, begin, end, step; an invalid id where one is left out
  kCall,         // operands: arguments; named; name: the function
  kMethod,       // operands: object, arguments; named; name
  kFilter,       // operands: input, arguments; named; builtin
  kTest,         // operands: input, arguments; named; builtin; negated
  kNegative,     // operands: value
  kPositive,     // operands: value
  kNot,          // operands: value
  kAnd,          // operands: left, right
  kOr,           // operands: left, right
  kArithmetic,   // operands: left, right; operators: one
  kComparison,   // operands: a, b, c, ...; operators: one fewer, each between two of them
  kConditional,  // operands: value if true, condition, value if false (invalid id where left out)
};

enum class Operator : std::uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kConcatenate,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct NamedExpression {
  std::string_view name;
  ExpressionId value;
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kLiteral;
  std::int32_t line = 0;
  std::int32_t depth = 1;  // levels of expressions below and with this one
  bool negated = false;
  const Builtin* builtin = nullptr;
  Value literal;
  std::string_view name;
  std::vector<ExpressionId> operands;
  std::vector<NamedExpression> named;
  std::vector<Operator> operators;
};

enum class StatementKind : std::uint8_t {
  kText,          // text
  kOutput,        // value
  kIf,            // branches, the last without a condition if there is an else
  kFor,           // names, value: what is iterated, filter, body, otherwise
  kSet,           // names, value
  kSetAttribute,  // names: namespace, attribute; value
  kSetText,       // names: one; body: what is rendered into it; value: a filter of it, if any
  kScope,         // body
  kWith,          // bindings; body
  kFilterText,    // body: what is rendered, filtered; value: by what
  kMacro,         // text: its name; names: parameters; defaults: of the last of them; body
  kCallWith,      // as kMacro, of what the called macro calls caller; value: the call
  kBreak,
  kContinue,
};

struct Branch {
  ExpressionId condition;  // invalid: else
  std::vector<StatementId> body;
};

// Names by which a macro's body asks for what no parameter takes; it takes no other than it names.
struct CallNames {
  bool caller = false;   // the block of a {% call %}
  bool varargs = false;  // arguments beyond the parameters
  bool kwargs = false;   // named ones of no parameter
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  std::int32_t line = 0;
  CallNames call_names;  // of a macro
  std::string_view text;
  std::vector<std::string_view> names;
  ExpressionId value;
  ExpressionId filter;
  std::vector<ExpressionId> defaults;
  std::vector<Branch> branches;
  std::vector<StatementId> body;
  std::vector<StatementId> otherwise;
  std::vector<StatementId> bindings;                 // as kSet: names, value
  SetNames::Scope body_scope = SetNames::kTemplate;  // where the body has one of its own
  SetNames::Scope otherwise_scope = SetNames::kTemplate;
};

struct Program {
  std::string file_name;
  std::string source;
  std::deque<std::string> texts;
  std::vector<Expression> expressions;
  std::vector<Statement> statements;
  std::vector<StatementId> body;
  std::vector<std::vector<std::string_view>> own_names;  // by scope, from its begin on

  const Expression& at(ExpressionId id) const { return expressions[id.index()]; }
  const Statement& at(StatementId id) const { return statements[id.index()]; }
};

}  // namespace stemma::jinja
