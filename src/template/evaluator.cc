#include "template/evaluator.h"

#include <array>
#include <utility>

#include "template/builtin.h"
#include "template/lexer.h"
#include "template/operators.h"

namespace stemma::jinja {
namespace {

constexpr std::int64_t kRangeMax = 100'000;

// What an error calls the construct it happened in.
std::string construct(const Expression& node) {
  const std::string name(node.name);
  switch (node.kind) {
    case ExpressionKind::kAttribute:
      return "attribute ." + name + ": ";
    case ExpressionKind::kCall:
      return name + "(): ";
    case ExpressionKind::kMethod:
      return "method ." + name + "(): ";
    case ExpressionKind::kFilter:
      return "filter '" + name + "': ";
    case ExpressionKind::kTest:
      return "test 'is " + name + "': ";
    case ExpressionKind::kSubscript:
      return "subscript: ";
    case ExpressionKind::kSlice:
      return "slice: ";
    default:
      return "";
  }
}

Result<Value> namespace_of(Arena& arena, const Arguments& arguments) {
  if (!arguments.positional.empty()) return type_error("takes named arguments only");
  Namespace* space = arena.name_space();
  space->attributes.assign(arguments.named.begin(), arguments.named.end());
  return Value::name_space(space);
}

Result<Value> range_of(Arena& arena, const Arguments& arguments) {
  std::array<std::int64_t, 3> bounds = {0, 0, 1};
  const auto given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.named.empty()) {
    return type_error("takes 1 to 3 whole numbers");
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!given[i].is_whole()) return wrong_kind("whole numbers", given[i]);
    bounds[given.size() == 1 ? 1 : i] = given[i].integer();
  }
  const auto [begin, end, step] = bounds;
  if (step == 0) return type_error("the step is 0");
  std::vector<Value> items;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<std::int64_t>(items.size()) == kRangeMax) {
      return Error{ErrorCode::kTooLarge, "more than " + std::to_string(kRangeMax) + " numbers"};
    }
    items.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return arena.sequence(Kind::kLazy, std::move(items));
}

}  // namespace

Result<Value> Evaluator::evaluate(ExpressionId id) {
  return evaluate_call(id, Value());
}

Result<Value> Evaluator::evaluate_call(ExpressionId id, const Value& caller) {
  const Expression& node = program_.at(id);
  const Arena::Level level(arena_);
  arena_.charge_steps(1);
  Result<Value> value = Value();
  if (arena_.exceeded().empty()) {
    value = caller.is_defined() ? call(node, caller) : value_of(node);
  }
  if (!arena_.exceeded().empty()) {
    return source_error(ErrorCode::kTooLarge, program_.file_name, node.line,
                        "rendering exceeds its limit of " + std::string(arena_.exceeded()));
  }
  if (value.ok() || value.error().detail.starts_with(program_.file_name + ":")) return value;
  return source_error(value.error().code, program_.file_name, node.line,
                      construct(node) + value.error().detail);
}

Result<Value> Evaluator::evaluate_filters(ExpressionId id, const Value& rendered) {
  const Value around = std::exchange(rendered_, rendered);
  Result<Value> filtered = evaluate(id);
  rendered_ = around;
  return filtered;
}

Result<bool> Evaluator::condition(ExpressionId id) {
  STEMMA_ASSIGN_OR_RETURN(const Value value, evaluate(id));
  Result<bool> result = truth(value);
  if (result.ok()) return result;
  return source_error(result.error().code, program_.file_name, program_.at(id).line,
                      result.error().detail);
}

