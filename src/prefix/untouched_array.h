// UntouchedArray: memory reserved for the most there may ever be, and not touched until it is used.
//
// The operating system backs only the pages that were written, so that a structure sized for the
// worst case costs what it holds.
//
// Thread:     as the elements.
// Memory:     n elements of address space; their initial values are undefined.
// Cost:       construction O(1).
// Not here:   which elements were ever written: its owner knows.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace stemma {

template <typename T>
class UntouchedArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>,
                "elements are written by assignment and never destroyed");

 public:
  UntouchedArray() noexcept = default;
  explicit UntouchedArray(std::size_t count)
      : elements_(std::allocator<T>().allocate(count)), count_(count) {}
  UntouchedArray(UntouchedArray&& other) noexcept { swap(other); }
  UntouchedArray& operator=(UntouchedArray&& other) noexcept {
    swap(other);
    return *this;
  }
  UntouchedArray(const UntouchedArray&) = delete;
  UntouchedArray& operator=(const UntouchedArray&) = delete;
  ~UntouchedArray() {
    if (elements_ != nullptr) std::allocator<T>().deallocate(elements_, count_);
  }

  // REQUIRES: i < size(); an element that is read was written before.
  T& operator[](std::size_t i) noexcept { return elements_[i]; }
  const T& operator[](std::size_t i) const noexcept { return elements_[i]; }
  T* data() noexcept { return elements_; }
  const T* data() const noexcept { return elements_; }
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
