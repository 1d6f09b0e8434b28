// The tests: `value is name`.
#include <array>

#include "template/builtin.h"
#include "template/operators.h"

namespace stemma::jinja {
namespace {

Value yes_or_no(bool result) {
  return Value::boolean(result);
}

template <Kind... kinds>
Result<Value> test_kind(const Call& call) {
  return yes_or_no((call.self.is(kinds) || ...));
}

Result<Value> test_defined(const Call& call) {
  return yes_or_no(call.self.is_defined());
}
Result<Value> test_number(const Call& call) {
  return yes_or_no(call.self.is_number());
}

Result<Value> test_integer(const Call& call) {
  return yes_or_no(call.self.is(Kind::kInteger) || call.self.is_wide_integer());
}

Result<Value> test_float(const Call& call) {
  return yes_or_no(call.self.is(Kind::kFloat) && !call.self.is_wide_integer());
}

Result<Value> test_iterable(const Call& call) {
  const Value& value = call.self;
  return yes_or_no(!value.is_defined() || value.is(Kind::kText) || value.is_sequence() ||
                   value.is(Kind::kMapping) || value.is(Kind::kLoop));
}

Result<Value> test_sequence(const Call& call) {
  const Value& value = call.self;
  if (value.is(Kind::kLazy)) {
    return type_error("of a lazy sequence is not known; use '| list'");
  }
  return yes_or_no(!value.is_defined() || value.is(Kind::kText) || value.is_sequence() ||
                   value.is(Kind::kMapping));
}

Result<Value> test_callable(const Call& call) {
  // Jinja's undefined value can be called: that it is undefined is said then.
  return yes_or_no(call.self.is(Kind::kFunction) || call.self.is(Kind::kMacro) ||
                   call.self.is(Kind::kMethod) || !call.self.is_defined());
}

template <bool wanted>
Result<Value> test_boolean_value(const Call& call) {
  return yes_or_no(call.self.is(Kind::kBool) && call.self.boolean() == wanted);
}

// The remainder of a division is `wanted`.
Result<Value> has_remainder(const Call& call, std::int64_t divisor, std::int64_t wanted) {
  STEMMA_ASSIGN_OR_RETURN(const Value remainder, arithmetic(call.arena, Operator::kModulo,
                                                            call.self, Value::integer(divisor)));
  return yes_or_no(equal(remainder, Value::integer(wanted)));
}

Result<Value> test_odd(const Call& call) {
  return has_remainder(call, 2, 1);
}
Result<Value> test_even(const Call& call) {
  return has_remainder(call, 2, 0);
}
Result<Value> test_divisible(const Call& call) {
  if (!call.args[0]->is_whole()) return type_error("needs a whole number");
  return has_remainder(call, call.args[0]->integer(), 0);
}

template <Operator op>
Result<Value> test_comparison(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const bool result, compare(call.arena, op, call.self, *call.args[0]));
  return yes_or_no(result);
}

constexpr std::array kTests = {
    Builtin{"defined", test_defined},
    Builtin{"undefined", test_kind<Kind::kUndefined>},
    Builtin{"none", test_kind<Kind::kNone>},
    Builtin{"string", test_kind<Kind::kText>},
    Builtin{"mapping", test_kind<Kind::kMapping>},
    Builtin{"iterable", test_iterable},
    Builtin{"sequence", test_sequence},
    Builtin{"number", test_number},
    Builtin{"integer", test_integer},
    Builtin{"float", test_float},
    Builtin{"boolean", test_kind<Kind::kBool>},
    Builtin{"callable", test_callable},
    Builtin{"true", test_boolean_value<true>},
    Builtin{"false", test_boolean_value<false>},
    Builtin{"odd", test_odd},
    Builtin{"even", test_even},
    Builtin{"divisibleby", test_divisible, {"num"}, 1},
    Builtin{"equalto", test_comparison<Operator::kEqual>, {"other"}, 1},
    Builtin{"eq", test_comparison<Operator::kEqual>, {"other"}, 1},
    Builtin{"ne", test_comparison<Operator::kNotEqual>, {"other"}, 1},
    Builtin{"lt", test_comparison<Operator::kLess>, {"other"}, 1},
    Builtin{"lessthan", test_comparison<Operator::kLess>, {"other"}, 1},
    Builtin{"le", test_comparison<Operator::kLessEqual>, {"other"}, 1},
    Builtin{"gt", test_comparison<Operator::kGreater>, {"other"}, 1},
    Builtin{"greaterthan", test_comparison<Operator::kGreater>, {"other"}, 1},
    Builtin{"ge", test_comparison<Operator::kGreaterEqual>, {"other"}, 1},
    Builtin{"in", test_comparison<Operator::kIn>, {"seq"}, 1},
};

}  // namespace

const Builtin* find_test_or_null(std::string_view name) {
  if (name == "==") name = "eq";
  if (name == "!=") name = "ne";
  return find_or_null(kTests, name);
}

}  // namespace stemma::jinja
