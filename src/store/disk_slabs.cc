#include "store/disk_slabs.h"

#include <algorithm>
#include <bit>
#include <charconv>

#include "base/check.h"
#include "tier/page_frame.h"

namespace stemma {

namespace {

constexpr std::string_view kPrefix = "slab-";
constexpr std::size_t kWordBits = 64;

template <typename Number>
bool take_number_of(std::string_view& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

}  // namespace

std::string SlabName::text() const {
  return std::string(kPrefix) + std::to_string(number) + "-" + std::to_string(slot_bytes);
}

std::optional<SlabName> SlabName::try_parse(std::string_view name) {
  const std::string_view whole = name;
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  SlabName slab;
  if (!take_number_of(name, slab.number) || !name.starts_with('-')) return std::nullopt;
  name.remove_prefix(1);
  if (!take_number_of(name, slab.slot_bytes) || slab.slot_bytes == 0) return std::nullopt;
  if (slab.slot_bytes % static_cast<std::int64_t>(kFrameAlignment) != 0) return std::nullopt;
  if (slab.text() != whole) return std::nullopt;  // "007", or something behind it
  return slab;
}

Result<DiskFileId> DiskSlabs::make_file(DiskFiles& files, const SlabName& name, std::int64_t slots,
                                        std::int64_t deadline_us) {
  STEMMA_ASSIGN_OR_RETURN(const DiskFileId file,
                          files.create(name.text(), DiskAccess::kDirect, deadline_us));
  Status made = files.allocate(file, slots * name.slot_bytes, deadline_us);
  if (made.ok()) made = files.sync(file, deadline_us);
  if (made.ok()) made = files.sync_directory(deadline_us);
  if (made.ok()) return file;
  files.close(file);
  return std::move(made).error();
}

std::int32_t DiskSlabs::take_number() {
  while (kept_numbers_.contains(next_number_)) ++next_number_;
  return next_number_++;
}

void DiskSlabs::keep_number(std::int32_t number) {
  if (number > kCountedMax) {
    kept_numbers_.insert(number);
  } else {
    next_number_ = std::max(next_number_, number + 1);
  }
}

void DiskSlabs::add(const SlabName& name, DiskFileId file, std::int64_t slots, Slots hold) {
  Slab slab;
  slab.name = name;
  slab.file = file;
  slab.slots = slots;
  const std::size_t words = (static_cast<std::size_t>(slots) + kWordBits - 1) / kWordBits;
  slab.taken_bits.resize(words);
  slab.stale_bits.resize(words, hold == Slots::kStale ? ~std::uint64_t{0} : 0);
  const std::size_t past_end = words * kWordBits - static_cast<std::size_t>(slots);
  slab.stale_bits.back() &= ~std::uint64_t{0} >> past_end;
  bytes_ += slab.bytes();
  slots_ += slots;
  keep_number(name.number);
  const bool added = slabs_.emplace(name.number, std::move(slab)).second;
  STEMMA_CHECK(added, "a number names one slab");
}

DiskFileId DiskSlabs::take_out(std::int32_t number) {
  const auto found = slabs_.find(number);
  STEMMA_CHECK(found != slabs_.end(), "only a slab that is there can go");
  const DiskFileId file = found->second.file;
  bytes_ -= found->second.bytes();
  slots_ -= found->second.slots;
  slabs_.erase(found);
  return file;
}

std::optional<SlotRef> DiskSlabs::try_take(std::int64_t slot_bytes) {
  for (auto& [number, slab] : slabs_) {
    if (slab.name.slot_bytes != slot_bytes || slab.taken == slab.slots) continue;
    const std::size_t words = slab.taken_bits.size();
    for (std::size_t step = 0; step <= words; ++step) {
      const std::size_t word = (slab.next_word + step) % words;
      const auto bit = static_cast<std::size_t>(std::countr_one(slab.taken_bits[word]));
      const auto slot = static_cast<std::int64_t>(word * kWordBits + bit);
      if (bit == kWordBits || slot >= slab.slots) continue;
      slab.taken_bits[word] |= std::uint64_t{1} << bit;
      slab.stale_bits[word] |= std::uint64_t{1} << bit;
      ++slab.taken;
      slab.next_word = word;
      return SlotRef{number, static_cast<std::int32_t>(slot)};
    }
  }
  return std::nullopt;
}

bool DiskSlabs::try_mark(SlotRef slot) {
  const auto found = slabs_.find(slot.slab);
  if (found == slabs_.end() || slot.slot < 0 || slot.slot >= found->second.slots) return false;
  const auto at = static_cast<std::size_t>(slot.slot);
  std::uint64_t& word = found->second.taken_bits[at / kWordBits];
  const std::uint64_t bit = std::uint64_t{1} << (at % kWordBits);
  if ((word & bit) != 0) return false;
  word |= bit;
  found->second.stale_bits[at / kWordBits] &= ~bit;
  ++found->second.taken;
  return true;
}

void DiskSlabs::give_back(SlotRef slot) {
  const auto found = slabs_.find(slot.slab);
  if (found == slabs_.end()) return;  // its slab has gone meanwhile
  const auto at = static_cast<std::size_t>(slot.slot);
  std::uint64_t& word = found->second.taken_bits[at / kWordBits];
  const std::uint64_t bit = std::uint64_t{1} << (at % kWordBits);
  STEMMA_CHECK((word & bit) != 0, "only a taken slot can be given back");
  word &= ~bit;
  --found->second.taken;
}

void DiskSlabs::set_stale(SlotRef slot, bool stale) {
  const auto found = slabs_.find(slot.slab);
  if (found == slabs_.end()) return;  // its slab has gone meanwhile
  const auto at = static_cast<std::size_t>(slot.slot);
  std::uint64_t& word = found->second.stale_bits[at / kWordBits];
  const std::uint64_t bit = std::uint64_t{1} << (at % kWordBits);
  word = stale ? word | bit : word & ~bit;
}

std::vector<SlotRef> DiskSlabs::stale_slots(std::size_t slots_max) const {
  std::vector<SlotRef> slots;
  for (const auto& [number, slab] : slabs_) {
    for (std::size_t word = 0; word < slab.stale_bits.size(); ++word) {
      for (std::uint64_t left = slab.stale_bits[word]; left != 0; left &= left - 1) {
        const auto slot = static_cast<std::int64_t>(word * kWordBits) + std::countr_zero(left);
        if (slots.size() == slots_max) return slots;
        slots.push_back({number, static_cast<std::int32_t>(slot)});
      }
    }
    if (!slots.empty()) return slots;
  }
  return slots;
}

SlotPlace DiskSlabs::place_of(SlotRef slot) const {
  const auto found = slabs_.find(slot.slab);
  STEMMA_CHECK(found != slabs_.end(), "a page's slab is there");
  return {found->second.file, slot.slot * found->second.name.slot_bytes};
}

std::int64_t DiskSlabs::free_slots(std::int64_t slot_bytes) const {
  std::int64_t free = 0;
  for (const auto& [number, slab] : slabs_) {
    if (slab.name.slot_bytes == slot_bytes) free += slab.slots - slab.taken;
  }
  return free;
}

std::int64_t DiskSlabs::slots_of_size(std::int64_t slot_bytes) const {
  std::int64_t slots = 0;
  for (const auto& [number, slab] : slabs_) {
    if (slab.name.slot_bytes == slot_bytes) slots += slab.slots;
  }
  return slots;
}

}  // namespace stemma
