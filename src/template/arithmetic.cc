#include <cmath>
#include <span>
#include <string>

#include "template/operators.h"
#include "template/percent_format.h"

namespace stemma::jinja {
namespace {

std::string_view symbol(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    default:
      return "~";
  }
}

Error overflow() {
  return type_error("an integer beyond 64 bits");
}

Result<Value> whole_arithmetic(Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflows = false;
  if (op == Operator::kAdd) {
    overflows = __builtin_add_overflow(a, b, &result);
  } else if (op == Operator::kSubtract) {
    overflows = __builtin_sub_overflow(a, b, &result);
  } else if (op == Operator::kMultiply) {
    overflows = __builtin_mul_overflow(a, b, &result);
  } else if (b == 0) {
    return type_error("division by zero");
  } else if (op == Operator::kDivide) {
    return Value::real(static_cast<double>(a) / static_cast<double>(b));
  } else if (b == -1) {
    result = 0;
    if (op == Operator::kFloorDivide) overflows = __builtin_sub_overflow(0, a, &result);
  } else {  // Python rounds towards minus infinity
    const std::int64_t remainder = a % b;
    const bool below = remainder != 0 && (remainder < 0) != (b < 0);
    result = op == Operator::kModulo ? remainder + (below ? b : 0) : a / b - (below ? 1 : 0);
  }
  if (overflows) return overflow();
  return Value::integer(result);
}

Result<Value> real_arithmetic(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::real(a + b);
    case Operator::kSubtract:
      return Value::real(a - b);
    case Operator::kMultiply:
      return Value::real(a * b);
    default:
      break;
  }
  if (b == 0) return type_error("division by zero");
  if (op == Operator::kDivide) return Value::real(a / b);
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  if (op == Operator::kModulo)
    return Value::real(remainder == 0 ? std::copysign(0.0, b) : remainder);
  return Value::real(std::round((a - remainder) / b));
}

Result<Value> concatenate_lists(Arena& arena, const Value& left, const Value& right) {
  std::vector<Value> items = left.list().items;
  items.insert(items.end(), right.list().items.begin(), right.list().items.end());
  return arena.sequence(left.kind(), std::move(items));
}

// text * count and list * count.
Result<Value> repeat(Arena& arena, const Value& value, std::int64_t count) {
  TextBuilder text(arena);
  std::vector<Value> items;
  for (std::int64_t i = 0; i < count && arena.exceeded().empty(); ++i) {
    arena.charge_steps(1);
    if (value.is(Kind::kText)) {
      text.append(value.text());
      continue;
    }
    const std::vector<Value>& more = value.list().items;
    arena.charge_bytes(more.size() * sizeof(Value));
    items.insert(items.end(), more.begin(), more.end());
  }
  if (value.is(Kind::kText)) return text.finish();
  return arena.sequence(value.kind(), std::move(items));
}

bool is_repeatable(const Value& value) {
  return value.is(Kind::kText) || value.is(Kind::kList) || value.is(Kind::kTuple);
}

}  // namespace

Result<Value> arithmetic(Arena& arena, Operator op, const Value& left, const Value& right) {
  if (op == Operator::kConcatenate) {
    TextBuilder out(arena);
    STEMMA_RETURN_IF_ERROR(append_text(out, left));
    STEMMA_RETURN_IF_ERROR(append_text(out, right));
    return out.finish();
  }
  if (!left.is_defined()) return type_error(described(left));
  if (!right.is_defined()) return type_error(described(right));
  if (left.is_wide_integer() || right.is_wide_integer()) return overflow();
  if (left.is_whole() && right.is_whole()) {
    return whole_arithmetic(op, left.integer(), right.integer());
  }
  if (left.is_number() && right.is_number()) return real_arithmetic(op, left.real(), right.real());
  if (op == Operator::kAdd && left.kind() == right.kind()) {
    if (left.is(Kind::kText)) {
      TextBuilder out(arena);
      out.append(left.text());
      out.append(right.text());
      return out.finish();
    }
    if (is_repeatable(left)) return concatenate_lists(arena, left, right);
  }
  if (op == Operator::kMultiply && is_repeatable(left) && right.is_whole()) {
    return repeat(arena, left, right.integer());
  }
  if (op == Operator::kMultiply && is_repeatable(right) && left.is_whole()) {
    return repeat(arena, right, left.integer());
  }
  if (op == Operator::kModulo && left.is(Kind::kText)) {
    const bool several = right.is(Kind::kTuple);
    const auto values = several ? std::span<const Value>(right.list().items) : std::span(&right, 1);
    return percent_format(arena, left.text(), values);
  }
  return type_error(described(left) + " " + std::string(symbol(op)) + " " + described(right) +
                    " has no meaning");
}

}  // namespace stemma::jinja
