#include "grammar/schema_budget.h"

#include <string>

namespace stemma {

SchemaBudget::SchemaBudget(const TemplateJson& root)
    : units_(kUnitsMin + kTimes * units_of(root)), left_(units_) {}

bool SchemaBudget::take(std::size_t units) {
  const bool is_left = units <= left_;
  left_ -= is_left ? units : left_;
  return is_left;
}

std::size_t SchemaBudget::units_of(const TemplateJson& json) {
  std::size_t units = 1;
  if (json.is_string()) units += json.get_ref<const std::string&>().size() / kTextBytes;
  if (json.is_array()) {
    for (const TemplateJson& inner : json) units += units_of(inner);
  }
  if (json.is_object()) {
    for (const auto& [name, inner] : json.get_ref<const TemplateJson::object_t&>()) {
      units += name.size() / kTextBytes + units_of(inner);
    }
  }
  return units;
}

}  // namespace stemma
