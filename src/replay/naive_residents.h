// NaiveResidents: which pages of a trace are resident, written as plainly as possible: a map by the
// pages' hashes. What references for eviction policies stand on.
//
// Thread:     tests.
// Memory:     a map.
// Cost:       leaves O(pages).
// Not here:   anything that ships; which leaf goes.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "replay/trace_request.h"

namespace stemma {

class NaiveResidents {
 public:
  // Pages of the request that are resident, from its first on.
  std::int64_t resident_pages(const TraceRequest& request) const {
    std::int64_t pages = 0;
    for (const std::int64_t hash : request.page_hashes) {
      if (!parents_.contains(hash)) break;
      ++pages;
    }
    return pages;
  }

  bool contains(std::int64_t hash) const { return parents_.contains(hash); }
  // REQUIRES: not contains(hash).
  void add(std::int64_t hash, std::int64_t parent) { parents_[hash] = parent; }
  void drop(std::int64_t hash) { parents_.erase(hash); }
  // The page before it, or −1. REQUIRES: contains(hash).
  std::int64_t parent(std::int64_t hash) const { return parents_.at(hash); }

  // Pages that none continues, while `tip` (a hash, or −1) is held.
  std::set<std::int64_t> leaves(std::int64_t tip) const {
    std::set<std::int64_t> found;
    for (const auto& [hash, parent] : parents_) found.insert(hash);
    for (const auto& [hash, parent] : parents_) found.erase(parent);
    found.erase(tip);
    return found;
  }

 private:
  std::map<std::int64_t, std::int64_t> parents_;  // by hash, of resident pages
};

}  // namespace stemma
