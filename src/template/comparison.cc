#include <algorithm>
#include <compare>
#include <string>

#include "template/operators.h"

namespace stemma::jinja {
namespace {

bool equal_lists(const List& left, const List& right) {
  return std::equal(left.items.begin(), left.items.end(), right.items.begin(), right.items.end(),
                    equal);
}

bool equal_mappings(const Mapping& left, const Mapping& right) {
  if (left.entries.size() != right.entries.size()) return false;
  return std::all_of(left.entries.begin(), left.entries.end(), [&](const MappingEntry& entry) {
    const Value* other = find_or_null(right, entry.key);
    return other != nullptr && equal(entry.value, *other);
  });
}

std::int64_t comparison_steps(const Value& value) {
  if (value.is(Kind::kMapping)) {
    const Mapping& mapping = value.mapping();
    return mapping.weight * static_cast<std::int64_t>(mapping.entries.size() + 1);
  }
  if (value.is_sequence()) return value.list().weight;
  return 1 + static_cast<std::int64_t>(value.text().size() / 64);
}

Result<std::partial_ordering> order(const Value& left, const Value& right) {
  if (left.is_whole() && right.is_whole()) {
    return std::partial_ordering(left.integer() <=> right.integer());
  }
  if (left.is_number() && right.is_number()) return left.real() <=> right.real();
  if (left.is(Kind::kText) && right.is(Kind::kText)) {
    // UTF-8 sorts as its code points do; <=> on a view compares unsigned bytes.
    return std::partial_ordering(left.text() <=> right.text());
  }
  if (!left.is_defined()) return type_error(described(left));
  if (!right.is_defined()) return type_error(described(right));
  return type_error(described(left) + " and " + described(right) + " have no order");
}

Result<bool> contains(Arena& arena, const Value& container, const Value& item) {
  if (container.is(Kind::kText)) {
    if (!item.is(Kind::kText)) {
      return type_error("'in' of a str needs a str, not " + described(item));
    }
    arena.charge_steps(static_cast<std::int64_t>(container.text().size() / 64));
    return container.text().find(item.text()) != std::string_view::npos;
  }
  if (container.is(Kind::kMapping)) {
    arena.charge_steps(static_cast<std::int64_t>(container.mapping().entries.size() / 16));
    STEMMA_RETURN_IF_ERROR(check_may_be_key(item));
    return find_or_null(container.mapping(), item) != nullptr;
  }
  STEMMA_ASSIGN_OR_RETURN(const std::span<const Value> items, elements(arena, container));
  for (const Value& other : items) {
    arena.charge_steps(comparison_steps(other));
    if (!arena.exceeded().empty()) return false;
    if (equal(other, item)) return true;
  }
  return false;
}

}  // namespace

Status check_may_be_key(const Value& key) {
  if (!key.is(Kind::kList) && !key.is(Kind::kMapping)) return {};
  return type_error("a " + described(key) + " is no key");
}

const Value* find_or_null(const Mapping& mapping, const Value& key) {
  if (key.is(Kind::kText)) return mapping.find_or_null(key.text());
  for (const MappingEntry& entry : mapping.entries) {
    if (equal(entry.key, key)) return &entry.value;
  }
  return nullptr;
}

bool equal(const Value& left, const Value& right) {
  if (left.is_whole() && right.is_whole()) return left.integer() == right.integer();
  if (left.is_number() && right.is_number()) return left.real() == right.real();
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kText:
      return left.text() == right.text();
    case Kind::kList:
    case Kind::kTuple:
      return equal_lists(left.list(), right.list());
    case Kind::kLazy:
      return &left.list() == &right.list();
    case Kind::kMapping:
      return equal_mappings(left.mapping(), right.mapping());
    case Kind::kNamespace:
      return &left.name_space() == &right.name_space();
    case Kind::kLoop:
      return &left.loop() == &right.loop();
    case Kind::kFunction:
      return left.function() == right.function();
    case Kind::kMacro:
      return &left.macro() == &right.macro();
    default:
      return false;
  }
}

Result<bool> compare(Arena& arena, Operator op, const Value& left, const Value& right) {
  if (op == Operator::kIn) return contains(arena, right, left);
  if (op == Operator::kNotIn) {
    STEMMA_ASSIGN_OR_RETURN(const bool inside, contains(arena, right, left));
    return !inside;
  }
  if (op == Operator::kEqual || op == Operator::kNotEqual) {
    arena.charge_steps(comparison_steps(left));
    if (!arena.exceeded().empty()) return false;
    return equal(left, right) == (op == Operator::kEqual);
  }
  STEMMA_ASSIGN_OR_RETURN(const std::partial_ordering ordering, order(left, right));
  switch (op) {
    case Operator::kLess:
      return std::is_lt(ordering);
    case Operator::kLessEqual:
      return std::is_lteq(ordering);
    case Operator::kGreater:
      return std::is_gt(ordering);
    default:
      return std::is_gteq(ordering);
  }
}

}  // namespace stemma::jinja
