#include "template/operators.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "template/builtin.h"
#include "template/python_case.h"
#include "template/python_text.h"

namespace stemma::jinja {
namespace {

// repr(value) into `out`: the form that items have inside a printed list.
Status append_quoted(TextBuilder& out, const Value& value) {
  if (!value.is_defined()) {
    out.append("Undefined");
    return {};
  }
  if (!value.is(Kind::kText)) return append_text(out, value);
  out.append(quoted_text(value.text()));
  return {};
}

Status append_list(TextBuilder& out, const Value& value) {
  const std::vector<Value>& items = value.list().items;
  const bool tuple = value.is(Kind::kTuple);
  out.append(tuple ? "(" : "[");
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(", ");
    STEMMA_RETURN_IF_ERROR(append_quoted(out, items[i]));
  }
  out.append(!tuple ? "]" : items.size() == 1 ? ",)" : ")");
  return {};
}

Status append_mapping(TextBuilder& out, const Mapping& mapping) {
  out.append("{");
  bool first = true;
  for (const auto& [key, value] : mapping.entries) {
    if (!first) out.append(", ");
    first = false;
    STEMMA_RETURN_IF_ERROR(append_quoted(out, key));
    out.append(": ");
    STEMMA_RETURN_IF_ERROR(append_quoted(out, value));
  }
  out.append("}");
  return {};
}

// An index as Python counts it, from either end; nothing if it is outside.
std::optional<std::size_t> position(std::int64_t index, std::size_t size) {
  const auto count = static_cast<std::int64_t>(size);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return std::nullopt;
  return static_cast<std::size_t>(index);
}

// The indices that a slice selects, in order.
std::vector<std::size_t> selected(std::int64_t count, const SliceBounds& bounds) {
  const std::int64_t step = bounds.step.value_or(1);
  const bool forward = step > 0;
  const auto clamped = [&](std::optional<std::int64_t> bound, std::int64_t absent) {
    if (!bound) return absent;
    const std::int64_t from_begin =
        *bound < 0 ? std::max<std::int64_t>(*bound, -count - 1) + count : *bound;
    return std::clamp<std::int64_t>(from_begin, forward ? 0 : -1, forward ? count : count - 1);
  };
  const std::int64_t begin = clamped(bounds.begin, forward ? 0 : count - 1);
  const std::int64_t end = clamped(bounds.end, forward ? count : -1);
  const std::int64_t stride = std::clamp<std::int64_t>(step, -count - 1, count + 1);
  std::vector<std::size_t> result;
  for (std::int64_t i = begin; forward ? i < end : i > end; i += stride) {
    result.push_back(static_cast<std::size_t>(i));
  }
  return result;
}

Value loop_attribute(const Loop& loop, std::string_view name) {
  const auto index0 = static_cast<std::int64_t>(loop.position);
  const auto count = static_cast<std::int64_t>(loop.items.size());
  if (name == "index") return Value::integer(index0 + 1);
  if (name == "index0") return Value::integer(index0);
  if (name == "revindex") return Value::integer(count - index0);
  if (name == "revindex0") return Value::integer(count - index0 - 1);
  if (name == "first") return Value::boolean(index0 == 0);
  if (name == "last") return Value::boolean(index0 + 1 == count);
  if (name == "length") return Value::integer(count);
  if (name == "depth") return Value::integer(1);  // of recursion, which there is none of
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem" && index0 > 0) return loop.items[loop.position - 1];
  if (name == "nextitem" && index0 + 1 < count) return loop.items[loop.position + 1];
  return Value::undefined(name);
}

// How many of its items have to be known to tell this of a loop.
std::size_t items_told_by(const Loop& loop, std::string_view name) {
  if (name == "last" || name == "nextitem") return loop.position + 2;
  const bool counts = name == "length" || name == "revindex" || name == "revindex0";
  return counts ? std::numeric_limits<std::size_t>::max() : 0;
}

// The methods of Python's values; those that change one are undefined in a sandbox.
constexpr std::array<std::string_view, 47> kTextMethods = {
    "capitalize",   "casefold",    "center",    "count",      "encode",       "endswith",
    "expandtabs",   "find",        "format",    "format_map", "index",        "isalnum",
    "isalpha",      "isascii",     "isdecimal", "isdigit",    "isidentifier", "islower",
    "isnumeric",    "isprintable", "isspace",   "istitle",    "isupper",      "join",
    "ljust",        "lower",       "lstrip",    "maketrans",  "partition",    "removeprefix",
    "removesuffix", "replace",     "rfind",     "rindex",     "rjust",        "rpartition",
    "rsplit",       "rstrip",      "split",     "splitlines", "startswith",   "strip",
    "swapcase",     "title",       "translate", "upper",      "zfill"};
constexpr std::array<std::string_view, 6> kDictMethods = {"copy",  "fromkeys", "get",
                                                          "items", "keys",     "values"};
constexpr std::array<std::string_view, 5> kDictChanges = {"clear", "pop", "popitem", "setdefault",
                                                          "update"};
constexpr std::array<std::string_view, 3> kListMethods = {"copy", "count", "index"};

template <typename Names>
bool is_one_of(std::string_view name, const Names& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool has_method(const Value& value, std::string_view name) {
  if (value.is(Kind::kMapping)) return is_one_of(name, kDictMethods);
  if (value.is(Kind::kText)) return is_one_of(name, kTextMethods);
  const bool is_list = value.is(Kind::kList) || value.is(Kind::kTuple);
  return is_list && is_one_of(name, kListMethods) && !(value.is(Kind::kTuple) && name == "copy");
}

// What a value has where it has no item of this name: a method, which is there even if nobody calls
// it.
Value absent_attribute(const Value& value, std::string_view name) {
  return has_method(value, name) ? Value::method(name) : Value::undefined(name);
}

}  // namespace

std::string described(const Value& value) {
  if (value.is_defined()) return std::string(kind_name(value.kind()));
  return "'" + std::string(value.text()) + "' is undefined";
}

Error wrong_kind(std::string_view wanted, const Value& value) {
  return type_error("needs " + std::string(wanted) + ", not " + described(value));
}

Result<bool> truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInteger:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.real() != 0;
    case Kind::kText:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.list().items.empty();
    case Kind::kMapping:
      return !value.mapping().entries.empty();
    case Kind::kLazy:
      return type_error("a lazy sequence has no truth value; use '| list'");
    default:
      return true;
  }
}

