// The filters: `value | name(arguments)`. Each follows Jinja's filter of that name. Those that make
// a text of any value are in text_filters.cc.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "template/builtin.h"
#include "template/number_text.h"
#include "template/operators.h"
#include "template/python_case.h"
#include "template/python_text.h"

namespace stemma::jinja {
namespace {

Result<Value> filter_length(const Call& call) {
  const Value& value = call.self;
  if (!value.is_defined()) return Value::integer(0);
  if (value.is(Kind::kText)) return Value::integer(character_count(value.text()));
  if (value.is(Kind::kMapping)) {
    return Value::integer(static_cast<std::int64_t>(value.mapping().entries.size()));
  }
  if (!value.is(Kind::kList) && !value.is(Kind::kTuple))
    return wrong_kind("a str, list or dict", value);
  return Value::integer(static_cast<std::int64_t>(value.list().items.size()));
}

Result<Value> filter_list(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const auto items, elements(call.arena, call.self));
  return call.arena.sequence(Kind::kList, std::vector<Value>(items.begin(), items.end()));
}

Result<Value> filter_first(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const auto items, elements(call.arena, call.self));
  return items.empty() ? Value::undefined("first item") : items.front();
}

Result<Value> filter_last(const Call& call) {
  if (call.self.is(Kind::kLazy)) return wrong_kind("a list", call.self);
  STEMMA_ASSIGN_OR_RETURN(const auto items, elements(call.arena, call.self));
  return items.empty() ? Value::undefined("last item") : items.back();
}

Result<Value> filter_reverse(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const auto items, elements(call.arena, call.self));
  std::vector<Value> reversed(items.rbegin(), items.rend());
  if (!call.self.is(Kind::kText)) return call.arena.sequence(Kind::kLazy, std::move(reversed));
  TextBuilder out(call.arena);
  for (const Value& character : reversed) out.append(character.text());
  return out.finish();
}

// "a.b" of each item, as `attribute=` of several filters means it: a part of digits is an index.
Result<Value> nested_attribute(Arena& arena, const Value& item, const Value& path) {
  if (path.is(Kind::kInteger)) return subscript(arena, item, path);
  if (!path.is(Kind::kText)) return wrong_kind("an attribute's name", path);
  Value value = item;
  for (const std::string_view name : split(path.text(), ".", -1)) {
    std::int64_t index = 0;
    const bool is_index =
        !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
    if (is_index &&
        std::from_chars(name.data(), name.data() + name.size(), index).ec != std::errc{}) {
      return Value::undefined(name);
    }
    STEMMA_ASSIGN_OR_RETURN(
        value, subscript(arena, value, is_index ? Value::integer(index) : Value::text(name)));
  }
  return value;
}

Result<Value> filter_join(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const auto items, elements(call.arena, call.self));
  Value separator = Value::text({});
  if (call.has(0)) {
    STEMMA_ASSIGN_OR_RETURN(separator, to_text(call.arena, *call.args[0]));
  }
  TextBuilder out(call.arena);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(separator.text());
    Value item = items[i];
    if (call.has(1)) {
      STEMMA_ASSIGN_OR_RETURN(item, nested_attribute(call.arena, item, *call.args[1]));
    }
    STEMMA_RETURN_IF_ERROR(append_text(out, item));
  }
  return out.finish();
}

Result<Value> filter_default(const Call& call) {
  const Value fallback = call.has(0) ? *call.args[0] : Value::text({});
  if (!call.self.is_defined()) return fallback;
  STEMMA_ASSIGN_OR_RETURN(const bool when_false, flag(call, 1));
  if (!when_false) return call.self;
  STEMMA_ASSIGN_OR_RETURN(const bool self, truth(call.self));
  return self ? call.self : fallback;
}

// An integer that is as wide as it is.
Result<Value> whole_value(Arena& arena, const WholeText& whole) {
  std::int64_t number = 0;
  const char* const end = whole.digits.data() + whole.digits.size();
  const auto read = std::from_chars(whole.digits.data(), end, number, whole.base);
  if (read.ec == std::errc()) return Value::integer(number);
  const std::optional<double> nearest =
      whole.base == 10 ? real_of_text(whole.digits) : std::nullopt;
  if (!nearest.has_value()) return type_error("an integer beyond 64 bits");
  return Value::wide_integer(arena.text(whole.digits).text(), *nearest);
}

