// CoveredLeaves: which cold leaves were seen to have a copy in host memory, so that whoever looks
// for what to copy ahead need not compare their texts again at every step.
//
// What is known holds as long as host memory has lost nothing: a loss elsewhere makes it unknown
// too, and one that is not counted costs a copy that is not made, never a wrong page.
//
// Thread:     engine thread only.
// Memory:     24 bytes a leaf of kPlaces.
// Cost:       O(1).
// Not here:   whether a leaf is covered (Backups::covers).
#pragma once

#include <array>
#include <cstdint>

#include "stemma/ids.h"

namespace stemma {

class CoveredLeaves {
 public:
  static constexpr std::size_t kPlaces = 128;

  // `losses`: of host memory so far; only grows.
  bool knows(NodeId leaf, std::int64_t tokens, std::int64_t losses) const {
    return place_of(leaf) == Known{leaf, tokens, losses};
  }
  void note(NodeId leaf, std::int64_t tokens, std::int64_t losses) {
    known_[index_of(leaf)] = {leaf, tokens, losses};
  }

 private:
  struct Known {
    NodeId leaf;
    std::int64_t tokens = 0;
    std::int64_t losses = 0;
    friend bool operator==(const Known&, const Known&) = default;
  };
  static std::size_t index_of(NodeId leaf) {
    return static_cast<std::size_t>(leaf.value()) % kPlaces;
  }
  const Known& place_of(NodeId leaf) const { return known_[index_of(leaf)]; }

  std::array<Known, kPlaces> known_ = {};
};

}  // namespace stemma
