// The methods: `value.name(arguments)` of a str, dict, list or tuple, as Python has them, and of a
// loop.
#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "template/builtin.h"
#include "template/operators.h"
#include "template/python_case.h"
#include "template/python_text.h"

namespace stemma::jinja {
namespace {

Result<std::string_view> text_argument(const Call& call, std::size_t i) {
  if (call.args[i]->is(Kind::kText)) return call.args[i]->text();
  return wrong_kind("a str", *call.args[i]);
}

// An optional count, −1 where it is left out.
Result<std::int64_t> count_argument(const Call& call, std::size_t i) {
  if (!call.has(i) || call.args[i]->is(Kind::kNone)) return std::int64_t{-1};
  if (!call.args[i]->is_whole()) return wrong_kind("a count", *call.args[i]);
  return call.args[i]->integer();
}

template <Side side>
Result<Value> strip_method(const Call& call) {
  if (!call.has(0) || call.args[0]->is(Kind::kNone)) {
    return Value::text(strip(call.self.text(), side));
  }
  STEMMA_ASSIGN_OR_RETURN(const std::string_view chars, text_argument(call, 0));
  call.arena.charge_steps(static_cast<std::int64_t>(chars.size()));
  return Value::text(strip(call.self.text(), side, chars));
}

// The characters of white space, or the separators that do not overlap: a split cuts at no more.
std::size_t cuts_max(std::string_view text, std::string_view separator_or_empty) {
  std::size_t cuts = 0;
  if (separator_or_empty.empty()) {
    for (std::size_t at = 0; at < text.size(); at += character_bytes(text, at)) {
      if (is_space(text.substr(at, character_bytes(text, at)))) ++cuts;
    }
    return cuts;
  }
  for (std::size_t at = text.find(separator_or_empty); at != std::string_view::npos;
       at = text.find(separator_or_empty, at + separator_or_empty.size())) {
    ++cuts;
  }
  return cuts;
}

Value list_of(Arena& arena, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(Value::text(part));
  return arena.sequence(Kind::kList, std::move(items));
}

// What a text of separators alone would make is charged before it is made, and a long text in a few
// parts is no more than these.
template <bool from_end>
Result<Value> split_method(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const std::int64_t splits_max, count_argument(call, 1));
  const std::string_view text = call.self.text();
  std::string_view separator;
  if (call.has(0) && !call.args[0]->is(Kind::kNone)) {
    STEMMA_ASSIGN_OR_RETURN(separator, text_argument(call, 0));
    if (separator.empty()) return type_error("the separator is empty");
  }
  if (from_end && separator.empty() && splits_max >= 0) {
    return Error{ErrorCode::kUnsupported,
                 "so many cuts at white space from the end are not supported"};
  }
  std::size_t cuts = cuts_max(text, separator);
  if (splits_max >= 0) cuts = std::min(cuts, static_cast<std::size_t>(splits_max));
  call.arena.charge_bytes((cuts + 1) * sizeof(Value));
  if (!call.arena.exceeded().empty()) return Value();
  if (separator.empty()) return list_of(call.arena, split_on_space(text, splits_max));
  return list_of(call.arena, from_end ? split_from_end(text, separator, splits_max)
                                      : split(text, separator, splits_max));
}

Result<Value> split_lines_method(const Call& call) {
  const std::string_view text = call.self.text();
  call.arena.charge_bytes(text.size() * sizeof(Value));  // an end of a line is a byte or more
  if (!call.arena.exceeded().empty()) return Value();
  std::vector<std::string_view> lines = split_lines(text);
  if (lines.back().empty()) lines.pop_back();
  return list_of(call.arena, lines);
}

// The text before the separator, it, and what is behind it; its last one where `last`.
template <bool last>
Result<Value> partition_method(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const std::string_view separator, text_argument(call, 0));
  if (separator.empty()) return type_error("the separator is empty");
  const std::string_view text = call.self.text();
  const std::size_t at = last ? text.rfind(separator) : text.find(separator);
  const Value whole = Value::text(text);
  const Value nothing = Value::text({});
  if (at == std::string_view::npos) {
    return call.arena.sequence(Kind::kTuple, last ? std::vector<Value>{nothing, nothing, whole}
                                                  : std::vector<Value>{whole, nothing, nothing});
  }
  return call.arena.sequence(Kind::kTuple, {Value::text(text.substr(0, at)), Value::text(separator),
                                            Value::text(text.substr(at + separator.size()))});
}

