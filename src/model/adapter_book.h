// AdapterBook: the adapters that a Runner can compute requests with now. They come and go while
// requests run: one that was taken out is no longer found, and whoever has a lease of it can go on
// with it until the lease ends.
//
//   add ──► found by its name ──take_out──► leased by those who have found it ──► free again
//
// A place is an AdapterId: what KvBatch::adapters names. It is given to another adapter only when
// nobody has a lease of the one before.
//
// Thread:     find, at, list and leases: any; the rest: one at a time.
// Memory:     a name and a digest an adapter.
// Cost:       one lock and a look at each adapter; a lease is copied by one addition.
// Not here:   what an adapter computes (adapter), where its matrices lie (the Runner).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "stemma/ids.h"
#include "stemma/result.h"
#include "stemma/runner.h"

namespace stemma {

// As long as one lives, its adapter's place is not given to another. The book must outlive it.
class AdapterLease {
 public:
  AdapterLease() = default;  // of no adapter
  AdapterLease(const AdapterLease& other) noexcept : AdapterLease(other.leased_or_null_) {}
  AdapterLease(AdapterLease&& other) noexcept
      : leased_or_null_(std::exchange(other.leased_or_null_, nullptr)) {}
  AdapterLease& operator=(AdapterLease other) noexcept {
    std::swap(leased_or_null_, other.leased_or_null_);
    return *this;
  }
  ~AdapterLease() {
    if (leased_or_null_ != nullptr) leased_or_null_->leases.fetch_sub(1, std::memory_order_release);
  }

  explicit operator bool() const noexcept { return leased_or_null_ != nullptr; }
  // Invalid: of no adapter.
  AdapterId place() const noexcept {
    return leased_or_null_ ? leased_or_null_->place : AdapterId();
  }
  // REQUIRES: of an adapter.
  const AdapterIdentity& identity() const noexcept { return leased_or_null_->identity; }

 private:
  friend class AdapterBook;
  struct Leased {
    AdapterIdentity identity;
    AdapterId place;  // invalid: it is free
    bool is_found = false;
    mutable std::atomic<std::int64_t> leases = 0;
  };
  explicit AdapterLease(const Leased* leased_or_null) noexcept : leased_or_null_(leased_or_null) {
    if (leased_or_null != nullptr) leased_or_null->leases.fetch_add(1, std::memory_order_relaxed);
  }

  const Leased* leased_or_null_ = nullptr;
};

class AdapterBook {
 public:
  AdapterBook() = default;
  AdapterBook(const AdapterBook&) = delete;
  AdapterBook& operator=(const AdapterBook&) = delete;

  // Of no adapter if none is called so, as none has the empty name.
  AdapterLease find(std::string_view name) const;
  // Of who has this place, even if it was taken out.
  AdapterLease at(AdapterId place) const;
  // Those that can be found, by their places.
  std::vector<AdapterIdentity> list() const;

  // kInvalidArgument unless one more could be called so.
  Status check_name(std::string_view name) const;
  // Where the next one can be put: the first place that is free.
  AdapterId free_place() const;
  // It can be found from now on; where it `replaces` one of its name, that one cannot any more, and
  // the name is always found. Errors are those of check_name. REQUIRES: `place` is free.
  Status add(AdapterIdentity adapter, AdapterId place, bool replaces = false);
  // It is not found any more. kNotFound.
  Status take_out(std::string_view name);
  // The places, free from now on, of those that were taken out and that nobody has a lease of.
  std::vector<AdapterId> free_ended();

 private:
  using Leased = AdapterLease::Leased;
  // REQUIRES: locked.
  const Leased* find_or_null(std::string_view name) const;
  Status check_locked(std::string_view name) const;

  mutable std::mutex mutex_;
  std::deque<Leased> places_;  // by AdapterId; leases point at them
};

}  // namespace stemma