// What a number has before its point.
Result<Value> whole_value(Arena& arena, double real) {
  if (std::fabs(real) < 0x1p63) return Value::integer(static_cast<std::int64_t>(real));
  return whole_value(arena, {.digits = fmt::format("{:.0f}", real)});
}

Result<Value> filter_int(const Call& call) {
  const Value fallback = call.has(0) ? *call.args[0] : Value::integer(0);
  const Value& value = call.self;
  if (!value.is_defined()) return type_error(described(value));
  if (value.is_whole()) return Value::integer(value.integer());
  if (value.is_wide_integer()) return value;
  std::optional<double> real;
  if (value.is(Kind::kFloat)) real = value.real();
  if (value.is(Kind::kText)) {
    // Of a base that is none the text is looked at as a float.
    const Value base = call.has(1) ? *call.args[1] : Value::integer(10);
    const auto whole = base.is_whole() ? whole_of_text(value.text(), base.integer()) : std::nullopt;
    if (whole.has_value()) return whole_value(call.arena, *whole);
    real = real_of_text(value.text());
  }
  return real.has_value() && std::isfinite(*real) ? whole_value(call.arena, *real) : fallback;
}

Result<Value> filter_float(const Call& call) {
  const Value fallback = call.has(0) ? *call.args[0] : Value::real(0);
  if (call.self.is_number()) return Value::real(call.self.real());
  if (!call.self.is_defined()) return type_error(described(call.self));
  if (!call.self.is(Kind::kText)) return fallback;
  const auto real = real_of_text(call.self.text());
  return real.has_value() ? Value::real(*real) : fallback;
}

Result<Value> filter_abs(const Call& call) {
  if (call.self.is_wide_integer()) {
    const std::string_view digits = call.self.text();
    return Value::wide_integer(digits.substr(digits.starts_with('-') ? 1 : 0),
                               std::fabs(call.self.real()));
  }
  if (call.self.is(Kind::kFloat)) return Value::real(std::fabs(call.self.real()));
  if (!call.self.is_whole()) return wrong_kind("a number", call.self);
  if (call.self.integer() >= 0) return Value::integer(call.self.integer());
  return arithmetic(call.arena, Operator::kSubtract, Value::integer(0), call.self);
}

Result<Value> filter_items(const Call& call) {
  std::vector<Value> pairs;
  if (call.self.is_defined()) {
    if (!call.self.is(Kind::kMapping)) return wrong_kind("a dict", call.self);
    for (const auto& [key, value] : call.self.mapping().entries) {
      pairs.push_back(call.arena.sequence(Kind::kTuple, {key, value}));
    }
  }
  return call.arena.sequence(Kind::kLazy, std::move(pairs));
}

// What is sorted, and by what.
struct Keyed {
  Value key;
  Value item;
};

// Texts are sorted without their case unless that counts.
Result<Value> sort_key(Arena& arena, const Value& value, bool case_counts) {
  if (!value.is(Kind::kText) || case_counts) return value;
  return case_changed(arena, lower(value.text()));
}

std::vector<Value> items_of(const std::vector<Keyed>& all) {
  std::vector<Value> items;
  items.reserve(all.size());
  for (const Keyed& one : all) items.push_back(one.item);
  return items;
}

// A list of the items.
Result<Value> sorted(Arena& arena, std::vector<Keyed> all, bool reversed) {
  const auto key_of = [](const Keyed& one) { return one.key; };
  STEMMA_RETURN_IF_ERROR(sort_by(arena, all, key_of, reversed));
  return arena.sequence(Kind::kList, items_of(all));
}

// The items, each with its key: itself, or its attribute that argument `at` names.
Result<std::vector<Keyed>> keyed(const Call& call, std::size_t at, bool case_counts) {
  STEMMA_ASSIGN_OR_RETURN(const auto items, elements(call.arena, call.self));
  const bool by_attribute = call.has(at) && !call.args[at]->is(Kind::kNone);
  std::vector<Keyed> all;
  for (const Value& item : items) {
    Value key = item;
    if (by_attribute) {
      STEMMA_ASSIGN_OR_RETURN(key, nested_attribute(call.arena, item, *call.args[at]));
    }
    STEMMA_ASSIGN_OR_RETURN(key, sort_key(call.arena, key, case_counts));
    all.push_back({key, item});
  }
  return all;
}

