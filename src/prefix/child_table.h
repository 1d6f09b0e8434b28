// ChildTable: finds a node by its parent and the first page of its tokens; one table for the tree.
//
// Open addressing with linear probing, at most two thirds full. The table holds hashes and slots
// alone: whether an entry of the right hash is the child that is wanted, the caller decides by its
// parent and its tokens (I7), so a collision costs time and never correctness.
//
// Thread:     engine thread only.
// Memory:     12 bytes a node it has room for: an eighth of those that the tree may have, for nodes
//             have several pages each; then twice as many, and again, where they are more.
// Cost:       about 1.5 entries a look-up, 2 where it is full; one cache line. Growing walks both
//             tables in order, some nanoseconds a node.
// Not here:   tokens (page_arena), nodes (radix_node).
#pragma once

#include <cstdint>
#include <span>

#include "prefix/radix_node.h"

namespace stemma {

// Hashes of (parent, first page). Seeded: texts cannot be made to collide by whoever does not know
// the seed.
class ChildHash {
 public:
  // Keeps the lowest `bits` of each hash: 32, or fewer to test that collisions do no harm.
  // REQUIRES: 0 < bits <= 32.
  ChildHash(std::uint64_t seed, int bits);

  std::uint32_t operator()(NodeSlot parent, std::span<const TokenId> page) const noexcept;

 private:
  std::uint64_t seed_;
  std::uint32_t mask_;
};

class ChildTable {
 public:
  // REQUIRES: 0 <= nodes_max < 2^31.
  explicit ChildTable(std::int64_t nodes_max);

  // REQUIRES: the table then has at most nodes_max entries.
  void insert(std::uint32_t hash, NodeSlot slot);
  // REQUIRES: the entry is there.
  void erase(std::uint32_t hash, NodeSlot slot);
  // Gives the entry of `from` to `to`. REQUIRES: the entry is there.
  void replace(std::uint32_t hash, NodeSlot from, NodeSlot to);

  // The first entry of `hash` whose slot `wanted` accepts; an invalid slot if there is none.
  template <typename Wanted>
  NodeSlot find(std::uint32_t hash, Wanted&& wanted) const {
    for (std::size_t i = home(hash); entries_[i].slot.valid(); i = next(i)) {
      if (entries_[i].hash == hash && wanted(entries_[i].slot)) return entries_[i].slot;
    }
    return NodeSlot();
  }

  // Begins loading the entries of `hash`.
  [[gnu::always_inline]] void prefetch(std::uint32_t hash) const noexcept {
    __builtin_prefetch(&entries_[home(hash)]);
  }

  std::int64_t entries() const noexcept { return count_; }
  std::int64_t reserved_bytes() const noexcept {
    return static_cast<std::int64_t>(entries_.size() * sizeof(Entry));
  }

 private:
  struct Entry {
    std::uint32_t hash = 0;
    NodeSlot slot;  // invalid: empty
  };

  // Where a search for `hash` begins: its high bits spread over the table.
  std::size_t home(std::uint32_t hash) const noexcept {
    return static_cast<std::size_t>((std::uint64_t{hash} * entries_.size()) >> 32);
  }
  std::size_t next(std::size_t i) const noexcept { return i + 1 == entries_.size() ? 0 : i + 1; }
  // Steps that lead from one entry to another.
  std::size_t distance(std::size_t from, std::size_t to) const noexcept {
    return to >= from ? to - from : to + entries_.size() - from;
  }
  std::size_t find_entry(std::uint32_t hash, NodeSlot slot) const;
  void make_room(std::int64_t nodes);
  void put(const Entry& entry);

  std::int64_t nodes_max_;
  std::int64_t room_ = 0;  // nodes
  UntouchedArray<Entry> entries_;
  std::int64_t count_ = 0;
};

}  // namespace stemma
