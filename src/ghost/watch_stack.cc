// Watches lie at places that only grow; a Fenwick tree counts the taken ones. There are twice as
// many places as watches: when the last one is used, the watches move together, which costs O(1) a
// push.
#include "ghost/watch_stack.h"

#include <bit>
#include <cstddef>

#include "base/check.h"

namespace stemma {

WatchStack::WatchStack(std::int64_t watches_max) : watches_max_(watches_max) {
  STEMMA_CHECK(watches_max >= 1 && watches_max < (std::int64_t{1} << 30), "watches fit into ids");
  const auto most = static_cast<std::size_t>(watches_max);
  table_.resize(std::bit_ceil(2 * (most + 1)));
  hash_at_.resize(2 * most);
  taken_.resize(2 * most);
  partial_.resize(2 * most + 1);
}

std::optional<std::int64_t> WatchStack::try_rank(std::int64_t hash) const {
  const Entry& entry = table_[find(hash)];
  if (entry.place == kNowhere) return std::nullopt;
  return watches_ - count_up_to(entry.place);
}

void WatchStack::remove(std::int64_t hash) {
  const std::size_t entry = find(hash);
  const std::int32_t place = table_[entry].place;
  if (place == kNowhere) return;
  erase_entry(entry);
  taken_[static_cast<std::size_t>(place)] = false;
  count(place, -1);
  --watches_;
}

void WatchStack::push(std::int64_t hash) {
  if (watches_ == watches_max_) remove(hash_at_[static_cast<std::size_t>(lowest_place())]);
  if (static_cast<std::size_t>(next_place_) == hash_at_.size()) compact();
  Entry& entry = table_[find(hash)];
  STEMMA_CHECK(entry.place == kNowhere, "a page is watched once");
  entry = {.hash = hash, .place = next_place_};
  hash_at_[static_cast<std::size_t>(next_place_)] = hash;
  taken_[static_cast<std::size_t>(next_place_)] = true;
  count(next_place_, 1);
  ++next_place_;
  ++watches_;
}

std::size_t WatchStack::memory_bytes() const noexcept {
  return table_.size() * sizeof(Entry) + hash_at_.size() * sizeof(std::int64_t) +
         taken_.size() / 8 + partial_.size() * sizeof(std::int32_t);
}

std::size_t WatchStack::home(std::int64_t hash) const {
  return hash_(hash) & (table_.size() - 1);
}

std::size_t WatchStack::find(std::int64_t hash) const {
  std::size_t entry = home(hash);
  while (table_[entry].place != kNowhere && table_[entry].hash != hash) {
    entry = (entry + 1) & (table_.size() - 1);
  }
  return entry;
}

// Later entries of the same run move up, so that no look-up ends at a hole before its entry.
void WatchStack::erase_entry(std::size_t entry) {
  const std::size_t mask = table_.size() - 1;
  std::size_t hole = entry;
  for (std::size_t next = (hole + 1) & mask; table_[next].place != kNowhere;
       next = (next + 1) & mask) {
    const std::size_t distance = (next - home(table_[next].hash)) & mask;
    if (distance < ((next - hole) & mask)) continue;  // its home lies behind the hole
    table_[hole] = table_[next];
    hole = next;
  }
  table_[hole].place = kNowhere;
}

void WatchStack::count(std::int32_t place, std::int32_t change) {
  const auto size = partial_.size();
  for (auto i = static_cast<std::size_t>(place) + 1; i < size; i += i & (~i + 1)) {
    partial_[i] += change;
  }
}

std::int32_t WatchStack::count_up_to(std::int32_t place) const {
  std::int32_t sum = 0;
  for (auto i = static_cast<std::size_t>(place) + 1; i > 0; i &= i - 1) sum += partial_[i];
  return sum;
}

// The tree is walked from its largest part down: the last place before which nothing is taken.
std::int32_t WatchStack::lowest_place() const {
  std::size_t place = 0;
  for (std::size_t step = std::bit_floor(partial_.size() - 1); step > 0; step /= 2) {
    if (place + step < partial_.size() && partial_[place + step] == 0) place += step;
  }
  return static_cast<std::int32_t>(place);
}

void WatchStack::compact() {
  std::size_t to = 0;
  for (std::size_t from = 0; from < hash_at_.size(); ++from) {
    if (!taken_[from]) continue;
    hash_at_[to] = hash_at_[from];
    table_[find(hash_at_[to])].place = static_cast<std::int32_t>(to);
    ++to;
  }
  next_place_ = static_cast<std::int32_t>(to);
  taken_.assign(taken_.size(), false);
  partial_.assign(partial_.size(), 0);
  for (std::int32_t place = 0; place < next_place_; ++place) {
    taken_[static_cast<std::size_t>(place)] = true;
    count(place, 1);
  }
}

}  // namespace stemma
