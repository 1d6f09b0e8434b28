// Operators: arithmetic, comparison, truth, text form, attributes and subscripts of values, as
// Python and Jinja have them.
//
// Thread:     pure functions; new values go to the given arena.
// Memory:     the arena's.
// Cost:       O(what is read and made), charged to the arena where it is not constant.
// Not here:   filters and methods (builtin.h), evaluation order (evaluator.h).
//
// Errors say what is wrong ("'x' is undefined", "int + str"); the evaluator adds file and line.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "stemma/result.h"
#include "template/arena.h"
#include "template/program.h"
#include "template/value.h"

namespace stemma::jinja {

// How an error calls the value: "'name' is undefined", "int".
std::string described(const Value& value);
// "needs `wanted`, not " what the value is.
Error wrong_kind(std::string_view wanted, const Value& value);

Result<bool> truth(const Value& value);

// Python's ==. Two undefined values are equal.
bool equal(const Value& left, const Value& right);

// Lists and dicts, which may change, are looked for in no dict.
Status check_may_be_key(const Value& key);
// What the mapping has for the key; nullptr: nothing.
const Value* find_or_null(const Mapping& mapping, const Value& key);

// ==, !=, <, <=, >, >=, in, not in.
Result<bool> compare(Arena& arena, Operator op, const Value& left, const Value& right);

// Sorts items by what `key_of` says of each, those of equal keys in their order. An error where
// keys have no order.
template <typename Item, typename KeyOf>
Status sort_by(Arena& arena, std::vector<Item>& items, KeyOf key_of, bool reversed = false) {
  const auto is_less = [&](const Item& a, const Item& b) {
    return compare(arena, Operator::kLess, key_of(a), key_of(b));
  };
  for (std::size_t i = 1; i < items.size(); ++i) {
    arena.charge_steps(1);
    STEMMA_RETURN_IF_ERROR(is_less(items.front(), items[i]));
  }
  std::stable_sort(items.begin(), items.end(), [&](const Item& a, const Item& b) {
    const Result<bool> less = reversed ? is_less(b, a) : is_less(a, b);
    return less.ok() && *less;
  });
  return {};
}

// +, -, *, /, //, %, ~.
Result<Value> arithmetic(Arena& arena, Operator op, const Value& left, const Value& right);

// str(value) into `out`. Printing an undefined value adds nothing.
Status append_text(TextBuilder& out, const Value& value);
Result<Value> to_text(Arena& arena, const Value& value);

// What iteration over the value gives: characters, items, keys.
Result<std::span<const Value>> elements(Arena& arena, const Value& value);

// value.name
Result<Value> attribute(const Value& value, std::string_view name);

// value[key]. A missing key or index gives an undefined value.
Result<Value> subscript(Arena& arena, const Value& value, const Value& key);

struct SliceBounds {
  std::optional<std::int64_t> begin;
  std::optional<std::int64_t> end;
  std::optional<std::int64_t> step;
};

// value[begin:end:step]
Result<Value> slice(Arena& arena, const Value& value, const SliceBounds& bounds);

}  // namespace stemma::jinja
