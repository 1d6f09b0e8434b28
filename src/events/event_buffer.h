// EventBuffer: the events of one step, on their way from the engine's thread to the publisher's.
//
// Thread:     one at a time: handed over whole.
// Memory:     that of its events, kept when it is cleared, so that buffers which go round allocate
//             nothing once they are large enough.
// Cost:       a copy of the keys and tokens.
// Not here:   the log that the events come from (prefix/prefix_event_log), their wire form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "stemma/prefix_cache.h"

namespace stemma {

class EventBuffer final : public PrefixEventSink {
 public:
  void take(const PrefixEvent& event) override;

  bool empty() const noexcept { return entries_.empty(); }
  // Whether it says everything anew, whatever came before.
  bool begins_anew() const noexcept {
    return !empty() && entries_.front().kind == PrefixEvent::Kind::kCleared;
  }
  // Nobody is to be told again of these events, nor of any before them.
  void end_history() noexcept { ends_history_ = true; }
  bool ends_history() const noexcept { return ends_history_; }
  // The events, in order; runs of pages in pieces, each behind the one before, of about
  // `places_max` tokens, a key being eight. REQUIRES: places_max >= 1.
  void for_each(std::int64_t places_max, FunctionRef<void(const PrefixEvent&)> visit) const;

  void clear() noexcept;
  std::size_t bytes() const noexcept;           // of what it holds
  std::size_t capacity_bytes() const noexcept;  // of what it keeps when it is cleared

 private:
  struct Entry {
    PrefixEvent::Kind kind = PrefixEvent::Kind::kCleared;
    std::size_t pages = 0;
    std::size_t page_size = 0;
    NamespaceDigest digest;
    std::optional<PageKey> parent;
    std::string adapter = {};
  };

  std::vector<Entry> entries_;
  std::vector<PageKey> keys_;
  std::vector<TokenId> tokens_;
  bool ends_history_ = false;
};

}  // namespace stemma
