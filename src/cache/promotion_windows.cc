// Windowed pages of a promotion: where a text can be gone on from, which of its windowed pages are
// missing above, and from where they come.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "cache/page_row.h"
#include "cache/promotion.h"
#include "prefix/page_key.h"

namespace stemma {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

bool hangs(const WindowedPages& windowed, std::span<const PageId> row, std::int64_t page) {
  return page < std::ssize(row) && windowed.of(row[at(page)]).valid();
}

}  // namespace

WindowedPages& Promotion::target_windows() const {
  return target_ == Tier::kHost ? *parts_.host.windowed_or_null() : *parts_.device_windowed_or_null;
}

bool Promotion::has_window(std::int64_t page) const {
  return hangs(target_windows(), anchor_row_, page);
}

bool Promotion::is_window_near(std::int64_t page) const {
  return has_window(page) || hangs(*parts_.host.windowed_or_null(), host_row_, page);
}

void Promotion::copy_rows() {
  copy_row(anchor_, page_size(), anchor_row_);
  copy_row(host_, page_size(), host_row_);
}

// Behind what is wanted, or what the target has.
std::int64_t Promotion::wanted_end() const {
  std::int64_t end = anchor_.tokens() / page_size();
  for (const Piece& piece : pieces_) {
    if (piece.state == PieceState::kWanted) end = std::max(end, piece.end_page());
  }
  return end;
}

std::int64_t Promotion::unusable_pages() const {
  if (!active_ || abandoned_ || !windowed()) return 0;
  return std::ssize(anchor_row_) - usable_pages();
}

// Of what the target has, how much can be gone on from.
std::int64_t Promotion::usable_pages() const {
  return parts_.window.usable_end(std::ssize(anchor_row_),
                                  [&](std::int64_t page) { return has_window(page); });
}

// Stores are asked for the window of the whole text only, from `store` on; where none has what is
// missing of it, the text is brought as far as nearer memory has one. REQUIRES: nothing was asked
// for yet.
void Promotion::settle_window(std::size_t store) {
  const std::int64_t end = wanted_end();
  std::int64_t first_far = parts_.window.first_page_before(end);
  std::int64_t end_far = end;
  while (first_far < end_far && is_window_near(first_far)) ++first_far;
  while (first_far < end_far && is_window_near(end_far - 1)) --end_far;
  if (first_far == end_far) return bring_to(end);
  if (!may_ask_for_window(first_far, end_far)) store = parts_.stores.size();
  for (; store < parts_.stores.size(); ++store) {
    const auto number = static_cast<int>(store);
    if (!parts_.purges.usable(number, digest_)) continue;
    PageStore& from = *parts_.stores[store];
    if (!from.lookup_is_local()) {
      if (look_for_window(number, first_far, end_far)) return;
      continue;
    }
    const auto found = from.lookup(windowed_keys(first_far, end_far), parts_.clock.now_us());
    if (!found.ok() || *found < end_far - first_far) continue;
    window_store_ = number;
    return bring_to(end);
  }
  bring_to(parts_.window.usable_end(end, [&](std::int64_t page) { return is_window_near(page); }));
}

// Not what stores may have as it was before it was found to be wrong.
bool Promotion::may_ask_for_window(std::int64_t first_page, std::int64_t end_page) {
  return parts_.removals.none() ||
         parts_.removals.windows_usable(windowed_keys(first_page, end_page));
}

// What lies behind that end is not asked for.
void Promotion::bring_to(std::int64_t end_page) {
  for (Piece& piece : pieces_) {
    if (piece.state != PieceState::kWanted || piece.end_page() <= end_page) continue;
    const std::int64_t kept = std::max<std::int64_t>(end_page - piece.first_page, 0);
    parts_.counters.declined += piece.pages - kept;
    piece.pages = kept;
    if (kept == 0) piece.state = PieceState::kGone;
  }
  window_end_ = end_page;
  window_next_ = parts_.window.first_page_before(end_page);
  if (window_next_ < first_key_page_) find_keys(window_next_);  // more has gone since begin
}

std::vector<PageKey> Promotion::windowed_keys(std::int64_t first_page,
                                              std::int64_t end_page) const {
  PageKeyHasher hasher;
  std::vector<PageKey> keys;
  for (std::int64_t page = first_page; page < end_page; ++page) {
    const auto tokens = text_to(page + 1).subspan(at(page * page_size()));
    keys.push_back(hasher.next(hasher.windowed_parent(key(page - 1)), tokens));
  }
  return keys;
}

// False if there is no ticket now.
bool Promotion::look_for_window(int store, std::int64_t first_page, std::int64_t end_page) {
  auto ticket = parts_.transfers.try_open(TransferKind::kLookup, store);
  if (!ticket.has_value()) return false;
  ticket->job().group = LayerGroup::kWindowed;
  name_pages(ticket->job(), first_page, end_page);
  ticket->cookie = cookie_;
  ++underway_;
  ++lookups_;
  parts_.transfers.submit(std::move(*ticket));
  return true;
}

// Pages that all are there, or the next store is asked.
void Promotion::landed_window_lookup(const Transfer& job) {
  if (job.found_pages < job.pages()) {
    settle_window(at(job.store) + 1);
  } else {
    window_store_ = job.store;
    bring_to(wanted_end());
  }
  join_host_pieces();
}

