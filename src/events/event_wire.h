// The wire form of events: a batch in msgpack, as vLLM and SGLang publish it and routers read it.
//
//   batch        [seconds, events, data_parallel_rank]
//   by position  ["BlockStored", hashes, parent, tokens, page_size, lora_id, medium, lora_name]
//                ["BlockRemoved", hashes, medium]
//                ["AllBlocksCleared"]
//   by name      {"type": "BlockStored", "block_hashes", "parent_block_hash", "token_ids",
//                 "block_size", "lora_id", "medium", "lora_name", "namespace"} and so on
//
// Both forms are in use; routers of every age read the first, which is the default. The parent is
// nil where a text begins; behind a prefix that everybody shares it is the last page of that, in
// another namespace. Fields that stand behind in other servers' events have their defaults
// here and are left out, as those servers do. "namespace" is Stemma's own: the digest that the
// page's key is rooted in, in hexadecimal digits; who reads by name passes over what it does not
// know. lora_name is what clients call the adapter that the pages were computed with; nil where
// there is none, or by position not there, where SGLang has something else. lora_id, its older
// sister, is nil.
//
// The medium says where pages are: "GPU" is what routers count as at hand, whatever the device is.
// Only what the device's tree finds is told of. A page that leaves the device is removed, though
// host memory or a disk may have a copy: finding that again costs a load, which no router can tell.
//
// Thread:     pure; a writer belongs to one thread.
// Memory:     some 16 bytes a token while a batch is written or read.
// Cost:       linear in the batch.
// Not here:   sequence numbers and sockets (event_publisher, event_follower), what events mean
//             together (event_index).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "events/event_hash.h"
#include "stemma/prefix_cache.h"
#include "stemma/result.h"

namespace stemma {

enum class EventForm : std::uint8_t { kByPosition, kByName };

// How a server writes its events.
struct EventWireOptions {
  EventForm form = EventForm::kByPosition;
  HashForm hashes = HashForm::kUnsigned;
  std::string medium = "GPU";
  std::int64_t data_parallel_rank = 0;
};

// A batch longer than this is not read.
inline constexpr std::size_t kEventBatchBytesMax = std::size_t{16} << 20;

// One batch in the making.
class EventWriter {
 public:
  explicit EventWriter(const EventWireOptions& options);
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // REQUIRES: what is stored has the same number of tokens, at least one, for each page.
  void add(const PrefixEvent& event);
  bool empty() const noexcept { return places_ == 0; }
  // The fifth part of the bytes that the batch takes at most, as a token takes five: what it is cut
  // by.
  std::int64_t places() const noexcept { return places_; }
  // The batch; then the next one begins.
  std::vector<std::uint8_t> finish(double seconds);

 private:
  struct Events;  // keeps the library's types out of here

  void add_stored(const PrefixEvent& event);

  EventWireOptions options_;
  std::int64_t event_places_;  // of an event, beside its hashes and tokens
  std::int64_t places_ = 0;
  std::unique_ptr<Events> events_;
};

// An event that was read.
struct WireEvent {
  enum class Kind : std::uint8_t { kCleared, kStored, kRemoved, kOther };
  Kind kind = Kind::kOther;  // kOther: a type that is not known here
  std::vector<EventHash> hashes;
  std::string medium;      // empty: not said
  std::int64_t group = 0;  // of layers with the same lifetime

  // Of what was stored alone.
  std::optional<EventHash> parent;
  std::vector<TokenId> tokens;   // none, or page_size a hash
  std::int64_t page_size = 0;    // tokens
  std::string namespace_digest;  // empty: not said
  std::string adapter;           // empty: not said by name, or none
};

struct WireBatch {
  double seconds = 0;  // since 1970, by its sender's clock
  std::vector<WireEvent> events;
  std::optional<std::int64_t> data_parallel_rank;
};

// Both forms, and hashes in every form. Unknown fields and types are passed over. kCorrupt naming
// the field, kTooLarge.
Result<WireBatch> read_event_batch(std::span<const std::uint8_t> bytes);

}  // namespace stemma
