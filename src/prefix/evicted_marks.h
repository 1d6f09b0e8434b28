// EvictedMarks: where texts were cut off, so that it can be said of a page that is missing whether
// it was evicted, and when.
//
// A mark is a place in the tree (the node behind whose end the page lay) and a hash of the page's
// tokens. Marks are kept until the page is back, or another wants their place: what is not marked
// may have been evicted all the same, and a hash may lie once in 2^64.
//
// Thread:     engine thread only.
// Memory:     16 bytes a place, reserved at construction.
// Cost:       one hash of a page and one store for each leaf that loses pages or gets new ones.
// Not here:   which pages go (eviction_index, page_policy).
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "prefix/page_fingerprint.h"
#include "stemma/ids.h"

namespace stemma {

class EvictedMarks {
 public:
  // At least `places`. REQUIRES: places >= 1.
  explicit EvictedMarks(std::int64_t places) : marks_(std::bit_ceil(std::uint64_t(places))) {
    STEMMA_CHECK_GE(places, 1);
  }

  // The page of `tokens` that lay behind the end of `node` goes now.
  void note(NodeId node, std::span<const TokenId> tokens, std::int64_t now_us) {
    const std::uint64_t hash = hash_of(node, tokens);
    marks_[hash & (marks_.size() - 1)] = {hash, now_us};
  }

  // It is back: it may go again in other ways.
  void forget(NodeId node, std::span<const TokenId> tokens) {
    const std::uint64_t hash = hash_of(node, tokens);
    Mark& mark = marks_[hash & (marks_.size() - 1)];
    if (mark.hash == hash) mark = {};
  }

  // When it went; nullopt: nothing is known of it.
  std::optional<std::int64_t> evicted_us(NodeId node, std::span<const TokenId> tokens) const {
    const std::uint64_t hash = hash_of(node, tokens);
    const Mark& mark = marks_[hash & (marks_.size() - 1)];
    if (mark.hash != hash) return std::nullopt;
    return mark.us;
  }

 private:
  struct Mark {
    std::uint64_t hash = 0;
    std::int64_t us = 0;
  };

  static std::uint64_t hash_of(NodeId node, std::span<const TokenId> tokens) {
    return next_fingerprint(mix64(static_cast<std::uint64_t>(node.value())), tokens) | 1;
  }

  std::vector<Mark> marks_;
};

}  // namespace stemma
