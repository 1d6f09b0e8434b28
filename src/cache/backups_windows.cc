// Copies down of windowed pages. Only those before the end of what is copied move: they are what a
// text is gone on from there. They follow the full pages of their text on the same lane, and hang
// on these in host memory; where these did not come, they are dropped.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "cache/backups.h"
#include "cache/job_text.h"
#include "cache/page_row.h"

namespace stemma {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

}  // namespace

bool Backups::window_underway(NamespaceId host_ns, const PageKey& key) const {
  bool found = false;
  parts_.transfers.for_each_underway([&](const TransferTicket& ticket) {
    const Transfer& job = ticket.job();
    if (job.kind != TransferKind::kBackup || job.group != LayerGroup::kWindowed) return;
    if (ticket.anchor.namespace_id() != host_ns) return;
    found = found || std::find(job.keys.begin(), job.keys.end(), key) != job.keys.end();
  });
  return found;
}

// Of a page with that key, of the text of host_row_.
bool Backups::window_is_below(NamespaceId host_ns, std::int64_t page, const PageKey& key) const {
  if (page < std::ssize(host_row_) &&
      parts_.host.windowed_or_null()->of(host_row_[at(page)]).valid()) {
    return true;
  }
  return window_underway(host_ns, key);
}

// Afterwards row_ and text_ are those of `held`, host_row_ what host memory has of their beginning.
void Backups::copy_rows(const PrefixLock& held, NamespaceId host_ns, std::int64_t end_tokens) {
  copy_row(held, parts_.device.page_size(), row_);
  RadixPrefixCache& tree = parts_.host.tree();
  const auto text = text_of(parts_.device, held).first(at(end_tokens));
  const PrefixLock below = tree.extend(tree.match(host_ns, {}), text);
  copy_row(below, tree.page_size(), host_row_);
}

// What the device has without a gap up to there, less what host memory has of the beginning;
// nothing where both together are not the whole window, for that could not be gone on from. One
// page more than the window, if it is there: whoever asks for this very text computes its last
// token again. Afterwards the rows are those of `held`.
Backups::MissingWindow Backups::missing_window(const PrefixLock& held, NamespaceId host_ns,
                                               std::int64_t end_tokens) {
  const WindowedPages* const windowed = parts_.device_windowed_or_null;
  const std::int64_t end = end_tokens / parts_.device.page_size();
  if (end == 0) return {};
  copy_rows(held, host_ns, end_tokens);
  const std::int64_t begin = parts_.window.first_page_before(end);
  const std::int64_t begin_again = parts_.window.first_page_before(end - 1);
  std::int64_t first = end;
  while (first > begin_again && windowed->of(row_[at(first - 1)]).valid()) --first;
  const std::int64_t carried_end = backed_up_end(held, host_ns, std::ssize(host_row_));
  if (parts_.device.owed_end(held, carried_end, kHost) < end) return {};
  const std::span<const PageKey> keys = keys_from(held, begin_again);
  const auto is_below = [&](std::int64_t page) {
    return window_is_below(host_ns, page, keys[at(page - begin_again)]);
  };
  for (std::int64_t page = begin; page < first; ++page) {
    if (!is_below(page)) return {};
  }
  while (first < end && is_below(first)) ++first;
  return {{first, end}, carried_end};
}

std::int64_t Backups::back_up_window(const PrefixLock& held, std::int64_t end_tokens) {
  const NamespaceId host_ns = parts_.host.namespace_of(held.namespace_id());
  if (!host_ns.valid()) return 0;
  const auto [pages, carried_end] = missing_window(held, host_ns, end_tokens);
  if (pages.empty()) return 0;
  if (carried_end < pages.end || !parts_.transfers.can_open(TransferKind::kBackup)) {
    parts_.device.owe(held, pages, kHostWindows);
  } else {
    send_window(held, host_ns, pages);
  }
  return pages.pages();
}

