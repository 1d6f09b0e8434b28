#include "grammar/marked_members.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "base/json_text.h"
#include "grammar/schema_budget.h"
#include "grammar/schema_merge.h"
#include "grammar/schema_reference.h"
#include "grammar/schema_types.h"
#include "grammar/schema_words.h"

namespace stemma {
namespace {

using Json = TemplateJson;
using Part = ByteGrammar::Part;

constexpr int kChoicesMax = 16;  // within each other

constexpr std::string_view kNoName = "<>\n";
constexpr std::string_view kSpace = " \t\r\n";

Error unsupported(const std::string& path, std::string_view why) {
  return {ErrorCode::kUnsupported, fmt::format("{}: {}", path, why)};
}

// Whether any text is right: beside strings only types of which the schema says no more.
bool is_free(const Json& schema, int depth = 0) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (!schema.is_object() || depth > kChoicesMax) return false;
  for (const auto& [word, value] : schema.items()) {
    const bool is_free_here =
        word == "anyOf" || word == "oneOf"
            ? value.is_array() &&
                  std::all_of(value.begin(), value.end(),
                              [&](const Json& one) { return is_free(one, depth + 1); })
            : word == "type" || !(says_something(word) || is_among(word, kStandingWords));
    if (!is_free_here) return false;
  }
  return true;
}

// Whether a text that may be a string may be read as something else.
bool may_be_other(const std::string& text) {
  constexpr std::string_view kWords[] = {"true", "false", "null", "none"};
  const bool is_word =
      std::any_of(std::begin(kWords), std::end(kWords),
                  [&](std::string_view word) { return equals_ignoring_case(text, word); });
  return is_word || Json::accept(text);
}

// `whole` says what the members are; what it names is in `root`.
class MemberWriter {
 public:
  MemberWriter(const Json& whole, const Json& root, const SchemaRules& rules,
               const MemberParts& parts)
      : whole_(whole),
        root_(root),
        references_(root),
        types_(references_),
        rules_(rules),
        marks_(parts.marks),
        grammar_(parts.json.grammar),
        json_(parts.json),
        plain_(parts.plain) {}

  Result<Part> write() {
    STEMMA_RETURN_IF_ERROR(check_whole());
    const auto properties = whole_.find("properties");
    if (properties == whole_.end() || properties->empty()) return others();
    if (!properties->is_object()) {
      return Error{ErrorCode::kInvalidArgument, rules_.path + ".properties: must be an object"};
    }
    for (const auto& [name, schema] : properties->items()) {
      STEMMA_RETURN_IF_ERROR(note(name, schema));
    }
    STEMMA_ASSIGN_OR_RETURN(const std::vector<Part> texts,
                            add_json_schemas(text_places_, root_, rules_.strict, plain_));
    STEMMA_ASSIGN_OR_RETURN(const std::vector<Part> values,
                            add_json_schemas(json_places_, root_, rules_.strict, json_));
    return in_order(texts, values);
  }

 private:
  enum class Kind { kFree, kText, kJson };
  struct Member {
    std::string name;
    Kind kind;
    std::size_t place = 0;  // in the list of its kind
  };

  // Of the whole, words that say something of members alone.
  Status check_whole() const {
    for (const auto& [word, value] : whole_.items()) {
      const bool has_values = word == "enum" || word == "const";
      if (has_values || (rules_.strict && (word == "not" || narrows(word, value)))) {
        return unsupported(fmt::format("{}.{}", rules_.path, word),
                           "not supported of arguments that are written between marks");
      }
    }
    return {};
  }

  Status note(const std::string& name, const Json& property) {
    const std::string path = fmt::format("{}.properties.{}", rules_.path, printable(name));
    if (!is_marked_name(name)) {
      return unsupported(path, "this name cannot be written as the model calls");
    }
    const Json& schema = references_.followed(property);
    const WordNames& types = types_.of(property);
    const bool has_json = types.contains("number") || types.contains("integer") ||
                          types.contains("object") || types.contains("array");
    if (is_free(schema) && (types.empty() || types.contains("string"))) {
      members_.push_back({name, Kind::kFree});
    } else if (types.contains("string") && (!has_json || lists_strings(schema))) {
      members_.push_back({name, Kind::kText, text_places_.size()});
      text_places_.push_back({&schema, path});
    } else if (!types.empty() && !types.contains("string")) {
      members_.push_back({name, Kind::kJson, json_places_.size()});
      json_places_.push_back({&schema, path});
    } else if (schema == false || !rules_.strict) {
      if (schema != false) members_.push_back({name, Kind::kFree});
    } else {
      return unsupported(path, "a text that may be this is not supported");
    }
    return {};
  }

