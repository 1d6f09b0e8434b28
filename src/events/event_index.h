// EventIndex: the pages that a server's cache finds, as told by its events alone: what a router
// keeps of it, and what the cache is checked against.
//
// What contradicts what was told before is counted and described, and changes nothing: a page
// behind one that is not known, a page that is stored again and differs. To remove what is not
// there is no contradiction. Nor is it to remove pages before those that continue them, as some
// servers do, if these go in the same batch; what is left of them is counted when it ends.
//
// Thread:     one.
// Memory:     some 150 bytes a page, and its tokens.
// Cost:       a look-up or two a page.
// Not here:   sequence numbers, gaps, replay (event_stream).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "events/event_hash.h"
#include "events/event_wire.h"

namespace stemma {

class EventIndex {
 public:
  // As events say where pages are. Others are passed over, and so are other groups of layers than
  // the first. An event that does not say counts.
  explicit EventIndex(std::string medium = "GPU") : medium_(std::move(medium)) {}

  void apply(const WireBatch& batch);
  // The same, event by event.
  void apply(const WireEvent& event);
  void end_batch();
  void clear();

  std::int64_t pages() const noexcept { return static_cast<std::int64_t>(pages_.size()); }
  bool contains(const EventHash& hash) const { return pages_.contains(hash); }
  // Contradictions since construction, and the first of them.
  std::int64_t contradictions() const noexcept { return contradictions_; }
  const std::string& first_contradiction() const noexcept { return first_contradiction_; }

  // The first page that one of them has and the other has not, or has otherwise; nullopt: they are
  // equal. O(pages).
  std::optional<std::string> difference(const EventIndex& other) const;

 private:
  struct Page {
    std::optional<EventHash> parent;  // nullopt: a text begins with it
    std::vector<TokenId> tokens;      // empty: not told
    std::int64_t continued = 0;       // by so many pages
  };

  void store(const WireEvent& event);
  bool store(const EventHash& hash, Page page);
  void remove(const EventHash& hash);
  void count_less(const EventHash& parent);
  void contradict(const char* what, const EventHash& hash);

  std::string medium_;
  std::unordered_map<EventHash, Page, EventHashHash> pages_;
  // Of pages that are gone: by how many they are continued. Not 0.
  std::unordered_map<EventHash, std::int64_t, EventHashHash> gone_continued_;
  std::vector<EventHash> gone_in_batch_;  // of them, and of some that nothing continues any more
  std::int64_t contradictions_ = 0;
  std::string first_contradiction_;
};

}  // namespace stemma
