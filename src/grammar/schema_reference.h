// SchemaReference: what a $ref of a schema of JSON names, within the schema.
//
// Thread:     one thread.
// Memory:     an entry for each member of the objects that paths led through.
// Cost:       O(reference), and a look at all members of an object, once: no request can make many
//             references cost as much as the schema is wide.
// Not here:   references to other documents, and anchors.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "stemma/result.h"
#include "template/chat_template.h"

namespace stemma {

// Those within one schema.
class SchemaReferences {
 public:
  // `root` must outlive it, unchanged.
  explicit SchemaReferences(const TemplateJson& root) : root_(root) {}

  // What "#/..." names in the root: a JSON pointer as a fragment of a URI, so that %3C is a <;
  // where nothing has that name, as it is written. kInvalidArgument, kUnsupported: why there is
  // none, in words.
  Result<const TemplateJson*> named_by(const TemplateJson& reference);

  // The schema that one with nothing but a $ref stands for, in the end or kFollowedMax further on;
  // else itself.
  const TemplateJson& followed(const TemplateJson& schema);

 private:
  static constexpr int kFollowedMax = 16;
  Result<const TemplateJson*> at_path(const std::string& path, std::string_view target);
  const TemplateJson* child_or_null(const TemplateJson& of, const std::string& name);

  const TemplateJson& root_;
  using Members = std::unordered_map<std::string_view, const TemplateJson*>;
  std::unordered_map<const TemplateJson*, Members> members_;  // of objects
};

}  // namespace stemma
