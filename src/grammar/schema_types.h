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

  // Types by their names; empty: it does not say, or says it of itself, or through too many others,
  // so that any may come. REQUIRES: the schema outlives this, unchanged.
  const WordNames& of(const TemplateJson& schema);

 private:
  WordNames found_in(const TemplateJson& schema);
  WordNames said_by(std::string_view word, const TemplateJson& value);
  WordNames of_any(const TemplateJson& schemas);
  WordNames of_all(const TemplateJson& schemas);

  SchemaReferences& references_;
  std::unordered_map<const TemplateJson*, WordNames> known_;  // none while one is looked at
  int depth_ = 0;
};

}  // namespace stemma
