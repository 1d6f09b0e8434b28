#include "events/event_index.h"

#include <utility>

#include "base/digest.h"

namespace stemma {

void EventIndex::apply(const WireBatch& batch) {
  for (const WireEvent& event : batch.events) apply(event);
  end_batch();
}

void EventIndex::apply(const WireEvent& event) {
  if (event.kind == WireEvent::Kind::kCleared) return clear();
  if (event.group != 0 || (!event.medium.empty() && event.medium != medium_)) return;
  if (event.kind == WireEvent::Kind::kStored) return store(event);
  if (event.kind != WireEvent::Kind::kRemoved) return;
  for (const EventHash& hash : event.hashes) remove(hash);
}

void EventIndex::end_batch() {
  for (const EventHash& hash : gone_in_batch_) {
    if (gone_continued_.contains(hash)) contradict("is removed while another continues it", hash);
  }
  gone_in_batch_.clear();
}

void EventIndex::clear() {
  pages_.clear();
  gone_continued_.clear();
  gone_in_batch_.clear();
}

void EventIndex::store(const WireEvent& event) {
  const auto page_size = static_cast<std::ptrdiff_t>(event.page_size);
  std::optional<EventHash> parent = event.parent;
  auto token = event.tokens.begin();
  for (const EventHash& hash : event.hashes) {
    Page page{.parent = parent, .tokens = {}, .continued = 0};
    if (!event.tokens.empty()) page.tokens.assign(token, token + page_size);
    if (!event.tokens.empty()) token += page_size;
    if (!store(hash, std::move(page))) return;  // what follows stands behind it
    parent = hash;
  }
}

// False if it cannot be.
bool EventIndex::store(const EventHash& hash, Page page) {
  auto parent = pages_.end();
  if (page.parent.has_value()) {
    parent = pages_.find(*page.parent);
    if (parent == pages_.end() || *page.parent == hash) {
      contradict("is stored behind a page that is not known", hash);
      return false;
    }
  }
  const auto known = pages_.find(hash);
  if (known == pages_.end()) {
    if (parent != pages_.end()) ++parent->second.continued;
    if (const auto gone = gone_continued_.find(hash); gone != gone_continued_.end()) {
      page.continued = gone->second;
      gone_continued_.erase(gone);
    }
    pages_.emplace(hash, std::move(page));
    return true;
  }
  if (known->second.parent == page.parent && known->second.tokens == page.tokens) return true;
  contradict("is stored again and differs", hash);
  return false;
}

void EventIndex::remove(const EventHash& hash) {
  const auto page = pages_.find(hash);
  if (page == pages_.end()) return;
  if (page->second.parent.has_value()) count_less(*page->second.parent);
  if (page->second.continued > 0) {
    gone_continued_.emplace(hash, page->second.continued);
    gone_in_batch_.push_back(hash);
  }
  pages_.erase(page);
}

// One page less continues `parent`.
void EventIndex::count_less(const EventHash& parent) {
  if (const auto page = pages_.find(parent); page != pages_.end()) {
    --page->second.continued;
    return;
  }
  const auto gone = gone_continued_.find(parent);
  if (--gone->second == 0) gone_continued_.erase(gone);
}

void EventIndex::contradict(const char* what, const EventHash& hash) {
  if (++contradictions_ > 1) return;
  first_contradiction_ = "page " + to_hex(hash.bytes()) + " " + what;
}

std::optional<std::string> EventIndex::difference(const EventIndex& other) const {
  for (const auto& [hash, page] : pages_) {
    const auto found = other.pages_.find(hash);
    if (found == other.pages_.end()) return "only one has page " + to_hex(hash.bytes());
    if (found->second.parent != page.parent) return "two parents of page " + to_hex(hash.bytes());
    if (found->second.tokens != page.tokens) return "two texts of page " + to_hex(hash.bytes());
  }
  if (other.pages() == pages()) return std::nullopt;
  return other.difference(*this);
}

}  // namespace stemma