Result<Value> Evaluator::value_of(const Expression& node) {
  switch (node.kind) {
    case ExpressionKind::kLiteral:
      return node.literal;
    case ExpressionKind::kName:
      return scopes_.find(node.name);
    case ExpressionKind::kRendered:
      return rendered_;
    case ExpressionKind::kList:
      return sequence(node, Kind::kList);
    case ExpressionKind::kTuple:
      return sequence(node, Kind::kTuple);
    case ExpressionKind::kMapping:
      return mapping(node);
    case ExpressionKind::kSlice:
      return sliced(node);
    case ExpressionKind::kCall:
      return call(node, Value());
    case ExpressionKind::kMethod:
      return method(node);
    case ExpressionKind::kFilter:
    case ExpressionKind::kTest:
      return applied(node);
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr:
      return logical(node);
    case ExpressionKind::kConditional:
      return conditional(node);
    case ExpressionKind::kComparison:
      return comparison(node);
    default:
      break;
  }
  STEMMA_ASSIGN_OR_RETURN(const Value first, operand(node, 0));
  if (node.kind == ExpressionKind::kAttribute) return attribute(first, node.name);
  if (node.kind == ExpressionKind::kNot) {
    STEMMA_ASSIGN_OR_RETURN(const bool value, truth(first));
    return Value::boolean(!value);
  }
  if (node.kind == ExpressionKind::kNegative || node.kind == ExpressionKind::kPositive) {
    const bool negative = node.kind == ExpressionKind::kNegative;
    if (negative && first.is(Kind::kFloat) && !first.is_wide_integer())
      return Value::real(-first.real());
    return arithmetic(arena_, negative ? Operator::kSubtract : Operator::kAdd, Value::integer(0),
                      first);
  }
  STEMMA_ASSIGN_OR_RETURN(const Value second, operand(node, 1));
  if (node.kind == ExpressionKind::kSubscript) return subscript(arena_, first, second);
  return arithmetic(arena_, node.operators[0], first, second);
}

Result<Value> Evaluator::sequence(const Expression& node, Kind kind) {
  STEMMA_ASSIGN_OR_RETURN(std::vector<Value> items, operands(node, 0));
  return arena_.sequence(kind, std::move(items));
}

Result<Value> Evaluator::mapping(const Expression& node) {
  std::vector<MappingEntry> entries;
  for (std::size_t i = 0; i < node.operands.size(); i += 2) {
    STEMMA_ASSIGN_OR_RETURN(const Value key, operand(node, i));
    STEMMA_ASSIGN_OR_RETURN(const Value value, operand(node, i + 1));
    STEMMA_RETURN_IF_ERROR(check_may_be_key(key));
    if (!key.is(Kind::kText) && !key.is_number() && !key.is(Kind::kNone)) {
      return Error{ErrorCode::kUnsupported,
                   "a dict with a key that is a " + described(key) + " is not supported"};
    }
    MappingEntry* known = nullptr;
    for (MappingEntry& entry : entries) {
      if (equal(entry.key, key)) known = &entry;
    }
    if (known != nullptr) {
      known->value = value;
    } else {
      entries.push_back({key, value});
    }
  }
  return arena_.mapping(std::move(entries));
}

Result<Value> Evaluator::logical(const Expression& node) {
  STEMMA_ASSIGN_OR_RETURN(const Value left, operand(node, 0));
  STEMMA_ASSIGN_OR_RETURN(const bool left_holds, truth(left));
  const bool decided = left_holds == (node.kind == ExpressionKind::kOr);
  return decided ? Result<Value>(left) : operand(node, 1);
}

Result<Value> Evaluator::conditional(const Expression& node) {
  STEMMA_ASSIGN_OR_RETURN(const bool holds, condition(node.operands[1]));
  if (holds) return operand(node, 0);
  if (!node.operands[2].valid()) return Value::undefined("an if without else");
  return operand(node, 2);
}

Result<Value> Evaluator::comparison(const Expression& node) {
  STEMMA_ASSIGN_OR_RETURN(Value left, operand(node, 0));
  for (std::size_t i = 0; i < node.operators.size(); ++i) {
    STEMMA_ASSIGN_OR_RETURN(const Value right, operand(node, i + 1));
    STEMMA_ASSIGN_OR_RETURN(const bool holds, compare(arena_, node.operators[i], left, right));
    if (!holds) return Value::boolean(false);
    left = right;
  }
  return Value::boolean(true);
}

