// NaiveTlru: the eviction policy "tlru" written as plainly as possible, to compare with in tests:
// every leaf judged again for every victim, from the last request that used it.
//
// Thread:     tests.
// Memory:     maps.
// Cost:       O(pages) a victim.
// Not here:   anything that ships.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

#include "prefix/tlru_policy.h"
#include "replay/naive_residents.h"
#include "replay/replayer.h"

namespace stemma {

class NaiveTlru {
 public:
  explicit NaiveTlru(std::int64_t) {}

  std::int64_t resident_pages(const TraceRequest& request) const {
    return residents_.resident_pages(request);
  }

  // Drops the page that goes first, while `tip` (a hash, or −1) is held; its hash.
  std::int64_t evict(std::int64_t tip, std::int64_t) {
    const auto leaves = residents_.leaves(tip);
    const auto goes_before = [this](std::int64_t a, std::int64_t b) { return rank(a) < rank(b); };
    const std::int64_t victim = *std::min_element(leaves.begin(), leaves.end(), goes_before);
    residents_.drop(victim);
    return victim;
  }

  // The request ends; its first `pages` pages are resident.
  void end(const TraceRequest& request, std::int64_t pages, std::int64_t) {
    ++requests_;
    const std::int64_t tokens =
        std::max(request.input_tokens + request.output_tokens, pages * kHashPageTokens);
    std::int64_t parent = -1;
    for (std::int64_t i = 0; i < pages; ++i) {
      const std::int64_t hash = request.page_hashes[static_cast<std::size_t>(i)];
      if (!residents_.contains(hash)) residents_.add(hash, parent);
      uses_[hash] = {requests_, tokens, i, pages};
      parent = hash;
    }
  }

 private:
  // By a request, of one of its pages.
  struct Use {
    std::int64_t request = 0;
    std::int64_t tokens = 0;
    std::int64_t place = 0;
    std::int64_t pages = 0;
  };

  std::tuple<bool, std::int64_t> rank(std::int64_t hash) const {
    const Use& use = uses_.at(hash);
    const std::int64_t lost_tokens = use.tokens * (use.pages - use.place) / use.pages;
    const bool in_time =
        lost_tokens + TlruPolicy::kNextTurnTokens <= TlruPolicy::kComputedTokensMax;
    return {!in_time, use.request};
  }

  NaiveResidents residents_;
  std::map<std::int64_t, Use> uses_;
  std::int64_t requests_ = 0;
};

}  // namespace stemma
