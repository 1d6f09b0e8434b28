#include "cache/removals.h"

#include <algorithm>

#include "base/check.h"
#include "stemma/log.h"

namespace stemma {
namespace {

std::uint64_t bit_of(int store) {
  return std::uint64_t{1} << store;
}

}  // namespace

Removals::Removals(const Parts& parts) : parts_(parts), stores_(parts.stores.size()) {
  STEMMA_CHECK_LE(stores_.size(), std::size_t{64});
}

void Removals::add(std::span<const PageKey> keys) {
  if (stores_.empty() || overflowed_) return;
  const std::uint64_t all = ~std::uint64_t{0} >> (64 - stores_.size());
  for (const PageKey& key : keys) wrong_.push_back({key, all});
  std::stable_sort(wrong_.begin(), wrong_.end(),
                   [](const WrongPage& a, const WrongPage& b) { return a.key < b.key; });
  // Of equal keys the later one says more: it is in question in every store again.
  const auto last = std::unique(wrong_.rbegin(), wrong_.rend(),
                                [](const auto& a, const auto& b) { return a.key == b.key; });
  wrong_.erase(wrong_.begin(), last.base());
  if (pages() <= kPagesMax) return;
  STEMMA_LOG(kError, "cache.removals.too_many", kv("pages", pages()), kv("pages_max", kPagesMax));
  overflowed_ = true;
  wrong_.clear();
}

std::int64_t Removals::allowed_pages(std::span<const PageKey> keys) const {
  if (overflowed_) return 0;
  if (wrong_.empty()) return std::ssize(keys);
  const auto first = std::find_if(keys.begin(), keys.end(),
                                  [this](const PageKey& key) { return find(key) != wrong_.end(); });
  return first - keys.begin();
}

std::vector<Removals::WrongPage>::const_iterator Removals::find(const PageKey& key) const {
  const auto place =
      std::lower_bound(wrong_.begin(), wrong_.end(), key,
                       [](const WrongPage& page, const PageKey& k) { return page.key < k; });
  return place != wrong_.end() && place->key == key ? place : wrong_.end();
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
    found = allowed_pages(job.keys) < job.pages();
  });
  return found;
}

void Removals::ask(int store) {
  const auto in_question = [store](const WrongPage& page) { return page.stores & bit_of(store); };
  auto page = std::find_if(wrong_.begin(), wrong_.end(), in_question);
  if (page == wrong_.end()) return;
  auto ticket = parts_.transfers.try_open(TransferKind::kRemove, store);
  if (!ticket.has_value()) return;
  Transfer& job = ticket->job();
  job.deadline_us = parts_.clock.now_us() + parts_.options.store_deadline_us;
  for (; page != wrong_.end() && job.pages() < parts_.options.load_pages_max; ++page) {
    if (in_question(*page)) job.keys.push_back(page->key);
  }
  stores_[static_cast<std::size_t>(store)].asked = true;
  parts_.transfers.submit(std::move(*ticket));
}

void Removals::landed(const TransferTicket& ticket) {
  const Transfer& job = ticket.job();
  Store& store = stores_[static_cast<std::size_t>(job.store)];
  store.asked = false;
  for (std::size_t i = 0; i < job.verdicts.size(); ++i) {
    const auto found = find(job.keys[i]);
    if (found == wrong_.end()) continue;
    if (job.verdicts[i] == PageVerdict::kDone) {
      wrong_[static_cast<std::size_t>(found - wrong_.begin())].stores &= ~bit_of(job.store);
    } else {
      store.ask_again_us = parts_.clock.now_us() + parts_.options.store_deadline_us;
    }
  }
  std::erase_if(wrong_, [](const WrongPage& page) { return page.stores == 0; });
}

}  // namespace stemma
