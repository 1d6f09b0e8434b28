// The filters that make a text. Each follows Jinja's filter of that name; tojson is the one that
// the families' own renderers install (no HTML escapes, UTF-8 as it is).
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "template/builtin.h"
#include "template/operators.h"
#include "template/percent_format.h"
#include "template/python_case.h"
#include "template/python_text.h"
#include "template/template_json.h"

namespace stemma::jinja {
namespace {

using CaseFunction = std::optional<std::string> (*)(std::string_view);

template <CaseFunction change>
Result<Value> filter_case(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const Value text, to_text(call.arena, call.self));
  return case_changed(call.arena, change(text.text()));
}

Result<Value> filter_trim(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const Value text, to_text(call.arena, call.self));
  if (!call.has(0) || call.args[0]->is(Kind::kNone)) {
    return Value::text(strip(text.text(), Side::kBoth));
  }
  if (!call.args[0]->is(Kind::kText)) return wrong_kind("characters", *call.args[0]);
  return Value::text(strip(text.text(), Side::kBoth, call.args[0]->text()));
}

Result<Value> filter_string(const Call& call) {
  return to_text(call.arena, call.self);
}

Result<Value> filter_format(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const Value format, to_text(call.arena, call.self));
  if (!call.named.empty()) {
    return Error{ErrorCode::kUnsupported, "formatting text by names is not supported"};
  }
  std::vector<Value> values;
  values.reserve(call.args.size());
  for (const auto& argument : call.args) values.push_back(*argument);
  return percent_format(call.arena, format.text(), values);
}

// Lines but the first begin with so much space, and, where they are asked for, the first and those
// that are empty.
Result<Value> filter_indent(const Call& call) {
  if (!call.self.is(Kind::kText)) return wrong_kind("a str", call.self);
  STEMMA_ASSIGN_OR_RETURN(const bool first, flag(call, 1));
  STEMMA_ASSIGN_OR_RETURN(const bool blank, flag(call, 2));
  std::string space(4, ' ');
  if (call.has(0) && call.args[0]->is(Kind::kText)) {
    space = call.args[0]->text();
  } else if (call.has(0)) {
    if (!call.args[0]->is_whole()) return wrong_kind("a width", *call.args[0]);
    space.assign(
        static_cast<std::size_t>(std::clamp<std::int64_t>(call.args[0]->integer(), 0, 256)), ' ');
  }
  TextBuilder out(call.arena);
  std::vector<std::string_view> lines = split_lines(call.self.text());
  if (call.self.text().ends_with('\r')) lines.pop_back();  // Jinja's own "\n" makes one end of it
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n");
    if (i == 0 ? first : blank || !lines[i].empty()) out.append(space);
    out.append(lines[i]);
  }
  return out.finish();
}

Result<Value> filter_replace(const Call& call) {
  STEMMA_ASSIGN_OR_RETURN(const Value text, to_text(call.arena, call.self));
  const Call method_call{call.arena, text, call.args, {}};
  return find_method_or_null(Kind::kText, "replace")->apply(method_call);
}

Status read_separators(const Value& value, JsonFormat& format) {
  if (value.is(Kind::kNone)) return {};
  const bool pair = (value.is(Kind::kTuple) || value.is(Kind::kList)) &&
                    value.list().items.size() == 2 && value.list().items[0].is(Kind::kText) &&
                    value.list().items[1].is(Kind::kText);
  if (!pair) return wrong_kind("two separators", value);
  format.item_separator = value.list().items[0].text();
  format.key_separator = value.list().items[1].text();
  return {};
}

Result<Value> filter_tojson(const Call& call) {
  JsonFormat format;
  STEMMA_ASSIGN_OR_RETURN(format.escape_non_ascii, flag(call, 0));
  if (call.has(1) && !call.args[1]->is(Kind::kNone)) {
    if (!call.args[1]->is_whole()) return wrong_kind("a whole number as indent", *call.args[1]);
    format.indent = std::clamp<std::int64_t>(call.args[1]->integer(), 0, 256);
    format.item_separator = ",";
  }
  if (call.has(2)) STEMMA_RETURN_IF_ERROR(read_separators(*call.args[2], format));
  STEMMA_ASSIGN_OR_RETURN(format.sort_keys, flag(call, 3));
  return to_json(call.arena, call.self, format);
}

constexpr std::array kTextFilters = {
    Builtin{"trim", filter_trim, {"chars"}},
    Builtin{"tojson", filter_tojson, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    Builtin{"upper", filter_case<upper>},
    Builtin{"lower", filter_case<lower>},
    Builtin{"capitalize", filter_case<capitalize>},
    Builtin{"title", filter_case<words_begun_upper>},
    Builtin{"format", filter_format, {}, 0, true},
    Builtin{"indent", filter_indent, {"width", "first", "blank"}},
    Builtin{"string", filter_string},
    Builtin{"replace", filter_replace, {"old", "new", "count"}, 2},
    Builtin{"safe", filter_string},
};

}  // namespace

const Builtin* find_text_filter_or_null(std::string_view name) {
  return find_or_null(kTextFilters, name);
}

}  // namespace stemma::jinja
