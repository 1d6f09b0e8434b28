// What the tests of events share: a cache's pages as an index that never saw a wire, and batches.
//
// Thread:     tests.
// Memory:     that of the index.
// Cost:       linear in the pages.
// Not here:   anything that ships.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "events/event_buffer.h"
#include "events/event_index.h"
#include "events/event_stream.h"
#include "events/event_wire.h"
#include "prefix/random_life.h"

namespace stemma {

// Takes events as they are, with hashes of one form.
class DirectIndex final : public PrefixEventSink {
 public:
  explicit DirectIndex(HashForm form) : form_(form) {}

  void take(const PrefixEvent& event) override {
    WireEvent wire;
    wire.kind = event.kind == PrefixEvent::Kind::kCleared  ? WireEvent::Kind::kCleared
                : event.kind == PrefixEvent::Kind::kStored ? WireEvent::Kind::kStored
                                                           : WireEvent::Kind::kRemoved;
    for (const PageKey& key : event.keys) wire.hashes.push_back(EventHash::of(key, form_));
    if (event.parent.has_value()) wire.parent = EventHash::of(*event.parent, form_);
    wire.tokens.assign(event.tokens.begin(), event.tokens.end());
    if (!wire.hashes.empty()) {
      wire.page_size = static_cast<std::int64_t>(wire.tokens.size() / wire.hashes.size());
    }
    index.apply(wire);
    index.end_batch();
  }

  EventIndex index;

 private:
  HashForm form_;
};

// What a cache finds now. Its log must be drained.
inline EventIndex index_of(RadixPrefixCache& cache, HashForm form) {
  DirectIndex direct(form);
  cache.resend_events();
  cache.drain_events(direct);
  return std::move(direct.index);
}

// Applies batches to an index.
class IndexSink final : public EventBatchSink {
 public:
  void take(std::uint64_t sequence, const WireBatch& batch) override {
    sequences.push_back(sequence);
    index.apply(batch);
  }
  void forget() override {
    ++forgotten;
    index.clear();
  }

  EventIndex index;
  std::vector<std::uint64_t> sequences;
  int forgotten = 0;
};

// A key whose first byte is that.
inline PageKey key_of(int byte) {
  PageKey key;
  key.bytes[0] = static_cast<std::uint8_t>(byte);
  key.bytes[31] = 1;
  return key;
}

}  // namespace stemma
