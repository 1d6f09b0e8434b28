#include "grammar/schema_items.h"

namespace stemma {
namespace {

using Json = TemplateJson;

const Json* word_or_null(const Json& schema, const char* word) {
  const auto found = schema.find(word);
  return found == schema.end() ? nullptr : &*found;
}

}  // namespace

const Json& SchemaItems::at(std::size_t place) const {
  return place < own_items() ? (*own_or_null)[place] : others();
}

const Json& SchemaItems::others() const {
  static const Json kAnything = true;
  return others_or_null == nullptr ? kAnything : *others_or_null;
}

std::optional<FaultOfItems> fault_of_items(const Json& schema) {
  const Json* const prefix = word_or_null(schema, "prefixItems");
  const Json* const items = word_or_null(schema, "items");
  if (prefix != nullptr && !prefix->is_array())
    return FaultOfItems{"prefixItems", "must be a list"};
  if (items == nullptr || !items->is_array()) return std::nullopt;
  if (prefix != nullptr) return FaultOfItems{"items", "must be a schema beside prefixItems"};
  if (!items->empty()) return std::nullopt;
  return FaultOfItems{"items", "must be a schema or a list of at least one"};
}

SchemaItems items_of(const Json& schema) {
  const Json* const items = word_or_null(schema, "items");
  if (items != nullptr && items->is_array()) {
    return {.own_or_null = items,
            .own_word = "items",
            .others_or_null = word_or_null(schema, "additionalItems"),
            .others_word = "additionalItems"};
  }
  return {.own_or_null = word_or_null(schema, "prefixItems"), .others_or_null = items};
}

}  // namespace stemma