// Of what was owed some may have lost its windowed page, or have come down with another text: what
// is left goes piece by piece. REQUIRES: a copy can begin.
void Backups::back_up_owed_window(const PrefixLock& held, PageStretch pages) {
  RadixPrefixCache& tree = parts_.device;
  const NamespaceId host_ns = parts_.host.namespace_of(held.namespace_id());
  if (!host_ns.valid()) return;
  copy_rows(held, host_ns, pages.end * tree.page_size());
  const std::int64_t carried_end = backed_up_end(held, host_ns, std::ssize(host_row_));
  if (carried_end < pages.end && tree.owed_end(held, carried_end, kHost) >= pages.end) {
    return tree.owe(held, pages, kHostWindows);
  }
  const std::int64_t uncarried = pages.end - std::max(pages.first, carried_end);
  parts_.counters.unbacked += std::max<std::int64_t>(uncarried, 0);
  pages.end = std::min(pages.end, carried_end);
  const std::span<const PageKey> keys = keys_from(held, pages.first);
  const auto is_below = [&](std::int64_t page) {
    return window_is_below(host_ns, page, keys[at(page - pages.first)]);
  };
  const auto is_missing = [&](std::int64_t page) {
    return parts_.device_windowed_or_null->of(row_[at(page)]).valid() && !is_below(page);
  };
  PageStretch piece = pages;
  for (; piece.first < pages.end && !is_missing(piece.first); ++piece.first) {
    parts_.counters.unbacked += is_below(piece.first) ? 0 : 1;  // it was evicted before its turn
  }
  piece.end = piece.first;
  while (piece.end < pages.end && is_missing(piece.end)) ++piece.end;
  if (piece.end < pages.end) tree.owe(held, {piece.end, pages.end}, kHostWindows);
  if (!piece.empty()) send_window(held, host_ns, piece);
}

// Where host memory has no room they stay unbacked. REQUIRES: a copy can begin; the rows are those
// of `held`.
void Backups::send_window(const PrefixLock& held, NamespaceId host_ns, const PageStretch& pages) {
  TakenWindowedPages target =
      TakenWindowedPages::try_take(*parts_.host.windowed_or_null(), pages.pages());
  if (target.empty()) {
    parts_.counters.unbacked += pages.pages();
    return;
  }
  auto ticket = parts_.transfers.try_open(TransferKind::kBackup);
  STEMMA_CHECK(ticket.has_value(), "host memory is given what it can be given");
  Transfer& job = ticket->job();
  job.group = LayerGroup::kWindowed;
  job.digest = parts_.host.tree().digest(host_ns);
  const std::int64_t page_size = parts_.device.page_size();
  fill_text(job, held, std::span(text_).first(at(pages.end * page_size)), page_size, pages.first);
  const std::vector<PageId> carriers(row_.begin() + pages.first, row_.begin() + pages.end);
  for (const PageId carrier : carriers) {
    job.from.push_back(parts_.device_windowed_or_null->of(carrier));
  }
  const auto to = target.ids();
  job.to.assign(to.begin(), to.end());
  ticket->windowed_target = std::move(target);
  ticket->source = parts_.device.share(held);
  ticket->windowed_source = HeldWindowedPages(*parts_.device_windowed_or_null, carriers);
  ticket->anchor = parts_.host.tree().match(host_ns, {});
  parts_.transfers.submit(std::move(*ticket));
}

void Backups::landed_window_backup(TransferTicket ticket) {
  const Transfer& job = ticket.job();
  if (parts_.device.is_quarantined(ticket.source)) {
    parts_.counters.unbacked += job.pages();
    return;
  }
  RadixPrefixCache& tree = parts_.host.tree();
  const std::int64_t end = job.first_page + job.pages();
  const auto text = text_of(parts_.device, ticket.source).first(at(end * tree.page_size()));
  const PrefixLock below = tree.extend(std::move(ticket.anchor), text);
  copy_row(below, tree.page_size(), host_row_);
  for (std::int64_t page = job.first_page; page < std::min(end, std::ssize(host_row_)); ++page) {
    const std::size_t place = at(page - job.first_page);
    if (job.verdicts[place] != PageVerdict::kDone) continue;
    if (ticket.windowed_target.hang(place, host_row_[at(page)])) {
      ++parts_.counters.windowed_backed_up;
    }
  }
  const PageStretch landed = {job.first_page, std::min(end, std::ssize(host_row_))};
  for (std::int64_t page = landed.first; page < end; ++page) {
    const bool is_there =
        page < landed.end && parts_.host.windowed_or_null()->of(host_row_[at(page)]).valid();
    parts_.counters.unbacked += is_there ? 0 : 1;
  }
  ticket.reset();
  if (landed.first < landed.end) store_window(below, landed);
}

