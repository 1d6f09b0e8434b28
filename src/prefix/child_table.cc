#include "prefix/child_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/prng.h"

namespace stemma {

namespace {

// Words of 64 bits with about as many ones as zeros: digits of e and of the golden ratio.
constexpr std::uint64_t kFirstKey = 0xB7E151628AED2A6Bu;
constexpr std::uint64_t kSecondKey = 0x9E3779B97F4A7C15u;

// Room that every table has from the beginning: 12 KiB.
constexpr std::int64_t kNodesMin = 1024;

std::uint64_t load64(const std::byte* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

// Both halves of the 128-bit product, folded: every bit of a and b reaches every bit of the result.
std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = Wide{a} * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace

ChildHash::ChildHash(std::uint64_t seed, int bits)
    : seed_(mix64(seed)), mask_(~std::uint32_t{0} >> (32 - bits)) {
  STEMMA_CHECK(bits > 0 && bits <= 32, "a look-up hash has 1 to 32 bits");
}

// Two sums side by side take 16 bytes each a step, so that neither waits for the other.
std::uint32_t ChildHash::operator()(NodeSlot parent, std::span<const TokenId> page) const noexcept {
  const std::span<const std::byte> bytes = std::as_bytes(page);
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t first = seed_ ^ kFirstKey;
  std::uint64_t second = seed_ ^ static_cast<std::uint64_t>(parent.value());
  for (; left >= 32; left -= 32, at += 32) {
    first = fold(load64(at) ^ kFirstKey, load64(at + 8) ^ first);
    second = fold(load64(at + 16) ^ kSecondKey, load64(at + 24) ^ second);
  }
  for (; left >= 8; left -= 8, at += 8) first = fold(load64(at) ^ kSecondKey, first ^ seed_);
  if (left > 0) {  // one token
    std::uint32_t word = 0;
    std::memcpy(&word, at, sizeof(word));
    first = fold(word ^ kSecondKey, first ^ seed_);
  }
  const std::uint64_t sum = fold(first ^ kSecondKey, second ^ kFirstKey);
  return static_cast<std::uint32_t>(sum >> 32) & mask_;
}

ChildTable::ChildTable(std::int64_t nodes_max) : nodes_max_(nodes_max) {
  STEMMA_CHECK(nodes_max >= 0 && nodes_max < std::int64_t{1} << 31, "node slots are 31 bits");
  make_room(std::min(nodes_max, std::max(kNodesMin, nodes_max / 8)));
}

// Entries lie in the order of their hashes but for collisions, in any table: both are walked from
// end to end.
void ChildTable::make_room(std::int64_t nodes) {
  const UntouchedArray<Entry> before = std::exchange(entries_, {});
  const auto room = static_cast<std::size_t>(nodes);
  entries_ = UntouchedArray<Entry>(room + room / 2 + 2, Entry());
  room_ = nodes;
  for (const Entry& entry : before) {
    if (entry.slot.valid()) put(entry);
  }
}

void ChildTable::put(const Entry& entry) {
  std::size_t i = home(entry.hash);
  while (entries_[i].slot.valid()) i = next(i);
  entries_[i] = entry;
}

void ChildTable::insert(std::uint32_t hash, NodeSlot slot) {
  STEMMA_CHECK_LT(count_, nodes_max_);
  if (count_ == room_) make_room(std::min(nodes_max_, 2 * room_));
  put({hash, slot});
  ++count_;
}

// Closes the gap: an entry behind it moves in unless that would put it before its home.
void ChildTable::erase(std::uint32_t hash, NodeSlot slot) {
  std::size_t gap = find_entry(hash, slot);
  for (std::size_t i = next(gap); entries_[i].slot.valid(); i = next(i)) {
    if (distance(home(entries_[i].hash), i) < distance(gap, i)) continue;
    entries_[gap] = entries_[i];
    gap = i;
  }
  entries_[gap] = Entry();
  --count_;
}

void ChildTable::replace(std::uint32_t hash, NodeSlot from, NodeSlot to) {
  entries_[find_entry(hash, from)].slot = to;
}

std::size_t ChildTable::find_entry(std::uint32_t hash, NodeSlot slot) const {
  std::size_t i = home(hash);
  while (entries_[i].slot != slot) {
    STEMMA_CHECK(entries_[i].slot.valid(), "every node but a root is in the table");
    i = next(i);
  }
  return i;
}

}  // namespace stemma
