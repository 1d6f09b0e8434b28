// HighWaterArray: an array whose elements have one value until they are written, and which is
// touched up to the last of those only.
//
// For what is kept beside nodes: their slots are handed out from the lowest on, and a tree seldom
// has as many nodes as it may.
//
// Thread:     as the elements.
// Memory:     n elements of address space; backed up to the high-water mark.
// Cost:       a comparison more than an array. The first write beyond the mark fills what is
//             between, some kB at once.
// Not here:   elements without a value (untouched_array).
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "prefix/untouched_array.h"

namespace stemma {

template <typename T>
class HighWaterArray {
 public:
  HighWaterArray(std::size_t count, const T& value) : elements_(count), value_(value) {}

  // REQUIRES: i < the count.
  const T& operator[](std::size_t i) const noexcept { return i < written_ ? elements_[i] : value_; }
  // To be written. REQUIRES: i < the count.
  T& at(std::size_t i) noexcept {
    if (i >= written_) [[unlikely]]
      raise(i);
    return elements_[i];
  }
  // Those below the mark: every other one has the value of the beginning.
  std::span<const T> written() const noexcept { return {elements_.data(), written_}; }

 private:
  static constexpr std::size_t kStep = 1024;

  void raise(std::size_t i) noexcept {
    const std::size_t end = std::min(elements_.size(), (i / kStep + 1) * kStep);
    std::fill(elements_.data() + written_, elements_.data() + end, value_);
    written_ = end;
  }

  UntouchedArray<T> elements_;
  T value_;
  std::size_t written_ = 0;
};

}  // namespace stemma
