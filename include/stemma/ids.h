// Ids: small integers that cannot be mistaken for one another, and the token type.
//
// Thread:     values.
// Memory:     an id is as large as its representation and trivially copyable, so that kernels can
// read arrays of them. Cost:       none; everything is inline. Not here:   who hands ids out
// (alloc/, prefix/, sched/).
//
// Two parameters of different id types cannot be swapped by accident, and an array indexed by one
// cannot be indexed by another: mistakes that would otherwise show as another user's tokens.
#pragma once

#include <array>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <type_traits>

namespace stemma {

// A number that names one thing of the kind `Tag`. Explicit to make, invalid (−1) by default,
// ordered, hashable, printable. There is no arithmetic: `PageId + 1` does not compile; `id_range`
// iterates.
template <typename Tag, std::signed_integral Rep = std::int32_t>
class StrongId {
 public:
  using rep = Rep;

  // Names nothing.
  constexpr StrongId() noexcept = default;
  // REQUIRES: value >= 0, or −1 for "nothing".
  constexpr explicit StrongId(Rep value) noexcept : value_(value) {}

  // The number itself, for arithmetic on purpose and for printing.
  constexpr Rep value() const noexcept { return value_; }
  // Whether it names something.
  constexpr bool valid() const noexcept { return value_ >= 0; }
  // The value as an array index. REQUIRES: valid().
  constexpr std::size_t index() const noexcept { return static_cast<std::size_t>(value_); }

  // Ids of one kind compare as their numbers.
  friend constexpr auto operator<=>(StrongId, StrongId) noexcept = default;
  // Prints the number.
  friend std::ostream& operator<<(std::ostream& out, StrongId id) {
    return out << static_cast<std::int64_t>(id.value_);
  }

 private:
  Rep value_ = -1;  // −1 names nothing
};

// A page: `page_size` consecutive tokens of KV in a pool. The unit of allocation and of sharing.
using PageId = StrongId<struct PageTag>;
// One token's place in a pool: page × page_size + offset. 64 bits: pools of more than 2^31 tokens
// exist.
using SlotId = StrongId<struct SlotTag, std::int64_t>;
// A node of the radix tree, unique for the life of the tree: never reused, so that ties are settled
// by age.
using NodeId = StrongId<struct NodeTag, std::int64_t>;
// A row of the request table.
using RowId = StrongId<struct RowTag>;
// A request, unique for the life of an engine.
using RequestId = StrongId<struct RequestTag, std::int64_t>;
// Pages of one text that are being brought up from lower tiers, unique for the life of a cache.
using PromotionId = StrongId<struct PromotionTag, std::int64_t>;
// A namespace opened in a prefix cache: a short name for its 256-bit digest.
using PurgeId = StrongId<struct PurgeTag, std::int64_t>;
using NamespaceId = StrongId<struct NamespaceTag>;
// An adapter of a model, in the order in which a Runner has them.
using AdapterId = StrongId<struct AdapterTag>;

// The name of a page outside the tree: SHA-256 chained over the namespace and every token up to the
// end of the page, so that it names exactly one namespace and token prefix (I7).
struct PageKey {
  std::array<std::uint8_t, 32> bytes = {};
  friend auto operator<=>(const PageKey&, const PageKey&) = default;
};

// A token of a model's vocabulary. A plain integer: texts of tokens come from and go to users as
// arrays.
using TokenId = std::int32_t;

// The n ids from `first` on, for range-for:
//   for (const PageId page : id_range(PageId(0), pages)) …
template <typename Id>
class IdRange {
 public:
  class Iterator {
   public:
    constexpr explicit Iterator(typename Id::rep value) noexcept : value_(value) {}
    constexpr Id operator*() const noexcept { return Id(value_); }
    constexpr Iterator& operator++() noexcept {
      ++value_;
      return *this;
    }
    friend constexpr bool operator==(Iterator, Iterator) noexcept = default;

   private:
    typename Id::rep value_;  // the id it stands at
  };

  constexpr IdRange(Id first, std::int64_t count) noexcept
      : first_(first.value()), end_(static_cast<typename Id::rep>(first.value() + count)) {}
  constexpr Iterator begin() const noexcept { return Iterator(first_); }
  constexpr Iterator end() const noexcept { return Iterator(end_); }

 private:
  typename Id::rep first_;  // the first id
  typename Id::rep end_;    // one past the last
};

// REQUIRES: count >= 0 and first + count fits the representation.
template <typename Id>
constexpr IdRange<Id> id_range(Id first, std::int64_t count) noexcept {
  return IdRange<Id>(first, count);
}

// The kernel edge: an array of page ids read as plain integers.
inline std::span<const std::int32_t> raw(std::span<const PageId> pages) noexcept {
  static_assert(sizeof(PageId) == sizeof(std::int32_t) && std::is_trivially_copyable_v<PageId>);
  static_assert(std::is_standard_layout_v<PageId>);
  return {reinterpret_cast<const std::int32_t*>(pages.data()), pages.size()};
}

// As above, for slots.
inline std::span<const std::int64_t> raw(std::span<const SlotId> slots) noexcept {
  static_assert(sizeof(SlotId) == sizeof(std::int64_t) && std::is_trivially_copyable_v<SlotId>);
  static_assert(std::is_standard_layout_v<SlotId>);
  return {reinterpret_cast<const std::int64_t*>(slots.data()), slots.size()};
}

}  // namespace stemma

// Ids as keys of unordered containers.
template <typename Tag, typename Rep>
struct std::hash<stemma::StrongId<Tag, Rep>> {
  std::size_t operator()(stemma::StrongId<Tag, Rep> id) const noexcept {
    return std::hash<Rep>{}(id.value());
  }
};
