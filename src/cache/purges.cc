#include "cache/purges.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "stemma/log.h"

namespace stemma {
namespace {

// Of the pause before a store that failed is asked again.
constexpr int kDoublingsMax = 10;

std::uint64_t bit_of(int store) {
  return std::uint64_t{1} << store;
}

std::vector<NamespaceFamily> sorted_of(std::span<const NamespaceFamily> namespaces) {
  std::vector<NamespaceFamily> sorted(namespaces.begin(), namespaces.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

bool covers(std::span<const NamespaceFamily> sorted, const NamespaceDigest& digest) {
  return sorted.empty() || std::binary_search(sorted.begin(), sorted.end(), family_of(digest));
}

}  // namespace

Purges::Purges(const Parts& parts) : parts_(parts), stores_(parts.stores.size()) {
  STEMMA_CHECK_LE(stores_.size(), std::size_t{64});
}

bool Purges::can_add(std::span<const NamespaceFamily> namespaces) const {
  return has_room(namespaces.size()) || find_pending(sorted_of(namespaces), 0) != purges_.size();
}

bool Purges::has_room(std::size_t namespaces) const {
  return pending_ < static_cast<std::int64_t>(kPurgesMax) &&
         pending_namespaces_ + namespaces <= kNamespacesMax;
}

// The place of one that takes all of these; the end if there is none.
std::size_t Purges::find_pending(std::span<const NamespaceFamily> sorted,
                                 std::int64_t pages_before) const {
  const auto found = std::find_if(purges_.begin(), purges_.end(), [&](const auto& entry) {
    const Purge& purge = entry.second;
    return purge.stores != 0 && purge.pages_before <= pages_before &&
           std::ranges::equal(purge.namespaces, sorted);
  });
  return static_cast<std::size_t>(found - purges_.begin());
}

std::uint64_t Purges::stores_to_ask() const {
  const std::uint64_t every = stores_.empty() ? 0 : ~std::uint64_t{0} >> (64 - stores_.size());
  return every & ~unable_;
}

PurgeId Purges::add(std::span<const NamespaceFamily> namespaces,
                    const std::array<std::int64_t, 4>& pages) {
  STEMMA_CHECK(can_add(namespaces), "what is pending is bounded (I10)");
  ++additions_;
  return place({.namespaces = sorted_of(namespaces), .is_named = true, .pages = pages},
               stores_to_ask());
}

void Purges::add_behind(std::span<const NamespaceFamily> namespaces, std::int64_t pages_before) {
  if (stores_.empty() || is_to_forget_all(pages_before)) return;
  Purge purge = {.namespaces = sorted_of(namespaces), .pages_before = pages_before};
  fit(purge);
  const bool of_all = purge.namespaces.empty();
  const PurgeId id = place(std::move(purge), stores_to_ask());
  ++additions_;
  if (of_all) absorb_into(id);
}

void Purges::restore(int store, const UnconfirmedPurge& known) {
  Purge purge = {.namespaces = sorted_of(known.namespaces), .pages_before = known.pages_before};
  fit(purge);
  place(std::move(purge), bit_of(store));
}

// Where no more can be remembered it is of everything.
void Purges::fit(Purge& purge) const {
  const bool pending = find_pending(purge.namespaces, purge.pages_before) != purges_.size();
  if (!pending && !has_room(purge.namespaces.size())) purge = {};
}

// Of a store that cannot be purged, what it was asked for stands with it.
void Purges::list_unconfirmed(Unconfirmed& out) const {
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    const std::string label = purge_label(*parts_.stores[i]);
    const Store& store = stores_[i];
    if (store.barred_from_all || !store.barred.empty()) {
      out.purges.push_back({.store = label, .namespaces = store.barred});
    }
    for (const auto& [id, purge] : purges_) {
      if ((purge.stores & bit_of(static_cast<int>(i))) == 0) continue;
      out.purges.push_back(
          {.store = label, .namespaces = purge.namespaces, .pages_before = purge.pages_before});
    }
  }
}

// Every store that can, all that has so many pages before it; the others are never asked again.
// Meanwhile none is given anything.
bool Purges::is_to_forget_all(std::int64_t pages_before) const {
  std::uint64_t stores = 0;
  for (const auto& [id, purge] : purges_) {
    if (purge.namespaces.empty() && purge.pages_before <= pages_before) stores |= purge.stores;
  }
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    const bool forgets = (stores & bit_of(static_cast<int>(i))) != 0;
    if (!forgets && !stores_[i].barred_from_all) return false;
  }
  return true;
}

// A store that has been asked for one answers it.
void Purges::absorb_into(PurgeId all) {
  std::uint64_t idle = 0;
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    if (!stores_[i].asked) idle |= bit_of(static_cast<int>(i));
  }
  const std::int64_t pages_before = find_or_null(all)->pages_before;
  for (auto& [id, purge] : purges_) {
    if (id == all || purge.is_named || purge.pages_before < pages_before) continue;
    settle(purge, idle);
  }
}

