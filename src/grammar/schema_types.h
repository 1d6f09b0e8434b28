// SchemaTypes: which types the values of schemas of JSON may have, as far as they say so.
//
// Thread:     one thread.
// Memory:     the names, for each schema that was looked at.
// Cost:       linear in all that is looked at: each schema once, however often others name it.
// Not here:   which values those are (json_schema).
#pragma once

#include <unordered_map>

#include "grammar/schema_reference.h"
#include "grammar/schema_words.h"
#include "template/chat_template.h"

namespace stemma {

class SchemaTypes {
 public:
  // Choices of choices and references to references beyond these are not followed.
  static constexpr int kDepthMax = 64;

  // `references`, within the root of the schemas, must outlive it.
  explicit SchemaTypes(SchemaReferences& references) : references_(references) {}

  // Types by their names, but "true" and "false" for "boolean": those that all agree on that say
  // any. Empty: none does, or only itself, or through too many others, so that any may come.
  // REQUIRES: the schema outlives this, unchanged.
  const WordNames& of(const TemplateJson& schema) { return said_of(schema).types; }

 private:
  struct Said {
    WordNames types;
    bool is_implied = false;  // by words of one type, which say nothing beside a type
  };

  const Said& said_of(const TemplateJson& schema);
  Said found_in(const TemplateJson& schema);
  Said said_by(std::string_view word, const TemplateJson& value);
  Said said_by_any(const TemplateJson& schemas);
  Said said_by_all(const TemplateJson& schemas);
  static void add(const Said& more, Said& all);

  SchemaReferences& references_;
  std::unordered_map<const TemplateJson*, Said> known_;  // nothing while one is looked at
  int depth_ = 0;
};

}  // namespace stemma
