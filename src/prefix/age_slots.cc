#include "prefix/age_slots.h"

#include <algorithm>

#include "base/check.h"

namespace stemma {

AgeSlots::AgeSlots()
    : weights_(static_cast<std::size_t>(kSlotsMax) * std::size_t{PageClass::kClasses}) {}

void AgeSlots::add(int page_class, std::int64_t weight, std::int64_t pages, std::int64_t now_us) {
  const auto newest = static_cast<std::size_t>(std::max(slots_ - 1, 0));
  if (slots_ == 0 || (now_us - begin_us_[newest] >= kStretchMin_us && slots_ < kSlotsMax)) {
    const auto opened = static_cast<std::size_t>(slots_);
    begin_us_[opened] = now_us;
    pages_[opened] = 0;
    std::fill_n(weights_.data() + place(slots_, 0), std::size_t{PageClass::kClasses}, 0);
    ++slots_;
  }
  weights_[place(slots_ - 1, page_class)] += weight * pages;
  pages_[static_cast<std::size_t>(slots_ - 1)] += pages;
}

void AgeSlots::remove(int page_class, std::int64_t weight, std::int64_t pages,
                      std::int64_t used_us) {
  const auto end = begin_us_.begin() + slots_;
  const auto after = std::upper_bound(begin_us_.begin(), end, used_us);
  STEMMA_CHECK(after != begin_us_.begin(), "a page leaves a slot that it entered");
  const auto slot = static_cast<int>(after - begin_us_.begin()) - 1;
  weights_[place(slot, page_class)] -= weight * pages;
  pages_[static_cast<std::size_t>(slot)] -= pages;
}

// A slot joins the one before it if both together are no longer than a sixteenth of their age.
void AgeSlots::merge(std::int64_t now_us) {
  int kept = 0;
  for (int slot = 1; slot < slots_; ++slot) {
    const std::int64_t begin = begin_us_[static_cast<std::size_t>(kept)];
    const std::int64_t end = end_us(slot, now_us);
    if ((end - begin) * 16 <= now_us - end) {
      join(slot, kept);
    } else if (++kept != slot) {
      copy(slot, kept);
    }
  }
  slots_ = std::min(slots_, kept + 1);
}

std::int64_t AgeSlots::middle_us(int slot, std::int64_t now_us) const noexcept {
  const std::int64_t begin = begin_us_[static_cast<std::size_t>(slot)];
  return begin + (end_us(slot, now_us) - begin) / 2;
}

std::int64_t AgeSlots::used_since_us(std::int64_t pages) const noexcept {
  for (int slot = slots_ - 1; slot >= 0; --slot) {
    pages -= pages_[static_cast<std::size_t>(slot)];
    if (pages < 0) return end_us(slot, begin_us_[static_cast<std::size_t>(slot)] + 1);
  }
  return 0;
}

std::int64_t AgeSlots::end_us(int slot, std::int64_t now_us) const noexcept {
  return slot + 1 < slots_ ? begin_us_[static_cast<std::size_t>(slot) + 1] : now_us;
}

void AgeSlots::copy(int from, int to) noexcept {
  begin_us_[static_cast<std::size_t>(to)] = begin_us_[static_cast<std::size_t>(from)];
  pages_[static_cast<std::size_t>(to)] = pages_[static_cast<std::size_t>(from)];
  std::copy_n(weights_.data() + place(from, 0), std::size_t{PageClass::kClasses},
              weights_.data() + place(to, 0));
}

void AgeSlots::join(int from, int to) noexcept {
  pages_[static_cast<std::size_t>(to)] += pages_[static_cast<std::size_t>(from)];
  for (int page_class = 0; page_class < PageClass::kClasses; ++page_class) {
    weights_[place(to, page_class)] += weights_[place(from, page_class)];
  }
}

}  // namespace stemma