// One that takes it is asked for anew: a store that had confirmed it may have been given pages
// since.
PurgeId Purges::place(Purge purge, std::uint64_t stores) {
  const std::size_t same = find_pending(purge.namespaces, purge.pages_before);
  if (same != purges_.size()) {
    auto& [id, pending] = purges_[same];
    pending.stores |= stores;
    pending.is_named |= purge.is_named;
    for (std::size_t tier = 0; tier < purge.pages.size(); ++tier) {
      pending.pages[tier] += purge.pages[tier];
    }
    return id;
  }
  drop_oldest_done();
  purge.stores = stores;
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    if ((unable_ & bit_of(static_cast<int>(i))) != 0) bar(static_cast<int>(i), purge);
  }
  if (purge.stores != 0) {
    ++pending_;
    pending_namespaces_ += purge.namespaces.size();
  }
  const PurgeId id(next_id_++);
  purges_.emplace_back(id, std::move(purge));
  return id;
}

// Where there are as many as are remembered, if any is done.
void Purges::drop_oldest_done() {
  if (purges_.size() < kPurgesMax) return;
  const auto done = std::find_if(purges_.begin(), purges_.end(),
                                 [](const auto& entry) { return entry.second.stores == 0; });
  if (done != purges_.end()) purges_.erase(done);
}

bool Purges::usable(int store, const NamespaceDigest& digest) const {
  if ((unable_ & bit_of(store)) != 0) {
    const Store& barred = stores_[static_cast<std::size_t>(store)];
    return !barred.barred_from_all && !std::ranges::binary_search(barred.barred, family_of(digest));
  }
  if (pending_ == 0) return true;
  return std::none_of(purges_.begin(), purges_.end(), [&](const auto& entry) {
    return (entry.second.stores & bit_of(store)) != 0 && covers(entry.second.namespaces, digest);
  });
}

void Purges::advance() {
  if (pending_ == 0) return;
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    if (stores_[i].asked || parts_.clock.now_us() < stores_[i].ask_again_us) continue;
    ask(static_cast<int>(i));
  }
}

bool Purges::gets_on() const {
  std::uint64_t unconfirmed = 0;
  for (const auto& [id, purge] : purges_) unconfirmed |= purge.stores;
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    const bool is_asked = (unconfirmed & bit_of(static_cast<int>(i))) != 0;
    if (is_asked && stores_[i].failures == 0) return true;
  }
  return false;
}

// The oldest one that waits for no copy: behind the one that failed last, as long as there is one,
// so that it keeps no other waiting.
void Purges::ask(int store) {
  const auto can_begin = [&](const auto& entry) {
    return (entry.second.stores & bit_of(store)) != 0 && !being_stored(entry.second, store);
  };
  const std::int64_t failed = stores_[static_cast<std::size_t>(store)].failed_last;
  const auto behind = std::find_if(purges_.begin(), purges_.end(),
                                   [&](const auto& entry) { return entry.first.value() > failed; });
  auto next = std::find_if(behind, purges_.end(), can_begin);
  if (next == purges_.end()) {
    next = std::find_if(purges_.begin(), behind, can_begin);
    if (next == behind) return;
  }
  auto ticket = parts_.transfers.try_open(TransferKind::kPurge, store);
  if (!ticket.has_value()) return;
  Transfer& job = ticket->job();
  job.namespaces = next->second.namespaces;
  job.first_page = next->second.pages_before;
  job.deadline_us = parts_.clock.now_us() + parts_.options.store_deadline_us;
  ticket->cookie = next->first.value();
  stores_[static_cast<std::size_t>(store)].asked = true;
  parts_.transfers.submit(std::move(*ticket));
}

