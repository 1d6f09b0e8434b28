#include "prefix/eviction_index.h"

#include <algorithm>

#include "base/check.h"

namespace stemma {

EvictionIndex::EvictionIndex(std::int64_t nodes_max)
    : places_(static_cast<std::size_t>(nodes_max), -1) {
  STEMMA_CHECK(nodes_max >= 0 && nodes_max < std::int64_t{1} << 31, "node slots are 31 bits");
  entries_ = UntouchedArray<Entry>(static_cast<std::size_t>(nodes_max) + 3);
}

void EvictionIndex::push(NodeSlot slot, const EvictionKey& key, NodeId id) {
  STEMMA_CHECK(!contains(slot), "a leaf is in the index once");
  sift_up(count_++, {key, id, slot});
}

void EvictionIndex::remove(NodeSlot slot) {
  STEMMA_CHECK(contains(slot), "only an unlocked leaf leaves the index");
  const std::int64_t hole = places_[slot.index()];
  places_.at(slot.index()) = -1;
  if (hole == 0) risen_.fill(NodeSlot());
  const Entry last = entries_[place(--count_)];
  if (hole == count_) return;
  if (hole > 0 && last.colder_than(entries_[place((hole - 1) / kArity)])) {
    sift_up(hole, last);
  } else {
    sift_down(hole, last);
  }
}

const EvictionKey& EvictionIndex::key(NodeSlot slot) const {
  STEMMA_CHECK(contains(slot), "only leaves in the index have a key there");
  return entries_[place(places_[slot.index()])].key;
}

void EvictionIndex::put(std::int64_t i, const Entry& entry) noexcept {
  entries_[place(i)] = entry;
  places_.at(entry.slot.index()) = static_cast<std::int32_t>(i);
}

void EvictionIndex::sift_up(std::int64_t i, const Entry& entry) noexcept {
  while (i > 0) {
    const std::int64_t parent = (i - 1) / kArity;
    if (!entry.colder_than(entries_[place(parent)])) break;
    put(i, entries_[place(parent)]);
    i = parent;
  }
  put(i, entry);
}

void EvictionIndex::sift_down(std::int64_t i, const Entry& entry) noexcept {
  std::size_t depth = i == 0 ? 0 : risen_.size();
  while (i * kArity + 1 < count_) {
    const std::int64_t first = i * kArity + 1;
    const std::int64_t end = std::min(first + kArity, count_);
    // The children of all of these lie side by side: two to a cache line.
    const std::int64_t next_end = std::min(end * kArity + 1, count_);
    for (std::int64_t next = first * kArity + 1; next < next_end; next += 2) {
      __builtin_prefetch(&entries_[place(next)]);
    }
    std::int64_t coldest = first;
    for (std::int64_t child = first + 1; child < end; ++child) {
      if (entries_[place(child)].colder_than(entries_[place(coldest)])) coldest = child;
    }
    if (!entries_[place(coldest)].colder_than(entry)) break;
    put(i, entries_[place(coldest)]);
    if (depth < risen_.size()) risen_[depth++] = entries_[place(i)].slot;
    i = coldest;
  }
  put(i, entry);
}

std::optional<std::string> EvictionIndex::audit() const {
  for (std::int64_t i = 0; i < count_; ++i) {
    const Entry& entry = entries_[place(i)];
    if (places_[entry.slot.index()] != i) return "index: a leaf is elsewhere than its place says";
    if (i > 0 && entry.colder_than(entries_[place((i - 1) / kArity)])) {
      return "index: a leaf is colder than the one above it";
    }
  }
  const auto written = places_.written();
  const auto placed = std::count_if(written.begin(), written.end(), [](auto p) { return p >= 0; });
  if (placed != count_) return "index: more places than leaves";
  return std::nullopt;
}

}  // namespace stemma