  // Whether a value that may be a string is one of a list, none of which may be read otherwise, and
  // else neither an object nor an array.
  bool lists_strings(const Json& schema, int depth = 0) {
    const Json& at = references_.followed(schema);
    if (!at.is_object() || depth > kChoicesMax) return false;
    for (const char* const word : {"anyOf", "oneOf"}) {
      const auto some = at.find(word);
      if (some == at.end()) continue;
      return std::all_of(some->begin(), some->end(),
                         [&](const Json& one) { return lists_strings(one, depth + 1); });
    }
    if (at.contains("enum") || at.contains("const")) {
      const Json values = at.value("enum", Json::array({at.value("const", Json())}));
      return std::all_of(values.begin(), values.end(), [](const Json& value) {
        const bool is_text = value.is_string() && !may_be_other(value.get<std::string>());
        return is_text || !(value.is_string() || value.is_structured());
      });
    }
    const WordNames& types = types_.of(at);
    const auto is_none = [&](const char* type) { return !types.contains(type); };
    return !types.empty() && is_none("string") && is_none("object") && is_none("array");
  }

  Part value_of(const Member& member, const std::vector<Part>& texts,
                const std::vector<Part>& values) const {
    if (member.kind == Kind::kText) return texts[member.place];
    if (member.kind == Kind::kJson) return values[member.place];
    return plain_.string(0, std::nullopt);
  }

  Result<Part> in_order(const std::vector<Part>& texts, const std::vector<Part>& values) {
    WordNames required = names_of(whole_.value("required", Json::array()));
    std::vector<Part> parts;
    for (const Member& member : members_) {
      const Part part =
          grammar_.sequence({grammar_.text(marks_.name_begin), grammar_.text(member.name),
                             grammar_.text(marks_.name_end), value_of(member, texts, values),
                             grammar_.text(marks_.value_end)});
      const bool is_required = required.erase(member.name) > 0;
      parts.push_back(is_required ? part : grammar_.optional(part));
    }
    if (!required.empty()) {
      return unsupported(rules_.path + ".required",
                         fmt::format("\"{}\" is no property", printable(*required.begin())));
    }
    const Part whole = grammar_.rule(grammar_.sequence(std::move(parts)));
    const std::optional<std::string> why = grammar_.why_nothing(whole);
    if (why.has_value()) return Error{ErrorCode::kInvalidArgument, *why};
    return whole;
  }

  // Members of any names.
  Result<Part> others() {
    const auto allowed = whole_.find("additionalProperties");
    const bool are_free = allowed == whole_.end() || *allowed == true;
    const bool are_named = whole_.contains("properties") || whole_.contains("required");
    if (!are_free || are_named) return in_order({}, {});
    constexpr CharRange kName[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    const Part member = grammar_.rule(grammar_.sequence(
        {grammar_.text(marks_.name_begin), grammar_.repeated(grammar_.one_of(kName), 1, 64),
         grammar_.text(marks_.name_end), plain_.string(0, std::nullopt),
         grammar_.text(marks_.value_end)}));
    return grammar_.repeated(member, 0, std::nullopt);
  }

  const Json& whole_;
  const Json& root_;
  SchemaReferences references_;
  SchemaTypes types_;
  const SchemaRules& rules_;
  const MemberMarks& marks_;
  ByteGrammar& grammar_;
  const JsonParts& json_;
  const JsonParts& plain_;
  std::vector<Member> members_;
  std::vector<SchemaPlace> text_places_;
  std::vector<SchemaPlace> json_places_;
};

}  // namespace

bool is_marked_name(std::string_view name) {
  return !name.empty() && name.size() <= kMarkedNameBytesMax &&
         name.find_first_of(kNoName) == name.npos && kSpace.find(name.front()) == kSpace.npos &&
         kSpace.find(name.back()) == kSpace.npos;
}

Result<std::vector<TemplateJson>> member_schemas(const TemplateJson& schema,
                                                 const std::string& path) {
  std::vector<TemplateJson> schemas;
  const bool stands = std::any_of(kStandingWords.begin(), kStandingWords.end(),
                                  [&](const char* word) { return schema.contains(word); });
  if (!stands) {
    schemas.push_back(schema);
    return schemas;
  }
  SchemaReferences references(schema);
  SchemaBudget budget(schema);
  STEMMA_ASSIGN_OR_RETURN(Json merged, merged_schema(schema, references, path, budget));
  if (merged.is_object() && merged.contains("anyOf")) {
    for (Json& one : merged["anyOf"]) schemas.push_back(std::move(one));
  } else if (merged != false) {
    schemas.push_back(merged == true ? Json::object() : std::move(merged));
  }
  return schemas;
}

Result<ByteGrammar::Part> add_marked_members(const TemplateJson& schema, const SchemaRules& rules,
                                             const MemberParts& parts) {
  STEMMA_ASSIGN_OR_RETURN(const std::vector<Json> schemas, member_schemas(schema, rules.path));
  if (schemas.empty()) {
    return Error{ErrorCode::kInvalidArgument, rules.path + ": nothing keeps to all that it says"};
  }
  std::vector<Part> ways;
  for (const Json& one : schemas) {
    STEMMA_ASSIGN_OR_RETURN(const Part way, MemberWriter(one, schema, rules, parts).write());
    ways.push_back(way);
  }
  return ways.size() == 1 ? ways.front() : parts.json.grammar.either(std::move(ways));
}

}  // namespace stemma