Result<Value> filter_sort(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const bool reversed, flag(call, 0));
  STEMMA_ASSIGN_OR_RETURN(const bool case_counts, flag(call, 1));
  const bool by_attribute = call.has(2) && !call.args[2]->is(Kind::kNone);
  if (by_attribute && call.args[2]->text().find(',') != std::string_view::npos) {
    return Error{ErrorCode::kUnsupported, "sorting by several attributes is not supported"};
  }
  STEMMA_ASSIGN_OR_RETURN(std::vector<Keyed> all, keyed(call, 2, case_counts));
  return sorted(call.arena, std::move(all), reversed);
}

// The members of a dict, by their keys or their values.
Result<Value> filter_dictsort(const Call& call) {
  if (!call.self.is(Kind::kMapping)) return wrong_kind("a dict", call.self);
  STEMMA_ASSIGN_OR_RETURN(const bool case_counts, flag(call, 0));
  STEMMA_ASSIGN_OR_RETURN(const bool reversed, flag(call, 2));
  const std::string_view by = call.has(1) ? call.args[1]->text() : "key";
  if (by != "key" && by != "value") return type_error("sorts by 'key' or 'value'");
  std::vector<Keyed> all;
  for (const auto& [key, value] : call.self.mapping().entries) {
    STEMMA_ASSIGN_OR_RETURN(const Value by_what,
                            sort_key(call.arena, by == "key" ? key : value, case_counts));
    all.push_back({by_what, call.arena.sequence(Kind::kTuple, {key, value})});
  }
  return sorted(call.arena, std::move(all), reversed);
}

// The first item of each key.
Result<Value> filter_unique(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const bool case_counts, flag(call, 0));
  STEMMA_ASSIGN_OR_RETURN(const std::vector<Keyed> all, keyed(call, 1, case_counts));
  std::vector<Keyed> kept;
  for (const Keyed& one : all) {
    call.arena.charge_steps(static_cast<std::int64_t>(kept.size()));
    if (!call.arena.exceeded().empty()) break;
    const bool known = std::any_of(kept.begin(), kept.end(),
                                   [&](const Keyed& other) { return equal(other.key, one.key); });
    if (!known) kept.push_back(one);
  }
  return call.arena.sequence(Kind::kLazy, items_of(kept));
}

// The first item of which no other is less, or greater.
template <Operator op>
Result<Value> filter_extreme(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const bool case_counts, flag(call, 0));
  STEMMA_ASSIGN_OR_RETURN(const std::vector<Keyed> all, keyed(call, 1, case_counts));
  if (all.empty()) return Value::undefined("item of an empty sequence");
  Keyed best = all.front();
  for (const Keyed& one : std::span(all).subspan(1)) {
    STEMMA_ASSIGN_OR_RETURN(const bool better, compare(call.arena, op, one.key, best.key));
    if (better) best = one;
  }
  return best.item;
}

Result<Value> filter_sum(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const std::vector<Keyed> all, keyed(call, 0, true));
  Value sum = call.has(1) ? *call.args[1] : Value::integer(0);
  if (sum.is(Kind::kText)) return type_error("sums no str");
  for (const Keyed& one : all) {
    STEMMA_ASSIGN_OR_RETURN(sum, arithmetic(call.arena, Operator::kAdd, sum, one.key));
  }
  return sum;
}

Result<Value> map_attribute(const Call& call, std::span<const Value> items) {
  std::vector<Value> mapped;
  for (const Value& item : items) {
    Value fallback;
    Value path;
    for (const NamedValue& argument : call.named) {
      if (argument.name != "attribute" && argument.name != "default") {
        return type_error("there is no argument '" + std::string(argument.name) + "'");
      }
      (argument.name == "default" ? fallback : path) = argument.value;
    }
    STEMMA_ASSIGN_OR_RETURN(const Value value, nested_attribute(call.arena, item, path));
    mapped.push_back(value.is_defined() || !fallback.is_defined() ? value : fallback);
  }
  return call.arena.sequence(Kind::kLazy, std::move(mapped));
}

std::span<const Value> positional_from(const Call& call, std::vector<Value>& storage,
                                       std::size_t first) {
  for (std::size_t i = first; i < call.args.size(); ++i) storage.push_back(*call.args[i]);
  return storage;
}

// The items of what is true; what is false has none here, be it a number.
Result<std::span<const Value>> elements_if_true(const Call& call) {
  if (call.self.is(Kind::kLazy)) return elements(call.arena, call.self);
  STEMMA_ASSIGN_OR_RETURN(const bool is_true, truth(call.self));
  if (!is_true) return std::span<const Value>();
  return elements(call.arena, call.self);
}

