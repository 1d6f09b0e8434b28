#include "grammar/schema_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/schema_items.h"
#include "grammar/schema_words.h"
#include "grammar/string_format.h"

namespace stemma {
namespace {

using Json = TemplateJson;

constexpr int kDepthMax = 64;

constexpr std::array kLeast = {"minimum", "exclusiveMinimum", "minLength", "minItems"};
constexpr std::array kMost = {"maximum", "exclusiveMaximum", "maxLength", "maxItems"};
// Of which two different ones have no schema together.
constexpr std::array kOneAlone = {"pattern", "multipleOf"};
// What is put together once the other words are.
constexpr std::array kLater = {"properties",  "additionalProperties", "required", "items",
                               "prefixItems", "additionalItems",      "enum",     "const"};

bool is_any(const Json& schema) {
  return schema == true || (schema.is_object() && schema.empty());
}

// What a schema says there; where it says nothing, that anything may be.
const Json& said(const Json& schema, const char* word) {
  static const Json kAnything = true;
  const auto found = schema.find(word);
  return found == schema.end() ? kAnything : *found;
}

bool is_below(const Json& a, const Json& b) {
  const auto of_a = a.get<double>();
  const auto of_b = b.get<double>();
  const bool are_exact = a.is_number_integer() && b.is_number_integer();
  return of_a == of_b && are_exact ? a < b : of_a < of_b;
}

// The members that a schema names, to be looked up.
class Members {
 public:
  explicit Members(const Json& schema) : others_(said(schema, "additionalProperties")) {
    const auto properties = schema.find("properties");
    if (properties == schema.end()) return;
    for (const auto& [name, member] : properties->get_ref<const Json::object_t&>()) {
      in_order_.emplace_back(name, &member);
      by_name_.emplace(name, &member);
    }
  }
  const std::vector<std::pair<std::string_view, const Json*>>& in_order() const {
    return in_order_;
  }
  bool names(std::string_view name) const { return by_name_.contains(name); }
  // What is said of a member of that name.
  const Json& of(std::string_view name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? others_ : *found->second;
  }

 private:
  const Json& others_;
  std::vector<std::pair<std::string_view, const Json*>> in_order_;
  std::unordered_map<std::string_view, const Json*> by_name_;
};

class SchemaMerger {
 public:
  SchemaMerger(SchemaReferences& references, const std::string& path, SchemaBudget& budget)
      : references_(references), path_(path), budget_(budget) {}

  Result<Json> merge(const Json& schema) {
    Json whole = without_forbidden(plain(schema, /*depth=*/0));
    if (!status_.ok()) return status_.error();
    return whole;
  }

 private:
  Json fail(ErrorCode code, std::string_view why) {
    if (status_.ok()) status_ = Error{code, fmt::format("{}: {}", path_, why)};
    return false;
  }
  Json wrong(std::string_view why) { return fail(ErrorCode::kInvalidArgument, why); }
  Json several(std::string_view word) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} of several schemas is not supported", word));
  }

  // A boolean, an object without what stands for others, or anyOf such ones.
  Json plain(const Json& schema, int depth) {
    if (schema.is_boolean()) return schema;
    if (!schema.is_object()) return wrong("must be an object or a boolean");
    if (!has_room(1 + schema.size())) return false;
    if (depth > kDepthMax) return wrong("schemas that stand for each other without an end");
    if (!is_readable(schema)) return false;
    Json own = words_of(schema);
    if (const auto target = schema.find("$ref"); target != schema.end()) {
      const auto named = references_.named_by(*target);
      if (!named.ok()) return fail(named.error().code, named.error().detail);
      own = both(std::move(own), plain(**named, depth + 1));
    }
    if (const auto all = schema.find("allOf"); all != schema.end()) {
      for (const Json& one : *all) own = both(std::move(own), plain(one, depth + 1));
    }
    for (const char* const word : {"anyOf", "oneOf"}) {
      const auto some = schema.find(word);
      if (some == schema.end()) continue;
      Json choices = Json::array();
      for (const Json& one : *some) add_choice(plain(one, depth + 1), choices);
      own = both(std::move(own), chosen(std::move(choices)));
    }
    return own;
  }

  // What it says itself.
  Json words_of(const Json& schema) {
    Json own = Json::object();
    for (const auto& [word, value] : schema.items()) {
      if (says_something(word) && has_room(value)) own[word] = value;
    }
    write_flags_as_bounds(own);
    return own;
  }
  // Of draft 4 and OpenAPI 3.0: a flag is of the bound beside it, not of one of another schema.
  static void write_flags_as_bounds(Json& own) {
    constexpr std::pair<const char*, const char*> kFlagged[] = {{"minimum", "exclusiveMinimum"},
                                                                {"maximum", "exclusiveMaximum"}};
    for (const auto& [bound, flag] : kFlagged) {
      const auto found = own.find(flag);
      if (found == own.end() || !found->is_boolean()) continue;
      const bool is_exclusive = found->get<bool>();
      own.erase(flag);
      if (!is_exclusive || !own.contains(bound)) continue;
      own[flag] = Json(own[bound]);
      own.erase(bound);
    }
  }

