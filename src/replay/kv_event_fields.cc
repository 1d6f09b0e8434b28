#include "replay/kv_event_fields.h"

#include <array>
#include <utility>

namespace stemma {

namespace {

// A field of a batch or an event: its name in an object, its place in an array.
struct Field {
  std::string_view name;
  std::size_t place = 0;
};
constexpr Field kTime = {"ts", 0};
constexpr Field kEvents = {"events", 1};
constexpr Field kType = {"type", 0};
constexpr Field kHashes = {"block_hashes", 1};
constexpr Field kParent = {"parent_block_hash", 2};
constexpr Field kTokens = {"token_ids", 3};
constexpr Field kPageTokens = {"block_size", 4};
constexpr Field kStoredMedium = {"medium", 6};
constexpr Field kRemovedMedium = {"medium", 2};
constexpr Field kStoredGroup = {"group_idx", 9};
constexpr Field kRemovedGroup = {"group_idx", 3};
constexpr std::int64_t kPageTokensMax = std::int64_t{1} << 20;

// The field's value; nullptr if it is absent or null.
const nlohmann::json* find_or_null(const nlohmann::json& value, Field field) {
  const nlohmann::json* found = nullptr;
  if (value.is_array()) {
    if (field.place < value.size()) found = &value[field.place];
  } else if (const auto named = value.find(field.name); named != value.end()) {
    found = &*named;
  }
  return found == nullptr || found->is_null() ? nullptr : found;
}

bool is_of_device(const nlohmann::json& event, Field medium, Field group) {
  const nlohmann::json* medium_or_null = find_or_null(event, medium);
  const nlohmann::json* group_or_null = find_or_null(event, group);
  return (medium_or_null == nullptr || *medium_or_null == "GPU") &&
         (group_or_null == nullptr || *group_or_null == 0);
}

// Where an event stands: "events[3]." before the names of its fields.
struct EventPlace {
  std::string_view where;
  std::string path;
  std::string name(Field field) const { return path + std::string(field.name); }
};

Result<std::int64_t> read_page_tokens(const nlohmann::json& event, const EventPlace& place,
                                      std::int64_t said_before) {
  const nlohmann::json* field = find_or_null(event, kPageTokens);
  if (field == nullptr || !field->is_number_unsigned() || *field < 1 || *field > kPageTokensMax) {
    return wrong_trace_field(place.where, place.name(kPageTokens), "a number of tokens is wanted");
  }
  const auto page_tokens = field->get<std::int64_t>();
  if (said_before != 0 && page_tokens != said_before) {
    return wrong_trace_field(place.where, place.name(kPageTokens),
                             std::to_string(page_tokens) + " after " + std::to_string(said_before));
  }
  return page_tokens;
}

// A server may leave token_ids out; where they are, they fill the pages exactly.
Status check_tokens(const nlohmann::json& event, const EventPlace& place, std::size_t pages,
                    std::int64_t page_tokens) {
  const nlohmann::json* field = find_or_null(event, kTokens);
  if (field == nullptr) return {};
  if (!field->is_array()) {
    return wrong_trace_field(place.where, place.name(kTokens), "an array is wanted");
  }
  const std::size_t wanted = pages * static_cast<std::size_t>(page_tokens);
  if (!field->empty() && field->size() != wanted) {
    return wrong_trace_field(
        place.where, place.name(kTokens),
        std::to_string(field->size()) + " tokens for " + std::to_string(wanted) + " places");
  }
  return {};
}

Result<KvEvent> read_stored(const nlohmann::json& event, const EventPlace& place,
                            std::int64_t& page_tokens) {
  KvEvent stored;
  if (!is_of_device(event, kStoredMedium, kStoredGroup)) return stored;
  stored.kind = KvEvent::Kind::kStored;
  STEMMA_ASSIGN_OR_RETURN(
      stored.hashes, read_trace_hashes(find_or_null(event, kHashes), HashForms::kIntegersAndTexts,
                                       place.where, place.name(kHashes)));
  if (const nlohmann::json* parent = find_or_null(event, kParent); parent != nullptr) {
    STEMMA_ASSIGN_OR_RETURN(stored.parent, read_trace_hash(*parent, HashForms::kIntegersAndTexts,
                                                           place.where, place.name(kParent)));
  }
  STEMMA_ASSIGN_OR_RETURN(page_tokens, read_page_tokens(event, place, page_tokens));
  STEMMA_RETURN_IF_ERROR(check_tokens(event, place, stored.hashes.size(), page_tokens));
  return stored;
}

Result<KvEvent> read_removed(const nlohmann::json& event, const EventPlace& place) {
  KvEvent removed;
  if (!is_of_device(event, kRemovedMedium, kRemovedGroup)) return removed;
  removed.kind = KvEvent::Kind::kRemoved;
  STEMMA_ASSIGN_OR_RETURN(
      removed.hashes, read_trace_hashes(find_or_null(event, kHashes), HashForms::kIntegersAndTexts,
                                        place.where, place.name(kHashes)));
  return removed;
}

Result<KvEvent> read_event(const nlohmann::json& event, const EventPlace& place,
                           std::int64_t& page_tokens) {
  if (!event.is_object() && !event.is_array()) {
    return wrong_trace_field(place.where, place.path.substr(0, place.path.size() - 1),
                             "an object or an array is wanted");
  }
  const nlohmann::json* type = find_or_null(event, kType);
  if (type == nullptr || !type->is_string()) {
    return wrong_trace_field(place.where, place.name(kType), "the event's name is wanted");
  }
  if (*type == "BlockStored") return read_stored(event, place, page_tokens);
  if (*type == "BlockRemoved") return read_removed(event, place);
  KvEvent other;
  if (*type == "AllBlocksCleared") other.kind = KvEvent::Kind::kCleared;
  return other;
}

}  // namespace

Result<KvEventBatch> read_kv_event_batch(const nlohmann::json& batch, std::string_view where,
                                         std::int64_t& page_tokens) {
  if (!batch.is_object() && !batch.is_array()) {
    return wrong_trace_field(where, "batch", "an object or an array is wanted");
  }
  KvEventBatch read;
  STEMMA_ASSIGN_OR_RETURN(read.time_ms,
                          read_trace_time_ms(find_or_null(batch, kTime), 1000, where, kTime.name));
  const nlohmann::json* events = find_or_null(batch, kEvents);
  if (events == nullptr || !events->is_array()) {
    return wrong_trace_field(where, kEvents.name, "an array is wanted");
  }
  std::int64_t tokens = page_tokens;
  for (const nlohmann::json& event : *events) {
    const EventPlace place{where, "events[" + std::to_string(read.events.size()) + "]."};
    STEMMA_ASSIGN_OR_RETURN(KvEvent one, read_event(event, place, tokens));
    read.events.push_back(std::move(one));
  }
  page_tokens = tokens;
  return read;
}

}  // namespace stemma
