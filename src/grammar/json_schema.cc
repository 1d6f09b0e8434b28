#include "grammar/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "grammar/json_parts.h"
#include "grammar/number_schema.h"
#include "grammar/schema_budget.h"
#include "grammar/schema_exclusion.h"
#include "grammar/schema_items.h"
#include "grammar/schema_merge.h"
#include "grammar/schema_reference.h"
#include "grammar/schema_words.h"
#include "grammar/string_schema.h"

namespace stemma {
namespace {

using Json = TemplateJson;
using Part = ByteGrammar::Part;

constexpr std::size_t kPathBytesMax = 400;  // of a place, for errors

// What says alone which values there are: another of these beside it would narrow it.
constexpr std::array kWhole = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};

// A place in the schema that is still to be read, and the rule that it becomes.
struct Pending {
  const Json* schema = nullptr;
  std::string path;
  Part rule;
};

class SchemaReader {
 public:
  SchemaReader(const Json& root, bool strict, const JsonParts& json)
      : references_(root), strict_(strict), grammar_(json.grammar), json_(json), budget_(root) {}

  Result<std::vector<Part>> read(std::span<const SchemaPlace> places) {
    std::vector<Part> parts;
    for (const SchemaPlace& place : places) parts.push_back(refer(*place.schema, place.path));
    while (!pending_.empty() && status_.ok() && !grammar_.is_full()) {
      const Pending next = std::move(pending_.front());
      pending_.pop_front();
      grammar_.define(next.rule, part_of(*next.schema, next.path));
    }
    if (!status_.ok()) return status_.error();
    return parts;
  }

 private:
  // The rule of a schema, which is read later: schemas may name each other in circles.
  Part refer(const Json& schema, std::string path) {
    if (path.size() > kPathBytesMax) path = path.substr(0, kPathBytesMax) + "...";
    const auto [known, added] = rules_of_.try_emplace(&schema);
    if (added) {
      known->second = grammar_.rule();
      pending_.push_back({&schema, std::move(path), known->second});
    }
    return known->second;
  }

  Part fail(ErrorCode code, const std::string& path, std::string_view why) {
    if (status_.ok()) status_ = Error{code, fmt::format("{}: {}", path, why)};
    return grammar_.text("");
  }
  Part wrong(const std::string& path, std::string_view why) {
    return fail(ErrorCode::kInvalidArgument, path, why);
  }
  Part unsupported(const std::string& path, std::string_view why) {
    return fail(ErrorCode::kUnsupported, path, why);
  }
  // What holds it does without where it may; the whole cannot.
  Part nothing(const std::string& path, std::string_view why) {
    return grammar_.nothing(fmt::format("{}: {}", path, why));
  }

  Part part_of(const Json& schema, const std::string& path) {
    if (schema.is_boolean()) {
      return schema.get<bool>() ? json_.any : nothing(path, "false allows nothing");
    }
    if (!schema.is_object()) return wrong(path, "must be an object or a boolean");
    if (const auto names = listed_names(schema, references_); !names.empty()) {
      const Json others = schema.value("additionalProperties", Json(true));
      const std::size_t units = names.size() * (2 + SchemaBudget::units_of(others));
      if (budget_.take(schema) && budget_.take(units)) return made(with_names(schema, names), path);
      return unsupported(path, "so many names are not supported");
    }
    if (strict_) check_narrowing(schema, path);
    if (says_several(schema)) {
      if (const std::optional<Part> part = merged(schema, path); part.has_value()) return *part;
    }
    if (schema.contains("not")) {
      if (const std::optional<Part> part = excluding(schema, path); part.has_value()) return *part;
    }
    for (const char* const word : kWhole) {
      const auto found = schema.find(word);
      if (found != schema.end()) return whole_of(schema, word, *found, path);
    }
    return typed(schema, path);
  }

  // Of a schema that was made of another one.
  Part made(Json schema, const std::string& path) {
    made_.push_back(std::move(schema));
    return part_of(made_.back(), path);
  }