Status append_text(TextBuilder& out, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return {};
    case Kind::kNone:
      out.append("None");
      return {};
    case Kind::kBool:
      out.append(value.boolean() ? "True" : "False");
      return {};
    case Kind::kInteger:
      out.append(std::to_string(value.integer()));
      return {};
    case Kind::kFloat:
      out.append(value.is_wide_integer() ? std::string(value.text()) : float_text(value.real()));
      return {};
    case Kind::kText:
      out.append(value.text());
      return {};
    case Kind::kList:
    case Kind::kTuple:
      return append_list(out, value);
    case Kind::kMapping:
      return append_mapping(out, value.mapping());
    default:
      return Error{ErrorCode::kUnsupported,
                   "printing a " + std::string(kind_name(value.kind())) + " is not supported"};
  }
}

Result<Value> to_text(Arena& arena, const Value& value) {
  if (value.is(Kind::kText)) return value;
  TextBuilder out(arena);
  STEMMA_RETURN_IF_ERROR(append_text(out, value));
  return out.finish();
}

Result<std::span<const Value>> elements(Arena& arena, const Value& value) {
  std::vector<Value> items;
  if (value.is_sequence()) return std::span<const Value>(value.list().items);
  if (value.is(Kind::kText)) {
    arena.charge_bytes(value.text().size() * sizeof(Value));
    if (!arena.exceeded().empty()) return std::span<const Value>();
    for (const std::string_view character : characters(value.text())) {
      items.push_back(Value::text(character));
    }
  } else if (value.is(Kind::kMapping)) {
    for (const MappingEntry& entry : value.mapping().entries) items.push_back(entry.key);
  } else if (value.is_defined()) {
    return type_error("a value of the kind " + described(value) + " cannot be iterated");
  }
  return std::span<const Value>(arena.sequence(Kind::kLazy, std::move(items)).list().items);
}

Result<Value> attribute(const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return type_error(described(value));
    case Kind::kMapping: {
      // Python looks for a method of the dict before it looks for a key.
      if (has_method(value, name) || is_one_of(name, kDictChanges)) {
        return absent_attribute(value, name);
      }
      const Value* found = value.mapping().find_or_null(name);
      return found != nullptr ? *found : Value::undefined(name);
    }
    case Kind::kNamespace: {
      for (const NamedValue& entry : value.name_space().attributes) {
        if (entry.name == name) return entry.value;
      }
      return Value::undefined(name);
    }
    case Kind::kLoop: {
      LoopSource* const more = value.loop().more_or_null;
      if (more != nullptr) STEMMA_RETURN_IF_ERROR(more->find(items_told_by(value.loop(), name)));
      return loop_attribute(value.loop(), name);
    }
    default:
      return absent_attribute(value, name);
  }
}

Result<Value> subscript(Arena& arena, const Value& value, const Value& key) {
  if (!value.is_defined()) return type_error(described(value));
  if (value.is(Kind::kMapping)) {
    const Value* found = find_or_null(value.mapping(), key);
    if (found != nullptr) return *found;
    return key.is(Kind::kText) ? absent_attribute(value, key.text()) : Value::undefined("item");
  }
  if (value.is(Kind::kList) || value.is(Kind::kTuple)) {
    if (!key.is_whole()) return Value::undefined("item");
    const auto at = position(key.integer(), value.list().items.size());
    return at ? value.list().items[*at] : Value::undefined("item");
  }
  if (value.is(Kind::kText) && key.is_whole()) {
    arena.charge_bytes(value.text().size());
    const std::vector<std::string_view> parts = characters(value.text());
    const auto at = position(key.integer(), parts.size());
    return at ? Value::text(parts[*at]) : Value::undefined("character");
  }
  if (key.is(Kind::kText)) return attribute(value, key.text());
  if (value.is(Kind::kLazy)) return type_error("a lazy sequence has no items; use '| list'");
  return Value::undefined("item");
}

Result<Value> slice(Arena& arena, const Value& value, const SliceBounds& bounds) {
  if (!value.is_defined()) return type_error(described(value));
  if (value.is(Kind::kLazy)) return type_error("a lazy sequence has no items; use '| list'");
  const bool is_sequence = value.is(Kind::kList) || value.is(Kind::kTuple);
  if (!is_sequence && !value.is(Kind::kText)) return Value::undefined("item");
  if (bounds.step == 0) return type_error("a slice needs a step other than 0");
  if (value.is(Kind::kText)) {
    arena.charge_bytes(value.text().size());
    const std::vector<std::string_view> parts = characters(value.text());
    TextBuilder out(arena);
    for (const std::size_t i : selected(static_cast<std::int64_t>(parts.size()), bounds)) {
      out.append(parts[i]);
    }
    return out.finish();
  }
  const std::vector<Value>& items = value.list().items;
  std::vector<Value> result;
  for (const std::size_t i : selected(static_cast<std::int64_t>(items.size()), bounds)) {
    result.push_back(items[i]);
  }
  return arena.sequence(value.kind(), std::move(result));
}

}  // namespace stemma::jinja
