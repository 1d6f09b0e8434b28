// SchemaTypes: which types the values of a schema of JSON may have, as far as it says so.
//
// Thread:     pure function.
// Memory:     the names.
// Cost:       O(schemas that it stands for), a few hundred at most.
// Not here:   which values those are (json_schema).
#pragma once

#include "grammar/schema_words.h"
#include "template/chat_template.h"

namespace stemma {

// Types by their names; empty: it does not say, or in too many words, so that any may come.
// References are within `root`.
WordNames types_of_schema(const TemplateJson& schema, const TemplateJson& root);

}  // namespace stemma
