#include "template/arena.h"

#include <algorithm>
#include <utility>

namespace stemma::jinja {
namespace {

// Deeper or heavier values are refused when they are made, so that every walk over a value is
// bounded.
constexpr std::int32_t kDepthMax = 100;
constexpr std::int64_t kWeightMax = 1 << 22;

std::int32_t depth_of(const Value& value) {
  if (value.is_sequence()) return value.list().depth;
  return value.is(Kind::kMapping) ? value.mapping().depth : 0;
}

std::int64_t weight_of(const Value& value) {
  if (value.is_sequence()) return value.list().weight;
  return value.is(Kind::kMapping) ? value.mapping().weight : 1;
}

}  // namespace

void Arena::exceed(std::string_view what) {
  if (exceeded_.empty()) exceeded_ = what;
}

void Arena::charge_bytes(std::size_t bytes) {
  if (bytes > bytes_left()) {
    exceed("memory for values");
    return;
  }
  used_bytes_ += bytes;
}

void Arena::charge_steps(std::int64_t steps) {
  if (steps > limits_.steps_max - used_steps_) {
    exceed("steps");
    return;
  }
  used_steps_ += steps;
}

Value Arena::text(std::string text) {
  charge_bytes(sizeof(std::string) + text.size());
  if (!exceeded_.empty()) return Value::text({});
  return Value::text(texts_.emplace_back(std::move(text)));
}

Value Arena::sequence(Kind kind, std::vector<Value> items) {
  charge_bytes(sizeof(List) + items.size() * sizeof(Value));
  List list{std::move(items)};
  for (const Value& item : list.items) {
    list.depth = std::max(list.depth, 1 + depth_of(item));
    list.weight = std::min(kWeightMax + 1, list.weight + weight_of(item));
  }
  if (list.depth > kDepthMax || list.weight > kWeightMax) exceed("depth or size of one value");
  if (!exceeded_.empty()) list = List{};
  return Value::sequence(kind, &lists_.emplace_back(std::move(list)));
}

Value Arena::mapping(std::span<const NamedValue> named) {
  std::vector<MappingEntry> entries;
  entries.reserve(named.size());
  for (const auto& [name, value] : named) entries.push_back({Value::text(name), value});
  return mapping(std::move(entries));
}

Value Arena::mapping(std::vector<MappingEntry> entries) {
  charge_bytes(sizeof(Mapping) + entries.size() * sizeof(MappingEntry));
  Mapping mapping{std::move(entries)};
  for (const MappingEntry& entry : mapping.entries) {
    mapping.depth = std::max(mapping.depth, 1 + depth_of(entry.value));
    mapping.weight = std::min(kWeightMax + 1, mapping.weight + weight_of(entry.value));
  }
  if (mapping.depth > kDepthMax || mapping.weight > kWeightMax) {
    exceed("depth or size of one value");
  }
  if (!exceeded_.empty()) mapping = Mapping{};
  return Value::mapping(&mappings_.emplace_back(std::move(mapping)));
}

Namespace* Arena::name_space() {
  charge_bytes(sizeof(Namespace));
  return &namespaces_.emplace_back();
}

Loop* Arena::loop(std::span<const Value> items) {
  charge_bytes(sizeof(Loop));
  return &loops_.emplace_back(Loop{items});
}

const Macro* Arena::macro(const Macro& macro) {
  charge_bytes(sizeof(Macro));
  return &macros_.emplace_back(macro);
}

void TextBuilder::append(std::string_view part) {
  if (part.size() > arena_.bytes_left() || text_.size() > arena_.bytes_left() - part.size()) {
    arena_.charge_bytes(arena_.bytes_left() + 1);
    return;
  }
  text_ += part;
}

Value TextBuilder::finish() {
  return arena_.text(std::move(text_));
}

}  // namespace stemma::jinja
