#include "prefix/page_record.h"

#include <bit>

#include "base/check.h"

namespace stemma {

GhostPages::GhostPages(std::int64_t ghosts_max) {
  STEMMA_CHECK(ghosts_max >= 1 && ghosts_max < std::int64_t{1} << 30, "places are 31 bits");
  const auto ghosts = static_cast<std::size_t>(ghosts_max);
  ring_ = UntouchedArray<PageRecord>(ghosts);
  table_ = UntouchedArray<Entry>(std::bit_ceil(ghosts * 2), Entry());
  mask_ = static_cast<std::uint32_t>(table_.size() - 1);
}

std::optional<PageRecord> GhostPages::push(const PageRecord& page) {
  std::optional<PageRecord> forgotten;
  const auto ghosts = static_cast<std::int64_t>(ring_.size());
  const auto place = static_cast<std::int32_t>(next_ % ghosts);
  PageRecord& ghost = ring_[static_cast<std::size_t>(place)];
  if (next_++ >= ghosts && ghost.known) {
    erase(find(ghost.fingerprint, place));
    forgotten = ghost;
  }
  ghost = page;
  ghost.known = true;
  const auto low = static_cast<std::uint32_t>(page.fingerprint);
  std::size_t at = home(low);
  while (table_[at].place != kNone) at = (at + 1) & mask_;
  table_[at] = {place, low};
  return forgotten;
}

std::optional<PageRecord> GhostPages::take(std::uint64_t fingerprint) {
  const std::size_t at = find(fingerprint, kNone);
  if (table_[at].place == kNone) return std::nullopt;
  PageRecord& ghost = ring_[static_cast<std::size_t>(table_[at].place)];
  erase(at);
  const PageRecord taken = ghost;
  ghost.known = false;
  return taken;
}

// Where the fingerprint lies, in this place of the ring or, for kNone, in any; else where it ends.
std::size_t GhostPages::find(std::uint64_t fingerprint, std::int32_t place) const noexcept {
  const auto low = static_cast<std::uint32_t>(fingerprint);
  std::size_t at = home(low);
  for (; table_[at].place != kNone; at = (at + 1) & mask_) {
    if (table_[at].low != low) continue;
    if (place != kNone
            ? table_[at].place == place
            : ring_[static_cast<std::size_t>(table_[at].place)].fingerprint == fingerprint) {
      break;
    }
  }
  return at;
}

// Closes the gap: what lies behind moves up as far as its home allows.
void GhostPages::erase(std::size_t at) noexcept {
  for (std::size_t next = (at + 1) & mask_; table_[next].place != kNone;
       next = (next + 1) & mask_) {
    if (((next - home(table_[next].low)) & mask_) < ((next - at) & mask_)) continue;
    table_[at] = table_[next];
    at = next;
  }
  table_[at] = Entry();
}

}  // namespace stemma