  // Whether words that are put together with others' are what they have to be.
  bool is_readable(const Json& schema) {
    const auto is_of = [&](const char* word, auto&& is_right, std::string_view what) {
      const auto found = schema.find(word);
      if (found == schema.end() || is_right(*found)) return true;
      wrong(fmt::format("{} must be {}", word, what));
      return false;
    };
    const auto is_object = [](const Json& value) { return value.is_object(); };
    const auto is_full_list = [](const Json& value) { return value.is_array() && !value.empty(); };
    const auto is_named = [](const Json& value) { return value.is_string() || is_names(value); };
    for (const char* const word : {"enum", "allOf", "anyOf", "oneOf"}) {
      if (!is_of(word, is_full_list, "a list of at least one")) return false;
    }
    if (const auto fault = fault_of_items(schema)) {
      wrong(fmt::format("{} {}", fault->word, fault->why));
      return false;
    }
    return is_of("properties", is_object, "an object") &&
           is_of("required", is_names, "a list of names") &&
           is_of("type", is_named, "a name or a list of names");
  }
  static bool is_names(const Json& list) {
    return list.is_array() &&
           std::all_of(list.begin(), list.end(), [](const Json& name) { return name.is_string(); });
  }

  // Whether so much more may be copied. Schemas that stand for two each, which stand for two each,
  // are soon too many to read.
  template <typename Copied>
  bool has_room(const Copied& copied) {
    if (!budget_.take(copied)) {
      fail(ErrorCode::kUnsupported, "so many schemas together are not supported");
    }
    return status_.ok();
  }

  void add_choice(Json one, Json& choices) {
    if (one == false) return;
    if (one.is_object() && one.contains("anyOf")) {
      for (Json& inner : one["anyOf"]) choices.push_back(std::move(inner));
    } else {
      choices.push_back(std::move(one));
    }
    if (choices.size() > kMergedChoicesMax) {
      fail(ErrorCode::kUnsupported, "too many schemas to choose from together");
    }
  }
  static Json chosen(Json choices) {
    if (choices.empty()) return false;
    if (choices.size() == 1) return std::move(choices[0]);
    return {{"anyOf", std::move(choices)}};
  }

  // What keeps to two plain ones.
  Json both(Json a, Json b) {
    if (!status_.ok() || a == false || b == false) return false;
    if (is_any(a)) return b;
    if (is_any(b)) return a;
    const bool first = a.contains("anyOf");
    if (!first && !b.contains("anyOf")) return merged(a, b);
    const Json& other = first ? b : a;
    Json choices = Json::array();
    for (Json& one : (first ? a : b)["anyOf"]) {
      if (!has_room(other)) return false;
      add_choice(first ? both(std::move(one), other) : both(other, std::move(one)), choices);
    }
    return chosen(std::move(choices));
  }

  // Of two without choices.
  Json merged(const Json& a, const Json& b) {
    if (!has_room(a) || !has_room(b)) return false;
    Json out = a;
    for (const auto& [word, value] : b.items()) {
      if (is_among(word, kLater)) continue;
      const auto there = out.find(word);
      if (there == out.end()) {
        out[word] = value;
      } else if (*there != value) {
        *there = word_of_both(word, *there, value);
      }
    }
    if (out.contains("type") && out["type"].empty()) return false;
    if (!merge_values(a, b, out)) return false;
    merge_items(a, b, out);
    merge_members(a, b, out);
    return out;
  }

  Json word_of_both(const std::string& word, const Json& a, const Json& b) {
    if (word == "type") return types_of_both(names_of(a), names_of(b));
    const bool numbers = a.is_number() && b.is_number();
    if (numbers && is_among(word, kLeast)) return is_below(a, b) ? b : a;
    if (numbers && is_among(word, kMost)) return is_below(a, b) ? a : b;
    if (word == "format") return format_of_both(a, b);
    if (word == "not") return {{"anyOf", Json::array({a, b})}};
    const bool is_bound = is_among(word, kLeast) || is_among(word, kMost);
    // Of words that are not kept to, one that narrows counts: it is refused, or passed over.
    if (is_among(word, kNarrowingWords) && !narrows(word, a)) return b;
    // A list of names is kept to, so the other one must not get lost.
    if (word == "propertyNames" && narrows(word, b)) return conjunction(a, b);
    return is_bound || is_among(word, kOneAlone) ? several(word) : a;
  }

  // Those that nobody knows only describe.
  Json format_of_both(const Json& a, const Json& b) {
    const auto is_known = [](const Json& format) {
      return format.is_string() &&
             !expression_of_format(format.get_ref<const std::string&>()).empty();
    };
    if (!is_known(b)) return a;
    return is_known(a) ? several("format") : b;
  }