  // What `not` leaves; nothing where that cannot be said and the schema is not strict.
  std::optional<Part> excluding(const Json& schema, const std::string& path) {
    const bool is_of_strings = excludes_strings_alone(schema);
    if (is_of_strings && !json_.has_plain_strings()) {
      std::vector<std::string> others;
      for (const Json& one : schema["not"]["enum"]) others.push_back(one.get<std::string>());
      return json_.other_string(others);
    }
    if (!budget_.take(schema)) return too_many(path);
    const Result<Json> rest =
        is_of_strings ? no_exclusion("of a text between marks") : without_not(schema);
    if (rest.ok() && *rest == false) return nothing(path, "not leaves nothing");
    if (rest.ok()) return made(*rest, path);
    if (!strict_ && rest.error().code == ErrorCode::kUnsupported) return std::nullopt;
    return fail(rest.error().code, path, rest.error().detail);
  }

  // What it says together; nothing where that cannot be said and the schema is not strict. Members
  // that two name may be merged again and again, of schemas that name each other in circles: those
  // that are alike become one rule.
  std::optional<Part> merged(const Json& schema, const std::string& path) {
    if (!budget_.take(schema)) return too_many(path);
    const auto [known, added] = merged_.try_emplace(written(schema));
    if (!added) return known->second;
    Result<Json> one = merged_schema(schema, references_, path, budget_);
    if (!one.ok()) merged_.erase(known);
    if (!one.ok() && !strict_ && one.error().code == ErrorCode::kUnsupported) {
      return std::nullopt;
    }
    if (!one.ok()) return fail_as(one.error());
    if (*one == false) return known->second = nothing(path, "nothing keeps to all that it says");
    const Part rule = grammar_.rule();
    known->second = rule;
    made_.push_back(*std::move(one));
    grammar_.define(rule, part_of(made_.back(), path));
    return rule;
  }
  std::optional<Part> too_many(const std::string& path) {
    if (!strict_) return std::nullopt;
    return unsupported(path, "so many schemas together are not supported");
  }

  void check_narrowing(const Json& schema, const std::string& path) {
    for (const char* const word : kNarrowingWords) {
      const auto found = schema.find(word);
      if (found != schema.end() && narrows(word, *found)) {
        unsupported(path + "." + word, "not supported where a schema is strict");
      }
    }
  }

  // REQUIRES: `word` is of kWhole.
  Part whole_of(const Json& schema, std::string_view word, const Json& value,
                const std::string& path) {
    if (strict_) check_alone(schema, word, path);
    const std::string at = fmt::format("{}.{}", path, word);
    if (word == "$ref") return referred(value, at);
    if (word == "const") return one_of_values(schema, Json::array({value}), path);
    if (!value.is_array() || value.empty()) return wrong(at, "must be a list of at least one");
    if (word == "enum") return one_of_values(schema, value, path);
    if (word == "allOf") {
      return refer(value[0], item(at, 0));
    }
    std::vector<Part> parts;
    for (std::size_t i = 0; i < value.size(); ++i) parts.push_back(refer(value[i], item(at, i)));
    return grammar_.either(std::move(parts));
  }

  // A type beside values says which of them are meant.
  void check_alone(const Json& schema, std::string_view word, const std::string& path) {
    for (const char* const other : kWhole) {
      if (other != word && schema.contains(other)) {
        unsupported(path, fmt::format("{} beside {} is not supported", other, word));
      }
    }
    for (const TypeWords& type : kTypes) {
      for (const char* const other : type.words) {
        if (other != nullptr && schema.contains(other)) {
          unsupported(path, fmt::format("{} beside {} is not supported", other, word));
        }
      }
    }
  }