// Whether the text has that at its beginning or end; of a tuple, any of it.
template <bool at_end>
Result<Value> is_at_side(const Call& call) {
  const Value& wanted = *call.args[0];
  const auto all =
      wanted.is(Kind::kTuple) ? std::span<const Value>(wanted.list().items) : std::span(&wanted, 1);
  const std::string_view text = call.self.text();
  for (const Value& one : all) {
    if (!one.is(Kind::kText)) return wrong_kind("a str", one);
    if (at_end ? text.ends_with(one.text()) : text.starts_with(one.text())) {
      return Value::boolean(true);
    }
  }
  return Value::boolean(false);
}

Result<Value> remove_prefix_method(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const std::string_view prefix, text_argument(call, 0));
  std::string_view text = call.self.text();
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  return Value::text(text);
}

Result<Value> remove_suffix_method(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const std::string_view suffix, text_argument(call, 0));
  std::string_view text = call.self.text();
  if (text.ends_with(suffix)) text.remove_suffix(suffix.size());
  return Value::text(text);
}

using CaseFunction = std::optional<std::string> (*)(std::string_view);

template <CaseFunction change>
Result<Value> case_method(const Call& call) {
  return case_changed(call.arena, change(call.self.text()));
}

Result<Value> replace_method(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const std::string_view from, text_argument(call, 0));
  STEMMA_ASSIGN_OR_RETURN(const std::string_view to, text_argument(call, 1));
  STEMMA_ASSIGN_OR_RETURN(const std::int64_t count_max, count_argument(call, 2));
  if (from.empty()) {
    return Error{ErrorCode::kUnsupported, "replacing the empty text is not supported"};
  }
  TextBuilder out(call.arena);
  bool first = true;
  for (const std::string_view part : split(call.self.text(), from, count_max)) {
    if (!first) out.append(to);
    first = false;
    out.append(part);
  }
  return out.finish();
}

template <bool last>
Result<Value> find_method(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const std::string_view wanted, text_argument(call, 0));
  const std::string_view text = call.self.text();
  const std::size_t at = last ? text.rfind(wanted) : text.find(wanted);
  if (at == std::string_view::npos) return Value::integer(-1);
  return Value::integer(character_count(text.substr(0, at)));
}

Result<Value> count_method(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const std::string_view wanted, text_argument(call, 0));
  const std::string_view text = call.self.text();
  if (wanted.empty()) return Value::integer(character_count(text) + 1);
  return Value::integer(static_cast<std::int64_t>(cuts_max(text, wanted)));
}

Result<Value> join_method(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const auto items, elements(call.arena, *call.args[0]));
  TextBuilder out(call.arena);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is(Kind::kText)) return type_error("joins texts, not " + described(items[i]));
    if (i > 0) out.append(call.self.text());
    out.append(items[i].text());
  }
  return out.finish();
}

Result<Value> items_method(const Call& call) {
  return find_filter_or_null("items")->apply(call);
}

template <bool keys>
Result<Value> entries_method(const Call& call) {
  std::vector<Value> parts;
  for (const auto& [key, value] : call.self.mapping().entries) {
    parts.push_back(keys ? key : value);
  }
  return call.arena.sequence(Kind::kLazy, std::move(parts));
}