// In pieces of pages that come from the same place, behind one another.
void Promotion::ask_for_window() {
  const auto is_in_host = [&](std::int64_t page) {
    return target_ == Tier::kDevice && hangs(*parts_.host.windowed_or_null(), host_row_, page);
  };
  while (window_next_ < window_end_) {
    if (has_window(window_next_)) {
      ++window_next_;
      continue;
    }
    const bool from_host = is_in_host(window_next_);
    std::int64_t end = window_next_ + 1;
    while (end < window_end_ && !has_window(end) && is_in_host(end) == from_host) ++end;
    if (!ask_for_window_piece(end, from_host)) return;
    window_next_ = end;
  }
}

// Whether copies down hold windowed pages of the target, which they soon let go.
bool Promotion::is_room_coming() const {
  bool coming = false;
  parts_.transfers.for_each_underway([&](const TransferTicket& ticket) {
    const bool down = ticket.job().kind == TransferKind::kBackup;
    coming = coming || (down && ticket.windowed_source.is_of(target_windows()));
  });
  return coming;
}

// False if there is no ticket now, or room only soon. Without room, or with a page that is nowhere
// any more, what is left is given up: a window with a gap is none.
bool Promotion::ask_for_window_piece(std::int64_t end_page, bool from_host) {
  const TransferKind kind = from_host                  ? TransferKind::kPromote
                            : target_ == Tier::kDevice ? TransferKind::kLoad
                                                       : TransferKind::kFetch;
  // What has gone from above since it was settled was not asked about then.
  const auto may_load = [&] {
    return window_store_ >= 0 && may_ask_for_window(window_next_, end_page);
  };
  if (!from_host && !may_load()) {
    window_end_ = window_next_;
    return false;
  }
  auto ticket = parts_.transfers.try_open(kind, std::max(window_store_, 0));
  if (!ticket.has_value()) return false;
  ticket->windowed_target = TakenWindowedPages::try_take(target_windows(), end_page - window_next_);
  if (ticket->windowed_target.empty()) {
    if (!is_room_coming()) window_end_ = window_next_;
    return false;
  }
  Transfer& job = ticket->job();
  job.group = LayerGroup::kWindowed;
  name_pages(job, window_next_, end_page);
  const auto to = ticket->windowed_target.ids();
  job.to.assign(to.begin(), to.end());
  ticket->cookie = cookie_;
  if (from_host) {
    const std::vector<PageId> carriers(host_row_.begin() + window_next_,
                                       host_row_.begin() + end_page);
    WindowedPages& host = *parts_.host.windowed_or_null();
    for (const PageId carrier : carriers) job.from.push_back(host.of(carrier));
    ticket->source = parts_.host.tree().share(host_);
    ticket->windowed_source = HeldWindowedPages(host, carriers);
  }
  if (!std::exchange(asked_, true)) ++parts_.counters.promotions;
  ++underway_;
  parts_.transfers.submit(std::move(*ticket));
  return true;
}

// What was wrong in host memory goes there.
void Promotion::landed_window(TransferTicket& ticket) {
  const Transfer& job = ticket.job();
  const bool from_host = job.kind == TransferKind::kPromote;
  const Tier tier = from_host ? Tier::kHost : parts_.stores[at(job.store)]->tier();
  if (!job.cancelled.load(std::memory_order_relaxed)) {
    count_losses(job, tier, /*of_text=*/false);
    if (job.done_pages() < job.pages()) outcome_.lost_pages = true;
  }
  outcome_.us.of(tier) += job.ended_us - job.started_us;
  const auto held = ticket.windowed_source.carriers();
  const std::vector<PageId> carriers(held.begin(), held.end());
  ticket.windowed_source.reset();
  for (std::size_t i = 0; i < job.verdicts.size(); ++i) {
    if (job.verdicts[i] == PageVerdict::kDone) continue;
    if (!ticket.windowed_target.empty()) ticket.windowed_target.drop(i);
    if (from_host && job.verdicts[i] == PageVerdict::kCorrupt) {
      parts_.host.windowed_or_null()->forget(carriers[i]);
    }
  }
  if (abandoned_ || ticket.windowed_target.empty()) return;
  window_pieces_.push_back({job.first_page, std::move(ticket.windowed_target)});
}

// On what of their text is published by now.
void Promotion::hang_windows() {
  if (std::ssize(anchor_row_) * page_size() < anchor_.tokens()) {
    copy_row(anchor_, page_size(), anchor_row_);
  }
  for (WindowPiece& piece : window_pieces_) {
    const auto ids = piece.arrived.ids();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::int64_t page = piece.first_page + static_cast<std::int64_t>(i);
      if (!ids[i].valid() || page >= std::ssize(anchor_row_)) continue;
      if (piece.arrived.hang(i, anchor_row_[at(page)])) ++parts_.counters.windowed_loaded;
    }
  }
  std::erase_if(window_pieces_, [](const WindowPiece& piece) {
    const auto ids = piece.arrived.ids();
    return std::none_of(ids.begin(), ids.end(), [](PageId id) { return id.valid(); });
  });
}

std::int64_t Promotion::count_windowed(const WindowedPages& pages,
                                       std::span<std::int32_t> holders) const {
  std::int64_t owned = 0;
  for (const WindowPiece& piece : window_pieces_) owned += piece.arrived.count(pages, holders);
  return owned;
}

}  // namespace stemma
