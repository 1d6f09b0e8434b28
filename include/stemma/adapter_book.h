// AdapterBook: the adapters that a Runner can compute requests with now. Adapters come and go while
// requests run: one that was taken out is no longer found, and whoever holds a lease of it can go
// on with it until the lease ends.
//
//   add ──► found by its name ──take_out──► leased by those who have found it ──► free again
//
// A place is an AdapterId: what KvBatch::adapters names. It is given to another adapter only when
// nobody has a lease of the one before.
//
// Thread:     find_or_null, at_or_null, list and the ends of leases from any; the rest from one
//             thread at a time.
// Memory:     a name and a digest an adapter.
// Cost:       one lock and a look at each adapter.
// Not here:   what an adapter computes (model/adapter), where its matrices lie (the Runner).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/ids.h"
#include "stemma/result.h"

namespace stemma {

// An adapter that a Runner can compute requests with.
struct AdapterIdentity {
  std::string name;  // what requests call it
  // SHA-256 of all of it that decides what is computed: adapters of one digest write equal pages.
  std::array<std::uint8_t, 32> digest = {};
};

struct PlacedAdapter {
  AdapterIdentity identity;
  AdapterId place;
};
// As long as one is held, its place is not given to another. nullptr: of no adapter.
using AdapterLease = std::shared_ptr<const PlacedAdapter>;

inline AdapterId place_of(const AdapterLease& lease_or_null) {
  return lease_or_null == nullptr ? AdapterId() : lease_or_null->place;
}

class AdapterBook {
 public:
  AdapterBook() = default;
  AdapterBook(const AdapterBook&) = delete;
  AdapterBook& operator=(const AdapterBook&) = delete;

  // nullptr if none is called so, as none has the empty name.
  AdapterLease find_or_null(std::string_view name) const;
  // Whoever has this place, even if it was taken out.
  AdapterLease at_or_null(AdapterId place) const;
  // Those that can be found, by their places.
  std::vector<AdapterIdentity> list() const;

  // kInvalidArgument unless one more could be called so.
  Status check_name(std::string_view name) const;
  // Where the next one can be put: the first place that is free.
  AdapterId free_place() const;
  // It can be found from now on. Errors are those of check_name. REQUIRES: `place` is free.
  Status add(AdapterIdentity adapter, AdapterId place);
  // It is not found any more. kNotFound.
  Status take_out(std::string_view name);
  // The places, free from now on, of those that were taken out and that nobody has a lease of.
  std::vector<AdapterId> free_ended();
  // Whether some that were taken out are not free yet.
  bool waits_for_ends() const;

 private:
  struct Entry {
    AdapterLease adapter_or_null;  // nullptr: the place is free
    bool is_found = false;
  };
  const Entry* find_entry_or_null(std::string_view name) const;

  mutable std::mutex mutex_;
  std::vector<Entry> places_;  // by AdapterId
};

}  // namespace stemma
