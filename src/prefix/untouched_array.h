// UntouchedArray: memory reserved for the most there may ever be, and not touched until it is used.
//
// The operating system backs only what was written, so a structure sized for the worst case costs
// what it holds. Large arrays ask for huge pages: a tree is walked at random, and with small pages
// every step would miss the address cache as well (evicting from a tree of 100,000 leaves takes
// three times as long).
//
// Thread:     as the elements.
// Memory:     n elements of address space; backed in steps of 2 MiB where there are huge pages, or
//             of 4 KiB if that is asked for.
// Cost:       construction O(1), or a write of every element where they are given a value.
// Not here:   which elements were ever written: its owner knows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace stemma {

// How the operating system backs large arrays: a huge page at the first touch, or small ones, for
// arrays of which only few places are ever touched.
enum class Backing { kHuge, kSmall };

// Memory for arrays: aligned to cache line pairs, or to huge pages if it is large.
void* reserve_untouched(std::size_t bytes, Backing backing = Backing::kHuge);
// REQUIRES: `memory` came from reserve_untouched(bytes).
void give_back_untouched(void* memory, std::size_t bytes) noexcept;

template <typename T>
class UntouchedArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>,
                "elements are written by assignment and never destroyed");

 public:
  UntouchedArray() noexcept = default;
  // Elements without a value: each is written before it is read.
  explicit UntouchedArray(std::size_t count, Backing backing = Backing::kHuge)
      : elements_(static_cast<T*>(reserve_untouched(count * sizeof(T), backing))), count_(count) {}
  // Elements of one value, all touched.
  UntouchedArray(std::size_t count, const T& value) : UntouchedArray(count) {
    std::fill_n(elements_, count, value);
  }
  UntouchedArray(UntouchedArray&& other) noexcept { swap(other); }
  UntouchedArray& operator=(UntouchedArray&& other) noexcept {
    swap(other);
    return *this;
  }
  UntouchedArray(const UntouchedArray&) = delete;
  UntouchedArray& operator=(const UntouchedArray&) = delete;
  ~UntouchedArray() {
    if (elements_ != nullptr) give_back_untouched(elements_, count_ * sizeof(T));
  }

  // REQUIRES: i < size(); an element that is read was written before.
  T& operator[](std::size_t i) noexcept { return elements_[i]; }
  const T& operator[](std::size_t i) const noexcept { return elements_[i]; }
  T* data() noexcept { return elements_; }
  const T* data() const noexcept { return elements_; }
  T* begin() noexcept { return elements_; }
  const T* begin() const noexcept { return elements_; }
  T* end() noexcept { return elements_ + count_; }
  const T* end() const noexcept { return elements_ + count_; }
  std::size_t size() const noexcept { return count_; }
  bool empty() const noexcept { return count_ == 0; }

 private:
  void swap(UntouchedArray& other) noexcept {
    std::swap(elements_, other.elements_);
    std::swap(count_, other.count_);
  }

  T* elements_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace stemma