bool Purges::being_stored(const Purge& purge, int store) const {
  bool found = false;
  parts_.transfers.for_each_underway([&](const TransferTicket& ticket) {
    const Transfer& job = ticket.job();
    if (job.kind != TransferKind::kStore || job.store != store) return;
    found = found || covers(purge.namespaces, job.digest);
  });
  return found;
}

void Purges::landed(const TransferTicket& ticket) {
  const Transfer& job = ticket.job();
  Store& store = stores_[static_cast<std::size_t>(job.store)];
  store.asked = false;
  const auto entry = std::find_if(purges_.begin(), purges_.end(), [&](const auto& other) {
    return other.first.value() == ticket.cookie;
  });
  STEMMA_CHECK(entry != purges_.end(), "a purge stays until every store has confirmed it");
  Purge& purge = entry->second;
  if (!job.purge.has_value()) return note_failure(store);
  const Status& status = job.purge->status;
  if (!status.ok() && status.error().code == ErrorCode::kUnsupported) return note_unable(job.store);
  const Tier tier = parts_.stores[static_cast<std::size_t>(job.store)]->tier();
  purge.pages[static_cast<std::size_t>(tier)] += job.purge->pages;
  if (!status.ok() && !job.purge->got_on()) {
    store.failed_last = ticket.cookie;
    STEMMA_LOG(kWarning, "cache.purge.failed", kv("store", tier_name(tier)),
               kv("error", to_string(status.error())));
    return note_failure(store);
  }
  store.failures = 0;
  if (status.ok()) settle(purge, bit_of(job.store));
}

// Of these stores nothing more is to be heard.
void Purges::settle(Purge& purge, std::uint64_t stores) {
  const bool was_pending = purge.stores != 0;
  purge.stores &= ~stores;
  if (!was_pending || purge.stores != 0) return;
  --pending_;
  pending_namespaces_ -= purge.namespaces.size();
}

void Purges::note_unable(int store) {
  STEMMA_LOG(kWarning, "cache.purge.unsupported",
             kv("store", parts_.stores[static_cast<std::size_t>(store)]->name()));
  unable_ |= bit_of(store);
  for (auto& [id, purge] : purges_) {
    if ((purge.stores & bit_of(store)) == 0) continue;
    bar(store, purge);
    settle(purge, bit_of(store));
  }
}

// The store keeps what it has of the purge's namespaces, which nobody is to find there.
void Purges::bar(int store, Purge& purge) {
  ++additions_;
  purge.unable |= bit_of(store);
  Store& from = stores_[static_cast<std::size_t>(store)];
  std::vector<NamespaceFamily>& barred = from.barred;
  barred.insert(barred.end(), purge.namespaces.begin(), purge.namespaces.end());
  std::sort(barred.begin(), barred.end());
  barred.erase(std::unique(barred.begin(), barred.end()), barred.end());
  const bool too_many = purge.namespaces.empty() || barred.size() > kNamespacesMax;
  from.barred_from_all = from.barred_from_all || too_many;
  if (from.barred_from_all) barred.clear();
}

void Purges::note_failure(Store& store) {
  store.ask_again_us = parts_.clock.now_us() + (parts_.options.store_deadline_us << store.failures);
  store.failures = std::min(store.failures + 1, kDoublingsMax);
}

std::optional<PurgeReport> Purges::report(PurgeId id) const {
  const Purge* const purge = find_or_null(id);
  if (purge == nullptr) return std::nullopt;
  PurgeReport report;
  report.pages = purge->pages;
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    const std::uint64_t bit = bit_of(static_cast<int>(i));
    if ((purge->stores & bit) != 0) report.pending.push_back(parts_.stores[i]->tier());
    if ((purge->unable & bit) != 0) report.unable.push_back(parts_.stores[i]->tier());
  }
  return report;
}

const Purges::Purge* Purges::find_or_null(PurgeId id) const {
  const auto found = std::find_if(purges_.begin(), purges_.end(),
                                  [id](const auto& entry) { return entry.first == id; });
  return found == purges_.end() ? nullptr : &found->second;
}

}  // namespace stemma
