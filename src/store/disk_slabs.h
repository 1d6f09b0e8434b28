// DiskSlabs: slab files, each preallocated and cut into slots of one size, which slots are free,
// and which may still hold a frame that nobody is to find.
//
// A slab is "slab-NUMBER-SLOTBYTES"; numbers are not used again while anything can name them. A
// slot is stale from when it is taken until its page is found, from when its page is found no more,
// and, unless its slab was made in this life, from the opening: until it is blanked.
//
// Thread:     one at a time (the store holds a mutex), but for make_file.
// Memory:     two bits a slot.
// Cost:       try_take, stale_slots: words of bits until there are enough.
// Not here:   what lies in a slot (disk_pages), when a slab is made or goes (the store).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/result.h"
#include "store/disk_files.h"
#include "store/disk_index.h"

namespace stemma {

// What the name of a file says.
struct SlabName {
  std::int32_t number = 0;
  std::int64_t slot_bytes = 0;

  std::string text() const;
  // Nothing for the name of any other file.
  static std::optional<SlabName> try_parse(std::string_view name);
};

// One frame's place in a file.
struct SlotPlace {
  DiskFileId file;
  std::int64_t offset_bytes = 0;
};

class DiskSlabs {
 public:
  struct Slab {
    SlabName name;
    DiskFileId file;
    std::int64_t slots = 0;
    std::int64_t taken = 0;
    std::vector<std::uint64_t> taken_bits;
    std::vector<std::uint64_t> stale_bits;
    std::size_t next_word = 0;  // where the next free slot is looked for first

    std::int64_t bytes() const noexcept { return slots * name.slot_bytes; }
  };

  // Makes a file of `slots` slots durable, without adding it. After an error it may be there, or
  // come to be.
  static Result<DiskFileId> make_file(DiskFiles& files, const SlabName& name, std::int64_t slots,
                                      std::int64_t deadline_us);

  // The number for the next slab; the one given is used up.
  std::int32_t take_number();
  // Neither is a number that something names, nor one below it, given to a slab that is made. Above
  // kCountedMax it is only this one: there is room to count on from below.
  void keep_number(std::int32_t number);
  static constexpr std::int32_t kCountedMax = std::int32_t{1} << 30;

  // What its slots hold at first: nothing, or what another life left there.
  enum class Slots : std::uint8_t { kBlank, kStale };
  void add(const SlabName& name, DiskFileId file, std::int64_t slots, Slots hold);
  // Forgets a slab and gives its file.
  DiskFileId take_out(std::int32_t number);

  // A free slot of this size, the one behind the last if it can be, and marks it as taken.
  std::optional<SlotRef> try_take(std::int64_t slot_bytes);
  // Marks a slot as taken, and what lies there at opening as found. False if it is no slot, or is
  // taken.
  bool try_mark(SlotRef slot);
  void give_back(SlotRef slot);

  // Whether the slot may hold a frame that nobody is to find.
  void set_stale(SlotRef slot, bool stale);
  // Slots of one slab that are, so many at most; none where none is.
  std::vector<SlotRef> stale_slots(std::size_t slots_max) const;

  // Where it lies. REQUIRES: its slab is there.
  SlotPlace place_of(SlotRef slot) const;
  bool contains(std::int32_t number) const { return slabs_.contains(number); }
  const std::map<std::int32_t, Slab>& slabs() const noexcept { return slabs_; }
  std::int64_t bytes() const noexcept { return bytes_; }
  std::int64_t slots() const noexcept { return slots_; }
  std::int64_t free_slots(std::int64_t slot_bytes) const;
  std::int64_t slots_of_size(std::int64_t slot_bytes) const;

 private:
  std::map<std::int32_t, Slab> slabs_;
  std::int32_t next_number_ = 0;
  std::set<std::int32_t> kept_numbers_;  // above kCountedMax
  std::int64_t bytes_ = 0;
  std::int64_t slots_ = 0;
};

}  // namespace stemma
