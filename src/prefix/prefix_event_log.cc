#include "prefix/prefix_event_log.h"

#include <algorithm>

#include "base/check.h"

namespace stemma {

PrefixEventLog::PrefixEventLog(std::int64_t pages_max, std::int64_t page_size)
    : pages_max_(pages_max), page_size_(page_size) {
  STEMMA_CHECK(pages_max >= 1 && page_size >= 1, "a log has room for a page");
  entry_ = UntouchedArray<Entry>(static_cast<std::size_t>(pages_max + 1));
  key_ = UntouchedArray<PageKey>(static_cast<std::size_t>(pages_max));
  token_ = UntouchedArray<TokenId>(static_cast<std::size_t>(pages_max * page_size));
}

std::span<PageKey> PrefixEventLog::add_stored(const Place& place, std::span<const TokenId> tokens) {
  const std::int64_t pages = static_cast<std::int64_t>(tokens.size()) / page_size_;
  STEMMA_CHECK_EQ(static_cast<std::int64_t>(tokens.size()), pages * page_size_);
  if (!has_room(pages)) return {};
  entry_[entries_++] = {.kind = PrefixEvent::Kind::kStored,
                        .has_parent = place.parent.has_value(),
                        .pages = pages,
                        .digest = place.digest,
                        .parent = place.parent.value_or(PageKey())};
  std::copy(tokens.begin(), tokens.end(), token_.data() + tokens_);
  tokens_ += tokens.size();
  return take_keys(pages);
}

std::span<PageKey> PrefixEventLog::add_removed(std::int64_t pages) {
  if (!has_room(pages)) return {};
  if (entries_ > 0 && entry_[entries_ - 1].kind == PrefixEvent::Kind::kRemoved) {
    entry_[entries_ - 1].pages += pages;
  } else {
    entry_[entries_++] = {.kind = PrefixEvent::Kind::kRemoved,
                          .has_parent = false,
                          .pages = pages,
                          .digest = {},
                          .parent = {}};
  }
  return take_keys(pages);
}

void PrefixEventLog::add_cleared() {
  restart();
  entry_[entries_++] = {.kind = PrefixEvent::Kind::kCleared,
                        .has_parent = false,
                        .pages = 0,
                        .digest = {},
                        .parent = {}};
}

void PrefixEventLog::lose() noexcept {
  restart();
  lost_ = true;
}

void PrefixEventLog::drain(PrefixEventSink& sink) {
  STEMMA_CHECK(!lost_, "what is lost cannot be handed over");
  const PageKey* key = key_.data();
  const TokenId* token = token_.data();
  for (std::size_t i = 0; i < entries_; ++i) {
    const Entry& entry = entry_[i];
    PrefixEvent event;
    event.kind = entry.kind;
    event.keys = {key, static_cast<std::size_t>(entry.pages)};
    key += entry.pages;
    if (entry.kind == PrefixEvent::Kind::kStored) {
      event.digest = entry.digest;
      if (entry.has_parent) event.parent = entry.parent;
      event.tokens = {token, static_cast<std::size_t>(entry.pages * page_size_)};
      token += entry.pages * page_size_;
    }
    sink.take(event);
  }
  restart();
}

void PrefixEventLog::restart() noexcept {
  pages_ = 0;
  entries_ = 0;
  tokens_ = 0;
  lost_ = false;
}

// Whether `pages` more can be kept; if not, all is lost.
bool PrefixEventLog::has_room(std::int64_t pages) {
  STEMMA_CHECK_GE(pages, 1);
  if (lost_) return false;
  if (pages <= pages_max_ - pages_) return true;
  lose();
  ++overflows_;
  return false;
}

std::span<PageKey> PrefixEventLog::take_keys(std::int64_t pages) {
  const std::span<PageKey> keys(key_.data() + pages_, static_cast<std::size_t>(pages));
  pages_ += pages;
  return keys;
}

}  // namespace stemma