Result<Value> filter_map(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const auto items, elements_if_true(call));
  if (call.args.empty()) return map_attribute(call, items);
  const Value& name = *call.args[0];
  const Builtin* filter = name.is(Kind::kText) ? find_filter_or_null(name.text()) : nullptr;
  if (filter == nullptr) {
    return Error{ErrorCode::kUnsupported, "map with this filter is not supported"};
  }
  std::vector<Value> storage;
  const Arguments arguments{positional_from(call, storage, 1), call.named};
  std::vector<Value> mapped;
  for (const Value& item : items) {
    call.arena.charge_steps(1);
    STEMMA_ASSIGN_OR_RETURN(const Value value, invoke(*filter, call.arena, item, arguments));
    if (!call.arena.exceeded().empty()) break;
    mapped.push_back(value);
  }
  return call.arena.sequence(Kind::kLazy, std::move(mapped));
}

// select, reject, selectattr and rejectattr: the items whose test (by default: truth) has the
// wanted result.
Result<Value> keep(const Call& call, bool by_attribute, bool wanted) {
  if (by_attribute && call.args.empty()) return type_error("the attribute is missing");
  const std::size_t test_at = by_attribute ? 1 : 0;
  const Builtin* test = nullptr;
  if (call.args.size() > test_at) {
    const Value& name = *call.args[test_at];
    test = name.is(Kind::kText) ? find_test_or_null(name.text()) : nullptr;
    if (test == nullptr) return Error{ErrorCode::kUnsupported, "this test is not supported"};
  }
  std::vector<Value> storage;
  const Arguments arguments{positional_from(call, storage, test_at + 1), call.named};
  STEMMA_ASSIGN_OR_RETURN(const auto items, elements_if_true(call));
  std::vector<Value> kept;
  for (const Value& item : items) {
    call.arena.charge_steps(1);
    if (!call.arena.exceeded().empty()) break;
    Value tested = item;
    if (by_attribute) {
      STEMMA_ASSIGN_OR_RETURN(tested, nested_attribute(call.arena, item, *call.args[0]));
    }
    if (test != nullptr) {
      STEMMA_ASSIGN_OR_RETURN(tested, invoke(*test, call.arena, tested, arguments));
    }
    STEMMA_ASSIGN_OR_RETURN(const bool passes, truth(tested));
    if (passes == wanted) kept.push_back(item);
  }
  return call.arena.sequence(Kind::kLazy, std::move(kept));
}

Result<Value> filter_select(const Call& call) {
  return keep(call, false, true);
}
Result<Value> filter_reject(const Call& call) {
  return keep(call, false, false);
}
Result<Value> filter_selectattr(const Call& call) {
  return keep(call, true, true);
}
Result<Value> filter_rejectattr(const Call& call) {
  return keep(call, true, false);
}

constexpr std::array kFilters = {
    Builtin{"length", filter_length},
    Builtin{"count", filter_length},
    Builtin{"join", filter_join, {"d", "attribute"}},
    Builtin{"first", filter_first},
    Builtin{"last", filter_last},
    Builtin{"default", filter_default, {"default_value", "boolean"}},
    Builtin{"d", filter_default, {"default_value", "boolean"}},
    Builtin{"list", filter_list},
    Builtin{"int", filter_int, {"default", "base"}},
    Builtin{"float", filter_float, {"default"}},
    Builtin{"abs", filter_abs},
    Builtin{"items", filter_items},
    Builtin{"sort", filter_sort, {"reverse", "case_sensitive", "attribute"}},
    Builtin{"dictsort", filter_dictsort, {"case_sensitive", "by", "reverse"}},
    Builtin{"unique", filter_unique, {"case_sensitive", "attribute"}},
    Builtin{"min", filter_extreme<Operator::kLess>, {"case_sensitive", "attribute"}},
    Builtin{"max", filter_extreme<Operator::kGreater>, {"case_sensitive", "attribute"}},
    Builtin{"sum", filter_sum, {"attribute", "start"}},
    Builtin{"reverse", filter_reverse},
    Builtin{"map", filter_map, {}, 0, true},
    Builtin{"select", filter_select, {}, 0, true},
    Builtin{"reject", filter_reject, {}, 0, true},
    Builtin{"selectattr", filter_selectattr, {}, 0, true},
    Builtin{"rejectattr", filter_rejectattr, {}, 0, true},
};

}  // namespace

const Builtin* find_filter_or_null(std::string_view name) {
  const Builtin* const of_text = find_text_filter_or_null(name);
  return of_text != nullptr ? of_text : find_or_null(kFilters, name);
}

}  // namespace stemma::jinja