void Backups::store_window(const PrefixLock& held, PageStretch pages) {
  RadixPrefixCache& tree = parts_.host.tree();
  text_of(tree, held);
  copy_row(held, tree.page_size(), host_row_);
  const WindowedPages& windowed = *parts_.host.windowed_or_null();
  const auto is_there = [&](std::int64_t page) { return windowed.of(host_row_[at(page)]).valid(); };
  while (pages.first < pages.end && !is_there(pages.first)) ++pages.first;  // its copy failed
  std::int64_t there = 0;
  for (std::int64_t page = pages.first; page < pages.end; ++page) there += is_there(page) ? 1 : 0;
  if (there < pages.pages()) parts_.counters.unstored += there * std::ssize(parts_.stores);
  if (there < pages.pages() || there == 0) return;
  for (int store = 0; store < std::ssize(parts_.stores); ++store) {
    if (!can_store_now(store, LayerGroup::kWindowed, held, pages)) continue;
    store_window_in(store, held, pages);
  }
}

// Of what was owed some may have lost its windowed page: what is left goes piece by piece.
void Backups::store_owed_window_in(int store, const PrefixLock& held, PageStretch pages) {
  RadixPrefixCache& tree = parts_.host.tree();
  const WindowedPages& windowed = *parts_.host.windowed_or_null();
  text_of(tree, held);
  copy_row(held, tree.page_size(), host_row_);
  const auto is_there = [&](std::int64_t page) { return windowed.of(host_row_[at(page)]).valid(); };
  PageStretch piece = pages;
  while (piece.first < pages.end && !is_there(piece.first)) ++piece.first;
  parts_.counters.unstored += piece.first - pages.first;
  piece.end = piece.first;
  while (piece.end < pages.end && is_there(piece.end)) ++piece.end;
  if (piece.end < pages.end) {
    tree.owe(held, {piece.end, pages.end}, creditor_of(store, LayerGroup::kWindowed));
  }
  if (!piece.empty()) store_window_in(store, held, piece);
}

// What a store has already it takes for stored. REQUIRES: can_store; text_ and host_row_ are those
// of `held`.
void Backups::store_window_in(int store, const PrefixLock& held, PageStretch pages) {
  RadixPrefixCache& tree = parts_.host.tree();
  WindowedPages& windowed = *parts_.host.windowed_or_null();
  auto ticket = try_open_store(store, held, pages.pages());
  if (!ticket.has_value()) return;
  Transfer& job = ticket->job();
  job.group = LayerGroup::kWindowed;
  fill_text(job, held, std::span(text_).first(at(pages.end * tree.page_size())), tree.page_size(),
            pages.first);
  const std::vector<PageId> carriers(host_row_.begin() + pages.first,
                                     host_row_.begin() + pages.end);
  for (const PageId carrier : carriers) job.from.push_back(windowed.of(carrier));
  ticket->source = tree.share(held);
  ticket->windowed_source = HeldWindowedPages(windowed, carriers);
  submit_store(std::move(*ticket));
}

// What is wrong in host memory goes, and nothing else with it: its text can still be found.
void Backups::landed_window_store(TransferTicket ticket) {
  const Transfer& job = ticket.job();
  const auto held = ticket.windowed_source.carriers();
  const std::vector<PageId> carriers(held.begin(), held.end());
  ticket.windowed_source.reset();
  for (std::size_t i = 0; i < carriers.size(); ++i) {
    const bool stored = job.verdicts[i] == PageVerdict::kDone;
    ++(stored ? parts_.counters.stored : parts_.counters.unstored);
    if (job.verdicts[i] != PageVerdict::kCorrupt) continue;
    ++parts_.counters.of(&TierCounters::corrupt, Tier::kHost);
    parts_.host.windowed_or_null()->forget(carriers[i]);
  }
}

}  // namespace stemma
