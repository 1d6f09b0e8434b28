#include "cache/removals.h"

#include <algorithm>

#include "base/check.h"
#include "stemma/log.h"

namespace stemma {
namespace {

// Of the pause before a store that failed is asked again: a store that only reads is not asked for
// ever.
constexpr int kDoublingsMax = 10;

std::uint64_t bit_of(int store) {
  return std::uint64_t{1} << store;
}

}  // namespace

Removals::Removals(const Parts& parts) : parts_(parts), stores_(parts.stores.size()) {
  STEMMA_CHECK_LE(stores_.size(), std::size_t{64});
}

void Removals::add(std::span<const PageKey> keys, LayerGroup group) {
  if (stores_.empty() || overflowed_) return;
  insert(keys, group, ~std::uint64_t{0} >> (64 - stores_.size()));
}

void Removals::restore(int store, const UnconfirmedRemoval& removal) {
  if (!overflowed_) insert(removal.keys, removal.group, bit_of(store));
}

// Of equal keys one stays, which is in question wherever one of them is.
void Removals::insert(std::span<const PageKey> keys, LayerGroup group, std::uint64_t stores) {
  if (keys.empty()) return;
  ++additions_;
  for (const PageKey& key : keys) wrong_.push_back({key, stores, group});
  std::sort(wrong_.begin(), wrong_.end(),
            [](const WrongPage& a, const WrongPage& b) { return a.key < b.key; });
  auto kept = wrong_.begin();
  for (auto next = kept + 1; next != wrong_.end(); ++next) {
    if (next->key == kept->key) {
      kept->stores |= next->stores;
    } else {
      *++kept = *next;
    }
  }
  wrong_.erase(kept + 1, wrong_.end());
  if (std::ssize(wrong_) > kPagesMax) {
    STEMMA_LOG(kError, "cache.removals.too_many", kv("pages_max", kPagesMax));
    overflowed_ = true;
    wrong_.clear();
  }
}

void Removals::list_unconfirmed(Unconfirmed& out) const {
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    const std::string label = purge_label(*parts_.stores[i]);
    if (overflowed_) out.purges.push_back({.store = label, .namespaces = {}});
    for (const LayerGroup group : {LayerGroup::kFull, LayerGroup::kWindowed}) {
      UnconfirmedRemoval removal = {.store = label, .group = group, .keys = {}};
      for (const WrongPage& page : wrong_) {
        const bool has_it = (page.stores & bit_of(static_cast<int>(i))) != 0;
        if (has_it && page.group == group) removal.keys.push_back(page.key);
      }
      if (!removal.keys.empty()) out.removals.push_back(std::move(removal));
    }
  }
}

std::int64_t Removals::usable_pages(std::span<const PageKey> keys) const {
  if (overflowed_) return 0;
  if (wrong_.empty()) return std::ssize(keys);
  const auto in_question = [&](const PageKey& key) { return find_or_null(key) != nullptr; };
  return std::ranges::find_if(keys, in_question) - keys.begin();
}

bool Removals::windows_usable(std::span<const PageKey> windowed) const {
  return usable_pages(windowed) == std::ssize(windowed);
}

const Removals::WrongPage* Removals::find_or_null(const PageKey& key) const {
  const auto place =
      std::lower_bound(wrong_.begin(), wrong_.end(), key,
                       [](const WrongPage& page, const PageKey& k) { return page.key < k; });
  return place != wrong_.end() && place->key == key ? &*place : nullptr;
}

bool Removals::gets_on() const {
  std::uint64_t unconfirmed = 0;
  for (const WrongPage& page : wrong_) unconfirmed |= page.stores;
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    const bool is_asked = (unconfirmed & bit_of(static_cast<int>(i))) != 0;
    if (is_asked && stores_[i].failures == 0) return true;
  }
  return false;
}

void Removals::advance() {
  if (wrong_.empty()) return;
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    const auto store = static_cast<int>(i);
    if (stores_[i].asked || parts_.clock.now_us() < stores_[i].ask_again_us) continue;
    if (!being_stored(store)) ask(store);
  }
}

bool Removals::being_stored(int store) const {
  bool found = false;
  parts_.transfers.for_each_underway([&](const TransferTicket& ticket) {
    const Transfer& job = ticket.job();
    if (found || job.kind != TransferKind::kStore || job.store != store) return;
    // A windowed one names the pages that it hangs on, which are wrong too.
    found = usable_pages(job.keys) < job.pages();
  });
  return found;
}

// Of each group of layers in turn: a job's frames are of one length.
void Removals::ask(int store) {
  Store& asked = stores_[static_cast<std::size_t>(store)];
  const bool was_full = asked.group == LayerGroup::kFull;
  LayerGroup group = was_full ? LayerGroup::kWindowed : LayerGroup::kFull;
  auto page = next_page(store, group);
  if (page == wrong_.end()) page = next_page(store, group = asked.group);
  if (page == wrong_.end()) return;
  auto ticket = parts_.transfers.try_open(TransferKind::kRemove, store);
  if (!ticket.has_value()) return;
  Transfer& job = ticket->job();
  job.group = group;
  job.deadline_us = parts_.clock.now_us() + parts_.options.store_deadline_us;
  for (; page != wrong_.end() && job.pages() < parts_.options.load_pages_max; ++page) {
    if ((page->stores & bit_of(store)) != 0 && page->group == group) job.keys.push_back(page->key);
  }
  asked.asked = true;
  asked.group = group;
  asked.last_of(group) = job.keys.back();
  parts_.transfers.submit(std::move(*ticket));
}

// The next one in question: behind the last that the store was asked for; else from the begin.
std::vector<Removals::WrongPage>::const_iterator Removals::next_page(int store,
                                                                     LayerGroup group) const {
  const PageKey& last = stores_[static_cast<std::size_t>(store)].last_of(group);
  const auto in_question = [&](const WrongPage& page) {
    return (page.stores & bit_of(store)) != 0 && page.group == group;
  };
  const auto behind =
      std::upper_bound(wrong_.begin(), wrong_.end(), last,
                       [](const PageKey& k, const WrongPage& page) { return k < page.key; });
  const auto found = std::find_if(behind, wrong_.end(), in_question);
  return found != wrong_.end() ? found : std::find_if(wrong_.begin(), wrong_.end(), in_question);
}

void Removals::landed(const TransferTicket& ticket) {
  const Transfer& job = ticket.job();
  Store& store = stores_[static_cast<std::size_t>(job.store)];
  store.asked = false;
  bool failed = true;
  for (std::size_t i = 0; i < job.verdicts.size(); ++i) {
    if (job.verdicts[i] != PageVerdict::kDone) continue;
    gone(job.keys[i], job.store);
    failed = false;
  }
  const std::int64_t pause_us = parts_.options.store_deadline_us << store.failures;
  if (failed) store.ask_again_us = parts_.clock.now_us() + pause_us;
  store.failures = failed ? std::min(store.failures + 1, kDoublingsMax) : 0;
  std::erase_if(wrong_, [](const WrongPage& page) { return page.stores == 0; });
}

void Removals::gone(const PageKey& key, int store) {
  const WrongPage* const page = find_or_null(key);
  if (page != nullptr)
    wrong_[static_cast<std::size_t>(page - wrong_.data())].stores &= ~bit_of(store);
}

}  // namespace stemma
