// SchemaReference: what a $ref of a schema of JSON names, within the schema.
//
// Thread:     pure function.
// Memory:     the reference, decoded.
// Cost:       a look-up for each name of its path.
// Not here:   references to other documents, and anchors.
#pragma once

#include "stemma/result.h"
#include "template/chat_template.h"

namespace stemma {

// What "#/..." names in `root`: a JSON pointer as a fragment of a URI, so that %3C is a <; where
// nothing has that name, as it is written. kInvalidArgument, kUnsupported: why there is none, in
// words.
Result<const TemplateJson*> schema_of_reference(const TemplateJson& reference,
                                                const TemplateJson& root);

}  // namespace stemma
