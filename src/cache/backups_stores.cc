// Copies from host memory to the page stores: at once where a store can be given more and is owed
// nothing, else in its turn. So what came first goes first, and what grows meanwhile goes as one.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "cache/backups.h"
#include "cache/job_text.h"
#include "cache/page_row.h"
#include "cache/underway_end.h"

namespace stemma {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

}  // namespace

std::int64_t Backups::creditor_of(int store, LayerGroup group) const {
  return group == LayerGroup::kFull ? store : std::ssize(parts_.stores) + store;
}

bool Backups::can_store(int store) const {
  return store_jobs_[at(store)] < parts_.store_jobs_max &&
         parts_.transfers.can_open(TransferKind::kStore);
}

// Whether the store can be given these pages now; else it is owed them.
bool Backups::can_store_now(int store, LayerGroup group, const PrefixLock& held,
                            const PageStretch& pages) {
  RadixPrefixCache& tree = parts_.host.tree();
  const std::int64_t creditor = creditor_of(store, group);
  if (tree.debts().owed_pages(creditor) == 0 && can_store(store)) return true;
  tree.owe(held, pages, creditor);
  return false;
}

void Backups::submit_store(TransferTicket ticket) {
  ++store_jobs_[at(ticket.job().store)];
  parts_.transfers.submit(std::move(ticket));
}

void Backups::store(const PrefixLock& held, std::int64_t first_page) {
  const PageStretch pages = {first_page, held.tokens() / parts_.host.tree().page_size()};
  for (int store = 0; store < std::ssize(parts_.stores); ++store) {
    if (can_store_now(store, LayerGroup::kFull, held, pages)) store_in(store, held, pages);
  }
}

// The stores take turns. Each step leaves less that is owed.
void Backups::store_owed() {
  for (bool going = parts_.host.tree().debts().any(); going;) {
    going = false;
    for (int store = 0; store < std::ssize(parts_.stores); ++store) {
      going = try_store_owed(store, LayerGroup::kFull) || going;
      if (parts_.host.windowed_or_null() == nullptr) continue;
      going = try_store_owed(store, LayerGroup::kWindowed) || going;
    }
  }
}

bool Backups::try_store_owed(int store, LayerGroup group) {
  if (!can_store(store)) return false;
  const auto owed = parts_.host.tree().try_take_owed(creditor_of(store, group));
  if (!owed.has_value()) return false;
  if (group == LayerGroup::kFull) {
    store_in(store, owed->lock, owed->pages);
  } else {
    store_owed_window_in(store, owed->lock, owed->pages);
  }
  return true;
}

// nullopt, and the pages are counted, while what the store has of the namespace is being purged.
// REQUIRES: can_store.
std::optional<TransferTicket> Backups::try_open_store(int store, const PrefixLock& held,
                                                      std::int64_t pages) {
  const NamespaceDigest& digest = parts_.host.tree().digest(held.namespace_id());
  if (!parts_.purges.usable(store, digest)) {
    parts_.counters.unstored += pages;
    return std::nullopt;
  }
  auto ticket = parts_.transfers.try_open(TransferKind::kStore, store);
  STEMMA_CHECK(ticket.has_value(), "a store is given what it can be given");
  ticket->job().digest = digest;
  ticket->job().deadline_us = parts_.clock.now_us() + parts_.options.store_deadline_us;
  return ticket;
}

// Where a text with these keys ends in the store once all copies have landed, of which it has the
// pages before `first_page`.
std::int64_t Backups::stored_end(int store, std::span<const PageKey> keys,
                                 std::int64_t first_page) const {
  const auto is_meant = [&](const TransferTicket& ticket) {
    return ticket.job().kind == TransferKind::kStore && ticket.job().group == LayerGroup::kFull &&
           ticket.job().store == store && !parts_.host.tree().is_quarantined(ticket.source);
  };
  return underway_end(parts_.transfers, keys.subspan(at(first_page)), first_page, is_meant);
}

// A store that answers from memory says where it ends, which may be before what is new: pages above
// may have been lost, or never stored. Where it says nothing, what is new goes to it alone. Another
// one is asked when it has what is new. REQUIRES: can_store.
void Backups::store_in(int store, const PrefixLock& held, PageStretch pages) {
  RadixPrefixCache& tree = parts_.host.tree();
  auto ticket = try_open_store(store, held, pages.pages());
  if (!ticket.has_value()) return;
  Transfer& job = ticket->job();
  const auto text = text_of(tree, held).first(at(pages.end * tree.page_size()));
  PageStore& target = *parts_.stores[at(store)];
  if (target.lookup_is_local()) {
    fill_text(job, held, text, tree.page_size(), 0);
    const auto found = target.lookup(job.keys, job.deadline_us);
    pages.first = stored_end(store, job.keys, found.ok() ? *found : pages.first);
  }
  if (pages.empty()) return;
  if (!target.lookup_is_local()) {
    const auto keys = keys_from(held, 0).first(at(pages.first));
    job.before.assign(keys.begin(), keys.end());
  }
  fill_text(job, held, text, tree.page_size(), pages.first);
  if (parts_.removals.usable_pages(job.keys) < job.pages()) {  // not yet
    parts_.counters.unstored += job.pages();
    return;
  }
  job.from.resize(at(held.tokens() / tree.page_size() - pages.first));
  held.copy_pages(pages.first, job.from);
  job.from.resize(job.keys.size());
  ticket->source = tree.share(held);
  submit_store(std::move(*ticket));
}

void Backups::landed_store(TransferTicket ticket) {
  const Transfer& job = ticket.job();
  std::int64_t wrong_page = -1;
  for (std::size_t i = 0; i < job.verdicts.size(); ++i) {
    const bool stored = job.verdicts[i] == PageVerdict::kDone;
    ++(stored ? parts_.counters.stored : parts_.counters.unstored);
    if (job.verdicts[i] != PageVerdict::kCorrupt) continue;
    ++parts_.counters.of(&TierCounters::corrupt, Tier::kHost);
    if (wrong_page < 0) wrong_page = job.first_page + static_cast<std::int64_t>(i);
  }
  if (job.lost_pages > 0) store_lost(ticket);
  if (wrong_page < 0) return;
  RadixPrefixCache& tree = parts_.host.tree();
  const NamespaceId ns = ticket.source.namespace_id();
  text_of(tree, ticket.source);
  ticket.reset();
  if (tree.try_discard(ns, text_, wrong_page * tree.page_size())) ++parts_.counters.quarantined;
}

// What comes later goes on from there, or is worth nothing.
void Backups::store_lost(const TransferTicket& ticket) {
  const Transfer& job = ticket.job();
  if (parts_.host.tree().is_quarantined(ticket.source)) return;
  const PageStretch lost = {job.first_page - job.lost_pages, job.first_page};
  if (can_store_now(job.store, LayerGroup::kFull, ticket.source, lost)) {
    store_in(job.store, ticket.source, lost);
  }
}

}  // namespace stemma
