// Evaluator: the value of an expression.
//
// Thread:     one rendering, one evaluator.
// Memory:     new values go to the arena.
// Cost:       one step an expression, charged to the arena.
// Not here:   statements (renderer.h), what operators and builtins do (operators.h, builtin.h).
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/result.h"
#include "template/arena.h"
#include "template/builtin.h"
#include "template/program.h"
#include "template/scopes.h"

namespace stemma::jinja {

// The current date in a strftime format; empty: templates find no function strftime_now.
using DateFunction = std::function<std::string(std::string_view format)>;

// Who renders what a template's macros write.
class MacroRenderer {
 public:
  virtual Result<Value> call_macro(const Macro& macro, const Arguments& arguments) = 0;

 protected:
  ~MacroRenderer() = default;
};

// All parameters are kept by reference and outlive the evaluator.
class Evaluator {
 public:
  Evaluator(const Program& program, Arena& arena, Scopes& scopes, const DateFunction& date,
            MacroRenderer& macros)
      : program_(program), arena_(arena), scopes_(scopes), date_(date), macros_(macros) {}

  // Errors name the file, the line and the construct. A limit that was exceeded is an error too.
  Result<Value> evaluate(ExpressionId id);
  Result<bool> condition(ExpressionId id);
  // The same of filters that begin with what was rendered.
  Result<Value> evaluate_filters(ExpressionId id, const Value& rendered);
  // The same of a call whose macro may call `caller`.
  Result<Value> evaluate_call(ExpressionId id, const Value& caller);

 private:
  Result<Value> value_of(const Expression& node);
  Result<Value> sequence(const Expression& node, Kind kind);
  Result<Value> mapping(const Expression& node);
  Result<Value> logical(const Expression& node);
  Result<Value> conditional(const Expression& node);
  Result<Value> comparison(const Expression& node);
  Result<Value> sliced(const Expression& node);
  Result<Value> method(const Expression& node);
  // A filter or a test.
  Result<Value> applied(const Expression& node);
  Result<Value> call(const Expression& node, const Value& caller);
  Result<Value> call_function(Function function, const Arguments& arguments);

  // Operands from `first` on, in order.
  Result<std::vector<Value>> operands(const Expression& node, std::size_t first);
  Result<std::vector<NamedValue>> named(const Expression& node);
  Result<Value> operand(const Expression& node, std::size_t i) {
    return evaluate(node.operands[i]);
  }

  const Program& program_;
  Arena& arena_;
  Scopes& scopes_;
  const DateFunction& date_;
  MacroRenderer& macros_;
  Value rendered_;  // what the filters that are evaluated begin with
};

}  // namespace stemma::jinja