  static std::string item(const std::string& path, std::size_t i) {
    return fmt::format("{}[{}]", path, i);
  }
  static std::string written(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  Part one_of_values(const Json& schema, const Json& values, const std::string& path) {
    const auto type = schema.find("type");
    if (type != schema.end() && !is_type(*type, path)) return grammar_.text("");
    const WordNames types = type == schema.end() ? WordNames() : names_of(*type);
    std::vector<std::string> texts;
    for (const Json& value : values) {
      const bool is_meant = type == schema.end() || is_of_types(value, types);
      if (!is_meant) continue;
      const bool is_plain = json_.has_plain_strings() && value.is_string();
      std::string text = is_plain ? value.get<std::string>() : written(value);
      if (!is_plain || json_.may_be_plain(text)) texts.push_back(std::move(text));
    }
    if (texts.empty()) return nothing(path, "no value is of its type");
    return grammar_.one_text_of(std::vector<std::string_view>(texts.begin(), texts.end()));
  }

  Part referred(const Json& value, const std::string& path) {
    const Result<const Json*> named = references_.named_by(value);
    if (!named.ok()) return fail(named.error().code, path, named.error().detail);
    return refer(**named, value.get_ref<const std::string&>());
  }

  Part typed(const Json& schema, const std::string& path) {
    const auto type = schema.find("type");
    if (type == schema.end()) {
      const std::string_view implied = implied_type(schema);
      return implied.empty() ? json_.any : of_type(implied, schema, path);
    }
    if (!is_type(*type, path)) return grammar_.text("");
    if (type->is_string()) return of_type(type->get_ref<const std::string&>(), schema, path);
    std::vector<Part> parts;
    WordNames read;  // a name again says nothing more
    for (const Json& name : *type) {
      const auto& text = name.get_ref<const std::string&>();
      if (read.insert(text).second) parts.push_back(of_type(text, schema, path));
    }
    return grammar_.either(std::move(parts));
  }

  bool is_type(const Json& type, const std::string& path) {
    const std::string at = path + ".type";
    if (!type.is_string() && (!type.is_array() || type.empty())) {
      wrong(at, "must be a name or a list of names");
      return false;
    }
    const auto is_name = [&](const Json& name) {
      if (!name.is_string()) {
        wrong(at, "must be a list of names");
        return false;
      }
      const auto& text = name.get_ref<const std::string&>();
      for (const TypeWords& known : kTypes) {
        if (known.type == text) return true;
      }
      wrong(at, fmt::format("\"{}\" is no type", printable(text)));
      return false;
    };
    return type.is_string() ? is_name(type) : std::all_of(type.begin(), type.end(), is_name);
  }

  // REQUIRES: it is one.
  Part of_type(std::string_view type, const Json& schema, const std::string& path) {
    if (type == "object") return object(schema, path);
    if (type == "array") return array(schema, path);
    if (type == "string") return kept(string_of_schema(schema, strict_, path, json_));
    if (type == "integer") return kept(integer_of_schema(schema, strict_, path, json_));
    if (type == "number") return kept(number_of_schema(schema, strict_, path, json_));
    if (type == "boolean") {
      return grammar_.either({grammar_.text("true"), grammar_.text("false")});
    }
    return grammar_.text("null");
  }

  // `part`, or why there is none.
  Part kept(const Result<Part>& part) { return part.ok() ? *part : fail_as(part.error()); }
  Part fail_as(const Error& error) {
    if (status_.ok()) status_ = error;
    return grammar_.text("");
  }

  Part array(const Json& schema, const std::string& path);
  Part object(const Json& schema, const std::string& path);
  struct Member {
    std::string name;
    Part part;  // name and value
    bool required = false;
  };
  std::vector<Member> members_of(const Json& schema, const std::string& path);
  void add_required(const Json& schema, const std::string& path, std::vector<Member>& members);
  std::optional<Part> other_value(const Json& schema, const std::string& path);
  std::optional<Part> other_member(const Json& schema, const std::vector<Member>& members,
                                   const std::string& path);
  Part member(const std::string& name, Part value) {
    return grammar_.sequence({grammar_.text(written(name)), json_.colon(), value});
  }
  Part listed(const std::vector<Member>& members, std::optional<Part> others);

  SchemaReferences references_;
  bool strict_;
  ByteGrammar& grammar_;
  const JsonParts& json_;
  Status status_;
  std::map<const Json*, Part> rules_of_;
  std::map<std::string, Part> merged_;  // by what they were made of
  SchemaBudget budget_;
  std::deque<Json> made_;
  std::deque<Pending> pending_;
};

// Items that have schemas of their own, then those that have one together.
Part SchemaReader::array(const Json& schema, const std::string& path) {
  const Result<SchemaExtent> said = read_extent(schema, "minItems", "maxItems", path);
  if (!said.ok()) return fail_as(said.error());
  const SchemaExtent& extent = *said;
  if (extent.is_empty()) return nothing(path, "maxItems is below minItems");
  if (const auto fault = fault_of_items(schema)) {
    return wrong(fmt::format("{}.{}", path, fault->word), fault->why);
  }
  const SchemaItems items = items_of(schema);
  const auto own_items = static_cast<std::int64_t>(items.own_items());
  const bool no_others = items.others() == false;
  std::optional<std::int64_t> most = extent.most;
  if (no_others) most = std::min(most.value_or(own_items), own_items);
  if (most.has_value() && *most < extent.least)
    return nothing(path, "minItems are more than items");
  std::vector<Part> own;
  const std::string at_own = fmt::format("{}.{}", path, items.own_word);
  while (own.size() < items.own_items()) {
    own.push_back(refer(items.at(own.size()), item(at_own, own.size())));
  }
  const bool is_any = items.others_or_null == nullptr || no_others;
  const Part any =
      is_any ? json_.any : refer(items.others(), fmt::format("{}.{}", path, items.others_word));
  const auto part_at = [&](std::int64_t i) {
    return i < own_items ? own[static_cast<std::size_t>(i)] : any;
  };
  if (most == 0) return grammar_.text("[]");
  // From the end: what may follow the first `at` items.
  std::int64_t at = std::max<std::int64_t>(own_items, 1);
  at = std::min(at, most.value_or(at));
  std::optional<std::int64_t> more;
  if (most.has_value()) more = *most - at;
  Part rest =
      grammar_.rule(grammar_.repeated(grammar_.rule(grammar_.sequence({json_.comma(), any})),
                                      std::max<std::int64_t>(extent.least - at, 0), more));
  while (--at > 0) {
    rest = grammar_.sequence({json_.comma(), part_at(at), rest});
    if (at >= extent.least) rest = grammar_.optional(rest);
    rest = grammar_.rule(rest);
  }
  Part all = grammar_.sequence({part_at(0), rest});
  if (extent.least == 0) all = grammar_.optional(all);
  return json_.enclosed("[", all, "]");
}

std::vector<SchemaReader::Member> SchemaReader::members_of(const Json& schema,
                                                           const std::string& path) {
  std::vector<Member> members;
  if (const auto properties = schema.find("properties"); properties != schema.end()) {
    const std::string at = path + ".properties";
    if (!properties->is_object()) {
      wrong(at, "must be an object");
      return members;
    }
    for (const auto& [name, value] : properties->items()) {
      members.push_back({name, member(name, refer(value, at + "." + printable(name)))});
    }
  }
  add_required(schema, path, members);
  return members;
}

void SchemaReader::add_required(const Json& schema, const std::string& path,
                                std::vector<Member>& members) {
  const auto required = schema.find("required");
  if (required == schema.end()) return;
  const std::string at = path + ".required";
  if (!required->is_array()) {
    wrong(at, "must be a list");
    return;
  }
  std::optional<std::optional<Part>> others;  // other_value, once it is asked
  std::map<std::string, std::size_t> places;  // names of their own: members move as they grow
  for (std::size_t i = 0; i < members.size(); ++i) places.emplace(members[i].name, i);
  for (const Json& name : *required) {
    if (!name.is_string()) wrong(at, "must be a list of names");
    if (!status_.ok() || grammar_.is_full()) return;
    const auto& text = name.get_ref<const std::string&>();
    const auto place = places.find(text);
    if (place != places.end()) {
      members[place->second].required = true;
    } else {  // it may be what others may be
      if (!others.has_value()) others = other_value(schema, path);
      const Part value = others->has_value()
                             ? **others
                             : nothing(at, fmt::format("\"{}\" is no property", printable(text)));
      places.emplace(text, members.size());
      members.push_back({text, member(text, value), true});
    }
  }
}

// What members may be that no property names; nothing: there are none. Patterns of names are not
// kept to where they are read at all, but what they say of the members that they name is.
std::optional<Part> SchemaReader::other_value(const Json& schema, const std::string& path) {
  std::vector<Part> values;
  const auto others = schema.find("additionalProperties");
  const auto patterns = schema.find("patternProperties");
  const bool has_patterns = patterns != schema.end() && patterns->is_object() && !patterns->empty();
  if (others == schema.end() && !has_patterns) return json_.any;
  if (others != schema.end() && *others != false) {
    values.push_back(refer(*others, path + ".additionalProperties"));
  }
  if (has_patterns) {
    for (const auto& [pattern, value] : patterns->items()) {
      values.push_back(refer(value, path + ".patternProperties." + printable(pattern)));
    }
  }
  if (values.empty()) return std::nullopt;
  return values.size() == 1 ? values.front() : grammar_.rule(grammar_.either(std::move(values)));
}

// A member that no property names; nothing: there is none.
std::optional<Part> SchemaReader::other_member(const Json& schema,
                                               const std::vector<Member>& members,
                                               const std::string& path) {
  const auto others = schema.find("additionalProperties");
  if (others == schema.end() && schema.contains("properties")) return std::nullopt;
  const std::optional<Part> value = other_value(schema, path);
  if (!value.has_value()) return std::nullopt;
  std::vector<std::string> names;
  names.reserve(members.size());
  for (const Member& named : members) names.push_back(named.name);
  const Part name = names.empty() ? json_.string(0, std::nullopt) : json_.other_string(names);
  return grammar_.rule(grammar_.sequence({name, json_.colon(), *value}));
}

Part SchemaReader::object(const Json& schema, const std::string& path) {
  const std::vector<Member> members = members_of(schema, path);
  const std::optional<Part> others = other_member(schema, members, path);
  if (members.empty() && !others.has_value()) return grammar_.text("{}");
  return json_.enclosed("{", listed(members, others), "}");
}

// Members in their order, those that are not required perhaps left out: what may come where none
// has come yet, and where one has.
Part SchemaReader::listed(const std::vector<Member>& members, std::optional<Part> others) {
  Part after = grammar_.sequence({});
  Part first = after;
  if (others.has_value()) {
    after = grammar_.rule(
        grammar_.repeated(grammar_.sequence({json_.comma(), *others}), 0, std::nullopt));
    first = grammar_.optional(grammar_.sequence({*others, after}));
  }
  for (auto one = members.rbegin(); one != members.rend(); ++one) {
    const Part given_first = grammar_.sequence({one->part, after});
    const Part given = grammar_.sequence({json_.comma(), one->part, after});
    first = one->required ? given_first : grammar_.either({given_first, first});
    after = one->required ? given : grammar_.either({given, after});
    first = grammar_.rule(first);
    after = grammar_.rule(after);
  }
  return first;
}

}  // namespace

Result<ByteGrammar::Part> add_json_schema(const TemplateJson& schema, const SchemaRules& rules,
                                          ByteGrammar& grammar) {
  return add_json_schema(schema, rules, JsonParts(grammar));
}

Result<ByteGrammar::Part> add_json_schema(const TemplateJson& schema, const SchemaRules& rules,
                                          const JsonParts& json) {
  const SchemaPlace whole = {&schema, rules.path};
  STEMMA_ASSIGN_OR_RETURN(const std::vector<Part> parts,
                          add_json_schemas({&whole, 1}, schema, rules.strict, json));
  const std::optional<std::string> why = json.grammar.why_nothing(parts.front());
  if (why.has_value()) return Error{ErrorCode::kInvalidArgument, *why};
  return parts.front();
}

Result<std::vector<Part>> add_json_schemas(std::span<const SchemaPlace> places,
                                           const TemplateJson& root, bool strict,
                                           const JsonParts& json) {
  return SchemaReader(root, strict, json).read(places);
}

}  // namespace stemma
