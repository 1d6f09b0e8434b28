#include "events/event_buffer.h"

#include <algorithm>

#include "base/check.h"

namespace stemma {

void EventBuffer::take(const PrefixEvent& event) {
  const std::size_t pages = event.keys.size();
  const std::size_t page_size = pages == 0 ? 0 : event.tokens.size() / pages;
  STEMMA_CHECK(event.tokens.size() == pages * page_size, "what is stored is whole pages");
  entries_.push_back(
      {event.kind, pages, page_size, event.digest, event.parent, std::string(event.adapter)});
  keys_.insert(keys_.end(), event.keys.begin(), event.keys.end());
  tokens_.insert(tokens_.end(), event.tokens.begin(), event.tokens.end());
}

void EventBuffer::for_each(std::int64_t places_max,
                           FunctionRef<void(const PrefixEvent&)> visit) const {
  STEMMA_CHECK_GE(places_max, 1);
  std::span<const PageKey> keys(keys_);
  std::span<const TokenId> tokens(tokens_);
  for (const Entry& entry : entries_) {
    PrefixEvent event;
    event.kind = entry.kind;
    event.digest = entry.digest;
    event.parent = entry.parent;
    event.adapter = entry.adapter;
    const std::size_t most =
        std::max<std::size_t>(static_cast<std::size_t>(places_max) / (entry.page_size + 8), 1);
    std::size_t left = entry.pages;
    do {
      const std::size_t pages = std::min(left, most);
      event.keys = keys.first(pages);
      event.tokens = tokens.first(pages * entry.page_size);
      visit(event);
      if (pages > 0 && entry.kind == PrefixEvent::Kind::kStored) event.parent = event.keys.back();
      keys = keys.subspan(pages);
      tokens = tokens.subspan(pages * entry.page_size);
      left -= pages;
    } while (left > 0);
  }
}

void EventBuffer::clear() noexcept {
  entries_.clear();
  keys_.clear();
  tokens_.clear();
  ends_history_ = false;
}

std::size_t EventBuffer::bytes() const noexcept {
  return entries_.size() * sizeof(Entry) + keys_.size() * sizeof(PageKey) +
         tokens_.size() * sizeof(TokenId);
}

std::size_t EventBuffer::capacity_bytes() const noexcept {
  return entries_.capacity() * sizeof(Entry) + keys_.capacity() * sizeof(PageKey) +
         tokens_.capacity() * sizeof(TokenId);
}

}  // namespace stemma