Result<Value> get_method(const Call& call) {
  STEMMA_RETURN_IF_ERROR(check_may_be_key(*call.args[0]));
  const Value* found = find_or_null(call.self.mapping(), *call.args[0]);
  if (found != nullptr) return *found;
  return call.has(1) ? *call.args[1] : Value::none();
}

// How often a list has the value, or where first.
template <bool first>
Result<Value> count_item_method(const Call& call) {
  std::int64_t at = 0;
  std::int64_t count = 0;
  for (const Value& item : call.self.list().items) {
    STEMMA_ASSIGN_OR_RETURN(const bool is_it,
                            compare(call.arena, Operator::kEqual, item, *call.args[0]));
    if (is_it && first) return Value::integer(at);
    count += is_it ? 1 : 0;
    ++at;
  }
  if (first) return type_error("the value is not in the list");
  return Value::integer(count);
}

// Of all arguments that whose turn it is.
Result<Value> cycle_method(const Call& call) {
  if (call.args.empty() || !call.named.empty()) return type_error("takes one value or more");
  return *call.args[call.self.loop().position % call.args.size()];
}

constexpr std::array kListMethods = {
    Builtin{"count", count_item_method<false>, {"value"}, 1},
    Builtin{"index", count_item_method<true>, {"value"}, 1},
};

constexpr std::array kLoopMethods = {
    Builtin{"cycle", cycle_method, {}, 0, true},
};

constexpr std::array kTextMethods = {
    Builtin{"strip", strip_method<Side::kBoth>, {"chars"}},
    Builtin{"lstrip", strip_method<Side::kLeft>, {"chars"}},
    Builtin{"rstrip", strip_method<Side::kRight>, {"chars"}},
    Builtin{"split", split_method<false>, {"sep", "maxsplit"}},
    Builtin{"rsplit", split_method<true>, {"sep", "maxsplit"}},
    Builtin{"splitlines", split_lines_method},
    Builtin{"partition", partition_method<false>, {"sep"}, 1},
    Builtin{"rpartition", partition_method<true>, {"sep"}, 1},
    Builtin{"startswith", is_at_side<false>, {"prefix"}, 1},
    Builtin{"endswith", is_at_side<true>, {"suffix"}, 1},
    Builtin{"removeprefix", remove_prefix_method, {"prefix"}, 1},
    Builtin{"removesuffix", remove_suffix_method, {"suffix"}, 1},
    Builtin{"upper", case_method<upper>},
    Builtin{"lower", case_method<lower>},
    Builtin{"capitalize", case_method<capitalize>},
    Builtin{"title", case_method<title>},
    Builtin{"replace", replace_method, {"old", "new", "count"}, 2},
    Builtin{"find", find_method<false>, {"sub"}, 1},
    Builtin{"rfind", find_method<true>, {"sub"}, 1},
    Builtin{"count", count_method, {"sub"}, 1},
    Builtin{"join", join_method, {"iterable"}, 1},
};

constexpr std::array kMappingMethods = {
    Builtin{"items", items_method},
    Builtin{"keys", entries_method<true>},
    Builtin{"values", entries_method<false>},
    Builtin{"get", get_method, {"key", "default"}, 1},
};

}  // namespace

const Builtin* find_method_or_null(Kind receiver, std::string_view name) {
  if (receiver == Kind::kText) return find_or_null(kTextMethods, name);
  if (receiver == Kind::kMapping) return find_or_null(kMappingMethods, name);
  if (receiver == Kind::kList || receiver == Kind::kTuple) return find_or_null(kListMethods, name);
  if (receiver == Kind::kLoop) return find_or_null(kLoopMethods, name);
  return nullptr;
}

bool is_method(std::string_view name) {
  constexpr std::array kReceivers = {Kind::kText, Kind::kMapping, Kind::kList, Kind::kLoop};
  return std::any_of(kReceivers.begin(), kReceivers.end(),
                     [&](Kind receiver) { return find_method_or_null(receiver, name) != nullptr; });
}

}  // namespace stemma::jinja