Result<Value> Evaluator::sliced(const Expression& node) {
  STEMMA_ASSIGN_OR_RETURN(const Value value, operand(node, 0));
  std::array<std::optional<std::int64_t>, 3> bounds;
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    if (!node.operands[i + 1].valid()) continue;
    STEMMA_ASSIGN_OR_RETURN(const Value bound, operand(node, i + 1));
    if (bound.is(Kind::kNone)) continue;
    if (!bound.is_whole()) return type_error("a bound is no whole number: " + described(bound));
    bounds[i] = bound.integer();
  }
  return slice(arena_, value, {bounds[0], bounds[1], bounds[2]});
}

Result<Value> Evaluator::method(const Expression& node) {
  STEMMA_ASSIGN_OR_RETURN(const Value self, operand(node, 0));
  const Builtin* builtin = find_method_or_null(self.kind(), node.name);
  if (builtin == nullptr) {
    return type_error(self.is_defined() ? described(self) + " has no such method"
                                        : described(self));
  }
  STEMMA_ASSIGN_OR_RETURN(const std::vector<Value> positional, operands(node, 1));
  STEMMA_ASSIGN_OR_RETURN(const std::vector<NamedValue> by_name, named(node));
  return invoke(*builtin, arena_, self, {positional, by_name});
}

Result<Value> Evaluator::applied(const Expression& node) {
  STEMMA_ASSIGN_OR_RETURN(const Value self, operand(node, 0));
  STEMMA_ASSIGN_OR_RETURN(const std::vector<Value> positional, operands(node, 1));
  STEMMA_ASSIGN_OR_RETURN(const std::vector<NamedValue> by_name, named(node));
  STEMMA_ASSIGN_OR_RETURN(const Value result,
                          invoke(*node.builtin, arena_, self, {positional, by_name}));
  return node.negated ? Value::boolean(!result.boolean()) : result;
}

Result<Value> Evaluator::call(const Expression& node, const Value& caller) {
  const Value function = scopes_.find(node.name);
  if (!function.is_defined() && node.name == "strftime_now") {
    return Error{ErrorCode::kUnsupported, "needs the current date, which the caller does not give"};
  }
  if (!function.is_defined()) return type_error(described(function));
  const bool is_macro = function.is(Kind::kMacro);
  if (!is_macro && !function.is(Kind::kFunction)) {
    return type_error(described(function) + " is no function");
  }
  STEMMA_ASSIGN_OR_RETURN(const std::vector<Value> positional, operands(node, 0));
  STEMMA_ASSIGN_OR_RETURN(std::vector<NamedValue> by_name, named(node));
  if (caller.is_defined()) by_name.push_back({"caller", caller});
  const Arguments arguments{positional, by_name};
  return is_macro ? macros_.call_macro(function.macro(), arguments)
                  : call_function(function.function(), arguments);
}

Result<Value> Evaluator::call_function(Function function, const Arguments& arguments) {
  if (function == Function::kNamespace) return namespace_of(arena_, arguments);
  if (function == Function::kRange) return range_of(arena_, arguments);
  if (function == Function::kDict) {
    if (!arguments.positional.empty()) return type_error("takes named arguments only");
    return arena_.mapping(arguments.named);
  }
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    return type_error("takes one argument");
  }
  STEMMA_ASSIGN_OR_RETURN(const Value text, to_text(arena_, arguments.positional[0]));
  if (function == Function::kStrftimeNow) return arena_.text(date_(text.text()));
  return type_error("the template refuses these messages: " + std::string(text.text()));
}

Result<std::vector<Value>> Evaluator::operands(const Expression& node, std::size_t first) {
  std::vector<Value> values;
  for (std::size_t i = first; i < node.operands.size(); ++i) {
    STEMMA_ASSIGN_OR_RETURN(const Value value, operand(node, i));
    values.push_back(value);
  }
  return values;
}

Result<std::vector<NamedValue>> Evaluator::named(const Expression& node) {
  std::vector<NamedValue> values;
  for (const NamedExpression& argument : node.named) {
    STEMMA_ASSIGN_OR_RETURN(const Value value, evaluate(argument.value));
    values.push_back({argument.name, value});
  }
  return values;
}

}  // namespace stemma::jinja
