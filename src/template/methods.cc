// The methods: `value.name(arguments)` of a str or a dict, as Python has them.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "template/builtin.h"
#include "template/operators.h"
#include "template/python_text.h"

namespace stemma::jinja {
namespace {

Result<std::string_view> text_argument(const Call& call, std::size_t i) {
  if (call.args[i]->is(Kind::kText)) return call.args[i]->text();
  return type_error("needs a str, not " + described(*call.args[i]));
}

// An optional count, −1 where it is left out.
Result<std::int64_t> count_argument(const Call& call, std::size_t i) {
  if (!call.has(i) || call.args[i]->is(Kind::kNone)) return std::int64_t{-1};
  if (!call.args[i]->is_whole())
    return type_error("needs a count, not " + described(*call.args[i]));
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

// What a text of separators alone would make is charged before it is made, and a long text in a few
// parts is no more than these.
Result<Value> split_method(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const std::int64_t splits_max, count_argument(call, 1));
  const std::string_view text = call.self.text();
  std::string_view separator;
  if (call.has(0) && !call.args[0]->is(Kind::kNone)) {
    STEMMA_ASSIGN_OR_RETURN(separator, text_argument(call, 0));
    if (separator.empty()) return type_error("the separator is empty");
  } else if (splits_max >= 0) {
    return type_error("split at white space takes no count here");
  }
  std::size_t cuts = cuts_max(text, separator);
  if (splits_max >= 0) cuts = std::min(cuts, static_cast<std::size_t>(splits_max));
  call.arena.charge_bytes((cuts + 1) * sizeof(Value));
  if (!call.arena.exceeded().empty()) return Value();
  const std::vector<std::string_view> parts =
      separator.empty() ? split_on_space(text) : split(text, separator, splits_max);
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(Value::text(part));
  return call.arena.sequence(Kind::kList, std::move(items));
}

Result<Value> starts_with_method(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const std::string_view prefix, text_argument(call, 0));
  return Value::boolean(call.self.text().starts_with(prefix));
}

Result<Value> ends_with_method(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const std::string_view suffix, text_argument(call, 0));
  return Value::boolean(call.self.text().ends_with(suffix));
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

using CaseFunction = std::string (*)(std::string_view);

template <CaseFunction change>
Result<Value> case_method(const Call& call) {
  if (!is_ascii(call.self.text())) {
    return Error{ErrorCode::kUnsupported,
                 "changing the case of text beyond ASCII is not supported"};
  }
  return call.arena.text(change(call.self.text()));
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

Result<Value> find_method(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const std::string_view wanted, text_argument(call, 0));
  const std::size_t at = call.self.text().find(wanted);
  if (at == std::string_view::npos) return Value::integer(-1);
  return Value::integer(character_count(call.self.text().substr(0, at)));
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
  for (const NamedValue& entry : call.self.mapping().entries) {
    parts.push_back(keys ? Value::text(entry.name) : entry.value);
  }
  return call.arena.sequence(Kind::kLazy, std::move(parts));
}

Result<Value> get_method(const Call& call) {
  const Value* found = nullptr;
  if (call.args[0]->is(Kind::kText)) {
    found = call.self.mapping().find_or_null(call.args[0]->text());
  }
  if (found != nullptr) return *found;
  return call.has(1) ? *call.args[1] : Value::none();
}

constexpr std::array kTextMethods = {
    Builtin{"strip", strip_method<Side::kBoth>, {"chars"}},
    Builtin{"lstrip", strip_method<Side::kLeft>, {"chars"}},
    Builtin{"rstrip", strip_method<Side::kRight>, {"chars"}},
    Builtin{"split", split_method, {"sep", "maxsplit"}},
    Builtin{"startswith", starts_with_method, {"prefix"}, 1},
    Builtin{"endswith", ends_with_method, {"suffix"}, 1},
    Builtin{"removeprefix", remove_prefix_method, {"prefix"}, 1},
    Builtin{"removesuffix", remove_suffix_method, {"suffix"}, 1},
    Builtin{"upper", case_method<upper>},
    Builtin{"lower", case_method<lower>},
    Builtin{"capitalize", case_method<capitalize>},
    Builtin{"title", case_method<title>},
    Builtin{"replace", replace_method, {"old", "new", "count"}, 2},
    Builtin{"find", find_method, {"sub"}, 1},
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
  return nullptr;
}

}  // namespace stemma::jinja
