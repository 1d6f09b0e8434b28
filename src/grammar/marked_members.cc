#include "grammar/marked_members.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/schema_reference.h"
#include "grammar/schema_types.h"
#include "grammar/schema_words.h"
#include "model/json_text.h"

namespace stemma {
namespace {

using Json = TemplateJson;
using Part = ByteGrammar::Part;

constexpr int kReferencesMax = 16;  // that lead from one to the next
constexpr int kChoicesMax = 16;     // within each other

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

// The schema that a $ref alone stands for.
const Json& followed(const Json& schema, SchemaReferences& references) {
  const Json* at = &schema;
  for (int i = 0; i < kReferencesMax && at->is_object() && at->size() == 1; ++i) {
    const auto reference = at->find("$ref");
    if (reference == at->end()) break;
    const Result<const Json*> named = references.named_by(*reference);
    if (!named.ok()) break;
    at = *named;
  }
  return *at;
}

class MemberWriter {
 public:
  MemberWriter(const Json& root, const SchemaRules& rules, const MemberParts& parts)
      : root_(root),
        references_(root),
        types_(references_),
        rules_(rules),
        marks_(parts.marks),
        grammar_(parts.json.grammar),
        json_(parts.json),
        plain_(parts.plain) {}

  Result<Part> write() {
    STEMMA_RETURN_IF_ERROR(check_whole());
    const auto properties = root_.find("properties");
    if (properties == root_.end() || properties->empty()) return others();
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
    for (const auto& [word, value] : root_.items()) {
      const bool stands = is_among(word, kStandingWords) || word == "enum" || word == "const";
      if (stands || (rules_.strict && narrows(word, value))) {
        return unsupported(fmt::format("{}.{}", rules_.path, word),
                           "not supported of arguments that are written between marks");
      }
    }
    return {};
  }

  Status note(const std::string& name, const Json& property) {
    const std::string path = fmt::format("{}.properties.{}", rules_.path, printable(name));
    const Json& schema = followed(property, references_);
    const WordNames& types = types_.of(property);
    const bool has_json = types.contains("number") || types.contains("integer") ||
                          types.contains("object") || types.contains("array");
    if (is_free(schema) && (types.empty() || types.contains("string"))) {
      members_.push_back({name, Kind::kFree});
    } else if (types.contains("string") && !has_json) {
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

  Part value_of(const Member& member, const std::vector<Part>& texts,
                const std::vector<Part>& values) const {
    if (member.kind == Kind::kText) return texts[member.place];
    if (member.kind == Kind::kJson) return values[member.place];
    return plain_.string(0, std::nullopt);
  }

  Result<Part> in_order(const std::vector<Part>& texts, const std::vector<Part>& values) {
    WordNames required = names_of(root_.value("required", Json::array()));
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
    const auto allowed = root_.find("additionalProperties");
    const bool are_free = allowed == root_.end() || *allowed == true;
    const bool are_named = root_.contains("properties") || root_.contains("required");
    if (!are_free || are_named) return in_order({}, {});
    constexpr CharRange kName[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    const Part member = grammar_.rule(grammar_.sequence(
        {grammar_.text(marks_.name_begin), grammar_.repeated(grammar_.one_of(kName), 1, 64),
         grammar_.text(marks_.name_end), plain_.string(0, std::nullopt),
         grammar_.text(marks_.value_end)}));
    return grammar_.repeated(member, 0, std::nullopt);
  }

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

Result<ByteGrammar::Part> add_marked_members(const TemplateJson& schema, const SchemaRules& rules,
                                             const MemberParts& parts) {
  return MemberWriter(schema, rules, parts).write();
}

}  // namespace stemma
