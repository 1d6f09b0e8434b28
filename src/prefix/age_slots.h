// AgeSlots: how many pages of each class were last used about when.
//
// A slot stands for a stretch of time; the older it is, the longer the stretch: at most a
// sixteenth of its age. So a few hundred of them hold any past, and a page is found by its time.
//
// Thread:     engine thread only.
// Memory:     1.7 MB of address space, reserved at construction, touched up to the slots in use.
// Cost:       find O(log slots); merge O(slots).
// Not here:   what the ages are good for (hazard_table).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "prefix/page_class.h"
#include "prefix/untouched_array.h"

namespace stemma {

class AgeSlots {
 public:
  static constexpr int kSlotsMax = 1024;
  static constexpr std::int64_t kStretchMin_us = 250'000;

  AgeSlots();

  // REQUIRES: now_us never goes back from one call to the next.
  void add(int page_class, std::int64_t weight, std::int64_t pages, std::int64_t now_us);
  // Takes pages out. REQUIRES: they were added at used_us with this class and weight.
  void remove(int page_class, std::int64_t weight, std::int64_t pages, std::int64_t used_us);

  // Joins slots that are old enough to be one.
  void merge(std::int64_t now_us);

  int slots() const noexcept { return slots_; }
  // The middle of a slot's stretch. REQUIRES: 0 <= slot < slots(), oldest first.
  std::int64_t middle_us(int slot, std::int64_t now_us) const noexcept;
  // By class.
  std::span<const std::int64_t> weights(int slot) const noexcept {
    return {weights_.data() + place(slot, 0), std::size_t{PageClass::kClasses}};
  }

  // Pages last used at or after this time are the `pages` most recently used ones, as nearly as
  // slots can tell; all of them are where there are fewer.
  std::int64_t used_since_us(std::int64_t pages) const noexcept;

 private:
  static std::size_t place(int slot, int page_class) noexcept {
    return static_cast<std::size_t>(slot) * PageClass::kClasses +
           static_cast<std::size_t>(page_class);
  }
  std::int64_t end_us(int slot, std::int64_t now_us) const noexcept;
  void copy(int from, int to) noexcept;
  void join(int from, int to) noexcept;

  int slots_ = 0;
  std::array<std::int64_t, kSlotsMax> begin_us_ = {};
  std::array<std::int64_t, kSlotsMax> pages_ = {};
  UntouchedArray<std::int64_t> weights_;  // [slots, classes]
};

}  // namespace stemma
