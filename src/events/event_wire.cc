// Writing builds the library's tree of values and hands it over; reading first walks the bytes for
// their depth, because the library descends by recursion, then reads the values by name or place.
#include "events/event_wire.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/digest.h"
#include "base/json_text.h"
#include "base/math.h"

namespace stemma {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kStored = "BlockStored";
constexpr std::string_view kRemoved = "BlockRemoved";
constexpr std::string_view kCleared = "AllBlocksCleared";
// A hash takes 34 bytes at most. What stands around hashes and tokens takes 231, names and digest
// included, or 73 without them, and the medium and the adapter's name.
constexpr std::int64_t kPlacesOfHash = 8;
constexpr std::int64_t kPlacesByName = 47;
constexpr std::int64_t kPlacesByPosition = 15;

std::int64_t places_of_text(std::string_view text) {
  return ceil_div(std::ssize(text), std::ptrdiff_t{5});
}

std::int64_t event_places(const EventWireOptions& options) {
  const bool by_name = options.form == EventForm::kByName;
  return (by_name ? kPlacesByName : kPlacesByPosition) + places_of_text(options.medium);
}

Json hash_value(const EventHash& hash, HashForm form) {
  switch (form) {
    case HashForm::kUnsigned:
      return hash.number();
    case HashForm::kSigned:
      return static_cast<std::int64_t>(hash.number());
    case HashForm::kBytes:
      break;
  }
  return Json::binary({hash.bytes().begin(), hash.bytes().end()});
}

Json hash_values(std::span<const PageKey> keys, HashForm form) {
  Json values = Json::array();
  for (const PageKey& key : keys) values.push_back(hash_value(EventHash::of(key, form), form));
  return values;
}

}  // namespace

struct EventWriter::Events {
  Json list = Json::array();
};

EventWriter::EventWriter(const EventWireOptions& options)
    : options_(options),
      event_places_(event_places(options)),
      events_(std::make_unique<Events>()) {}

EventWriter::~EventWriter() = default;

void EventWriter::add(const PrefixEvent& event) {
  const bool by_name = options_.form == EventForm::kByName;
  places_ += event_places_;
  switch (event.kind) {
    case PrefixEvent::Kind::kCleared:
      events_->list.push_back(by_name ? Json{{"type", kCleared}} : Json::array({kCleared}));
      return;
    case PrefixEvent::Kind::kStored:
      return add_stored(event);
    case PrefixEvent::Kind::kRemoved:
      places_ += std::ssize(event.keys) * kPlacesOfHash;
      Json hashes = hash_values(event.keys, options_.hashes);
      events_->list.push_back(by_name
                                  ? Json{{"type", kRemoved},
                                         {"block_hashes", std::move(hashes)},
                                         {"medium", options_.medium}}
                                  : Json::array({kRemoved, std::move(hashes), options_.medium}));
      return;
  }
}

void EventWriter::add_stored(const PrefixEvent& event) {
  STEMMA_CHECK(!event.keys.empty() && event.tokens.size() % event.keys.size() == 0,
               "what is stored is whole pages");
  const auto page_size = static_cast<std::int64_t>(event.tokens.size() / event.keys.size());
  places_ += std::ssize(event.tokens) + std::ssize(event.keys) * kPlacesOfHash +
             places_of_text(event.adapter);
  Json hashes = hash_values(event.keys, options_.hashes);
  Json parent = nullptr;
  if (event.parent.has_value()) {
    parent = hash_value(EventHash::of(*event.parent, options_.hashes), options_.hashes);
  }
  Json tokens = Json::array();
  for (const TokenId token : event.tokens) tokens.push_back(token);
  Json adapter = nullptr;
  if (!event.adapter.empty()) adapter = event.adapter;
  if (options_.form == EventForm::kByName) {
    events_->list.push_back({{"type", kStored},
                             {"block_hashes", std::move(hashes)},
                             {"parent_block_hash", std::move(parent)},
                             {"token_ids", std::move(tokens)},
                             {"block_size", page_size},
                             {"lora_id", nullptr},
                             {"medium", options_.medium},
                             {"lora_name", std::move(adapter)},
                             {"namespace", to_hex(event.digest.bytes)}});
  } else {
    events_->list.push_back(Json::array({kStored, std::move(hashes), std::move(parent),
                                         std::move(tokens), page_size, nullptr, options_.medium}));
    if (!adapter.is_null()) events_->list.back().push_back(std::move(adapter));
  }
}

