// RequestIndex: where in the slab the request of an id is.
//
// Thread:     engine thread only.                              Invariants: I10.
// Memory:     about 20 bytes a place of the slab; fixed at construction.
// Cost:       O(1), for ids that follow each other: chains by their lowest bits.
// Not here:   requests (scheduler).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "stemma/ids.h"

namespace stemma {

class RequestIndex {
 public:
  // For the places 0 … places - 1.
  explicit RequestIndex(std::size_t places)
      : first_(std::bit_ceil(places + 1), kNone), next_(places, kNone), ids_(places) {}

  // REQUIRES: nobody has the place.
  void add(RequestId id, std::int32_t place) {
    std::int32_t& first = first_[chain_of(id)];
    ids_[at(place)] = id;
    next_[at(place)] = first;
    first = place;
  }

  // REQUIRES: it was added and not removed since.
  void remove(RequestId id, std::int32_t place) {
    std::int32_t* link = &first_[chain_of(id)];
    while (*link != place) {
      STEMMA_CHECK(*link != kNone, "a request ends once");
      link = &next_[at(*link)];
    }
    *link = next_[at(place)];
  }

  static constexpr std::int32_t kNone = -1;
  // kNone: there is none of that id.
  std::int32_t find(RequestId id) const {
    std::int32_t place = first_[chain_of(id)];
    while (place != kNone && ids_[at(place)] != id) place = next_[at(place)];
    return place;
  }

 private:
  static std::size_t at(std::int32_t place) { return static_cast<std::size_t>(place); }
  std::size_t chain_of(RequestId id) const {
    return static_cast<std::size_t>(id.value()) & (first_.size() - 1);
  }

  std::vector<std::int32_t> first_;  // by chain
  std::vector<std::int32_t> next_;   // by place, in its chain
  std::vector<RequestId> ids_;       // by place
};

}  // namespace stemma
