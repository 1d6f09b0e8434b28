// SchemaItems: what a schema says of the items of a list: of the first ones each by itself, and of
// all behind them.
//
// Drafts say it in two ways: prefixItems and items, or, before 2020-12, a list in items and
// additionalItems, which says nothing where items is none.
//
// Thread:     pure functions.
// Memory:     none; the schema must outlive what is said of it.
// Cost:       none to speak of.
// Not here:   which lists those are (json_schema), what two schemas say together (schema_merge).
#pragma once

#include <cstddef>
#include <optional>

#include "template/chat_template.h"

namespace stemma {

struct SchemaItems {
  const TemplateJson* own_or_null = nullptr;  // a list of schemas, one an item
  const char* own_word = "prefixItems";       // under which it stands
  const TemplateJson* others_or_null = nullptr;
  const char* others_word = "items";

  std::size_t own_items() const { return own_or_null == nullptr ? 0 : own_or_null->size(); }
  // The schema of an item, and that of all behind those that have their own: true if none is said.
  const TemplateJson& at(std::size_t place) const;
  const TemplateJson& others() const;
};

// What is wrong with how a schema says it: a word, and what that must be.
struct FaultOfItems {
  const char* word;
  const char* why;
};
std::optional<FaultOfItems> fault_of_items(const TemplateJson& schema);

// REQUIRES: the schema is an object, and nothing is wrong with how it says it.
SchemaItems items_of(const TemplateJson& schema);

}  // namespace stemma