  // Of enum and const: the values that both have, and that are of the type. False: none.
  static bool merge_values(const Json& a, const Json& b, Json& out) {
    std::optional<ListedValues> values = values_of(a);
    const std::optional<ListedValues> others = values_of(b);
    if (!values.has_value() && !others.has_value()) return true;
    if (!values.has_value()) values = others;
    ValueSet of_others;
    if (others.has_value()) of_others.insert(others->begin(), others->end());
    const WordNames types = names_of(out.value("type", Json()));
    Json kept = Json::array();
    for (const Json* const value : *values) {
      const bool is_others = !others.has_value() || of_others.contains(value);
      const bool is_typed = !out.contains("type") || is_of_types(*value, types);
      if (is_others && is_typed) kept.push_back(*value);
    }
    for (const char* const word : {"enum", "const", "type"}) out.erase(word);
    if (kept.empty()) return false;
    out["enum"] = std::move(kept);
    return true;
  }

  // What keeps to two schemas within these, that may be merged later.
  Json conjunction(const Json& a, const Json& b) {
    if (a == false || b == false || !has_room(a) || !has_room(b)) return false;
    if (is_any(b) || a == b) return a;
    if (is_any(a)) return b;
    return {{"allOf", Json::array({a, b})}};
  }

  // Items at places that either names, up to one that there cannot be, and those behind.
  void merge_items(const Json& a, const Json& b, Json& out) {
    const SchemaItems of_a = items_of(a);
    const SchemaItems of_b = items_of(b);
    const std::size_t places = std::max(of_a.own_items(), of_b.own_items());
    Json own = Json::array();
    while (own.size() < places) {
      Json one = conjunction(of_a.at(own.size()), of_b.at(own.size()));
      if (one == false) break;
      own.push_back(std::move(one));
    }
    Json others = own.size() < places ? Json(false) : conjunction(of_a.others(), of_b.others());
    const bool says_others = of_a.others_or_null != nullptr || of_b.others_or_null != nullptr;
    for (const char* const word : {"prefixItems", "items", "additionalItems"}) out.erase(word);
    if (!own.empty()) out["prefixItems"] = std::move(own);
    if (says_others || others == false) out["items"] = std::move(others);
  }

  // Members that either names, as far as the other lets them be, false where it does not; those
  // that must be there.
  void merge_members(const Json& a, const Json& b, Json& out) {
    merge_required(a, b, out);
    if (a.contains("additionalProperties") || b.contains("additionalProperties")) {
      out["additionalProperties"] =
          conjunction(said(a, "additionalProperties"), said(b, "additionalProperties"));
    }
    if (!a.contains("properties") && !b.contains("properties")) return;
    const Members of_a(a);
    const Members of_b(b);
    Json members = Json::object();
    auto& list = members.get_ref<Json::object_t&>();  // whose names are known to be different
    for (const auto& [name, schema] : of_a.in_order()) {
      list.emplace_back(name, conjunction(*schema, of_b.of(name)));
    }
    for (const auto& [name, schema] : of_b.in_order()) {
      if (!of_a.names(name)) list.emplace_back(name, conjunction(of_a.of(name), *schema));
    }
    out["properties"] = std::move(members);
  }
  static void merge_required(const Json& a, const Json& b, Json& out) {
    const auto others = b.find("required");
    if (others == b.end()) return;
    const Json own = a.value("required", Json::array());
    Json& all = out["required"];
    all = own;
    WordNames known = names_of(own);
    for (const Json& name : *others) {
      if (known.insert(name.get<std::string>()).second) all.push_back(name);
    }
  }

  // Members that may not be there need not be named where no others may be, but those that must.
  Json without_forbidden(Json schema) {
    if (!schema.is_object()) return schema;
    if (schema.contains("anyOf")) {
      for (Json& one : schema["anyOf"]) one = without_forbidden(std::move(one));
    }
    const bool others = schema.value("additionalProperties", Json(false)) != false;
    if (!schema.contains("properties") || others) return schema;
    const WordNames required = names_of(schema.value("required", Json()));
    Json kept = Json::object();
    auto& list = kept.get_ref<Json::object_t&>();
    for (auto& [name, member] : schema["properties"].get_ref<Json::object_t&>()) {
      if (member != false || required.contains(name)) list.emplace_back(name, std::move(member));
    }
    schema["properties"] = std::move(kept);
    return schema;
  }

  SchemaReferences& references_;
  const std::string& path_;
  SchemaBudget& budget_;
  Status status_;
};

}  // namespace

bool says_several(const Json& schema) {
  if (!schema.is_object()) return false;
  const auto all = schema.find("allOf");
  if (all != schema.end() && all->is_array() && all->size() > 1) return true;
  std::size_t words = 0;
  bool stands = false;
  for (const auto& [word, value] : schema.items()) {
    const bool is_standing = is_among(word, kStandingWords);
    stands = stands || is_standing;
    if (is_standing || says_something(word)) ++words;
  }
  return stands && words > 1;
}

Result<Json> merged_schema(const Json& schema, SchemaReferences& references,
                           const std::string& path, SchemaBudget& budget) {
  return SchemaMerger(references, path, budget).merge(schema);
}

}  // namespace stemma