std::vector<std::uint8_t> EventWriter::finish(double seconds) {
  places_ = 0;
  return Json::to_msgpack(Json::array(
      {seconds, std::exchange(events_->list, Json::array()), options_.data_parallel_rank}));
}

namespace {

// Events nest five deep, and unknown fields may a little.
constexpr JsonLimits kWireLimits = {
    .text_bytes_max = kEventBatchBytesMax, .depth_max = 16, .names_repeat = true};
constexpr std::int64_t kPageSizeMax = std::int64_t{1} << 20;

// A field of an event: its name in the one form, its place in the other.
struct Field {
  const char* name;
  std::size_t place;
};
constexpr Field kType = {"type", 0};
constexpr Field kHashes = {"block_hashes", 1};
constexpr Field kParent = {"parent_block_hash", 2};
constexpr Field kTokens = {"token_ids", 3};
constexpr Field kPageSize = {"block_size", 4};
constexpr Field kStoredMedium = {"medium", 6};
constexpr Field kRemovedMedium = {"medium", 2};
constexpr Field kStoredGroup = {"group_idx", 9};
constexpr Field kRemovedGroup = {"group_idx", 3};
constexpr Field kSeconds = {"ts", 0};
constexpr Field kEvents = {"events", 1};
constexpr Field kRank = {"data_parallel_rank", 2};

// nullptr if it is absent or nil.
const Json* find_or_null(const Json& value, Field field) {
  const Json* found = nullptr;
  if (value.is_array()) {
    if (field.place < value.size()) found = &value[field.place];
  } else if (const auto named = value.find(field.name); named != value.end()) {
    found = &*named;
  }
  return found == nullptr || found->is_null() ? nullptr : found;
}

Error wrong(Field field, std::string_view what) {
  return {ErrorCode::kCorrupt,
          std::string("event batch: ") + field.name + ": " + std::string(what)};
}

Result<EventHash> read_hash(const Json& value, Field field) {
  if (value.is_number_unsigned()) return EventHash::of(value.get<std::uint64_t>());
  if (value.is_number_integer()) {
    return EventHash::of(static_cast<std::uint64_t>(value.get<std::int64_t>()));
  }
  if (!value.is_binary()) return wrong(field, "a hash is a number or bytes");
  const std::optional<EventHash> hash = EventHash::try_of(value.get_binary());
  if (!hash.has_value()) return wrong(field, "a hash has 1 to 32 bytes");
  return *hash;
}

Status read_hashes(const Json& event, std::vector<EventHash>& hashes) {
  const Json* field = find_or_null(event, kHashes);
  if (field == nullptr || !field->is_array()) return wrong(kHashes, "an array is wanted");
  hashes.reserve(field->size());
  for (const Json& value : *field) {
    STEMMA_ASSIGN_OR_RETURN(const EventHash hash, read_hash(value, kHashes));
    hashes.push_back(hash);
  }
  return {};
}

// What says nothing leaves `target` as it is.
Status read_text(const Json& event, Field field, std::string& target) {
  const Json* value = find_or_null(event, field);
  if (value == nullptr) return {};
  if (!value->is_string()) return wrong(field, "a text is wanted");
  target = value->get<std::string>();
  return {};
}

Status read_number(const Json& event, Field field, std::int64_t& target) {
  const Json* value = find_or_null(event, field);
  if (value == nullptr) return {};
  if (!value->is_number_integer() ||
      (value->is_number_unsigned() &&
       value->get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())) {
    return wrong(field, "a whole number is wanted");
  }
  target = value->get<std::int64_t>();
  return {};
}

// A server may leave tokens out; where they are, they fill the pages exactly.
Status read_tokens(const Json& event, WireEvent& stored) {
  const Json* field = find_or_null(event, kTokens);
  if (field == nullptr) return {};
  if (!field->is_array()) return wrong(kTokens, "an array is wanted");
  if (field->empty()) return {};
  if (field->size() != stored.hashes.size() * static_cast<std::size_t>(stored.page_size)) {
    return wrong(kTokens, "not as many as the pages have");
  }
  stored.tokens.reserve(field->size());
  for (const Json& value : *field) {
    if (!value.is_number_unsigned() ||
        value.get<std::uint64_t>() > std::numeric_limits<TokenId>::max()) {
      return wrong(kTokens, "a token is a number of 31 bits");
    }
    stored.tokens.push_back(value.get<TokenId>());
  }
  return {};
}

Status read_stored(const Json& event, WireEvent& stored) {
  stored.kind = WireEvent::Kind::kStored;
  STEMMA_RETURN_IF_ERROR(read_hashes(event, stored.hashes));
  if (const Json* parent = find_or_null(event, kParent); parent != nullptr) {
    STEMMA_ASSIGN_OR_RETURN(stored.parent, read_hash(*parent, kParent));
  }
  STEMMA_RETURN_IF_ERROR(read_number(event, kPageSize, stored.page_size));
  if (stored.page_size < 1 || stored.page_size > kPageSizeMax) {
    return wrong(kPageSize, "1 to 1048576 tokens are wanted");
  }
  STEMMA_RETURN_IF_ERROR(read_tokens(event, stored));
  STEMMA_RETURN_IF_ERROR(read_text(event, kStoredMedium, stored.medium));
  STEMMA_RETURN_IF_ERROR(read_number(event, kStoredGroup, stored.group));
  if (event.is_array()) return {};
  STEMMA_RETURN_IF_ERROR(read_text(event, {"lora_name", 0}, stored.adapter));
  return read_text(event, {"namespace", 0}, stored.namespace_digest);
}

Status read_removed(const Json& event, WireEvent& removed) {
  removed.kind = WireEvent::Kind::kRemoved;
  STEMMA_RETURN_IF_ERROR(read_hashes(event, removed.hashes));
  STEMMA_RETURN_IF_ERROR(read_text(event, kRemovedMedium, removed.medium));
  return read_number(event, kRemovedGroup, removed.group);
}

Result<WireEvent> read_event(const Json& event) {
  if (!event.is_array() && !event.is_object()) return wrong(kEvents, "an event has fields");
  const Json* type = find_or_null(event, kType);
  if (type == nullptr || !type->is_string()) return wrong(kType, "an event's name is wanted");
  const auto& name = type->get_ref<const std::string&>();
  WireEvent read;
  if (name == kStored) {
    STEMMA_RETURN_IF_ERROR(read_stored(event, read));
  } else if (name == kRemoved) {
    STEMMA_RETURN_IF_ERROR(read_removed(event, read));
  } else if (name == kCleared) {
    read.kind = WireEvent::Kind::kCleared;
  }
  return read;
}

}  // namespace

Result<WireBatch> read_event_batch(std::span<const std::uint8_t> bytes) {
  STEMMA_ASSIGN_OR_RETURN(const Json batch, parse_msgpack(bytes, "event batch", kWireLimits));
  if (!batch.is_array() && !batch.is_object()) return wrong(kEvents, "a batch has fields");
  WireBatch read;
  const Json* seconds = find_or_null(batch, kSeconds);
  if (seconds == nullptr || !seconds->is_number() || !std::isfinite(seconds->get<double>())) {
    return wrong(kSeconds, "a time is wanted");
  }
  read.seconds = seconds->get<double>();
  const Json* events = find_or_null(batch, kEvents);
  if (events == nullptr || !events->is_array()) return wrong(kEvents, "an array is wanted");
  read.events.reserve(events->size());
  for (const Json& event : *events) {
    STEMMA_ASSIGN_OR_RETURN(WireEvent one, read_event(event));
    read.events.push_back(std::move(one));
  }
  if (find_or_null(batch, kRank) != nullptr) {
    read.data_parallel_rank = 0;
    STEMMA_RETURN_IF_ERROR(read_number(batch, kRank, *read.data_parallel_rank));
  }
  return read;
}

}  // namespace stemma
