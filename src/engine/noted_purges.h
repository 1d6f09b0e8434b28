// NotedPurges: which requests were submitted before a purge that they are of, though the engine
// thread has not taken them in yet.
//
// Thread:     engine thread only.
// Memory:     kPurgesMax purges; where there are more, they become one of everything.
// Cost:       O(purges) a request, where there are any.
// Not here:   requests that wait or run (sched/scheduler), what goes (cache/).
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "stemma/engine.h"
#include "stemma/ids.h"
#include "stemma/prefix_cache.h"

namespace stemma {

class NotedPurges {
 public:
  // Requests of these namespaces, of all where none is named, with an id below `end` came before.
  void note(RequestId end, std::span<const NamespaceFamily> families) {
    if (purges_.size() == kPurgesMax) {
      purges_.clear();
      families = {};
    }
    purges_.push_back({end, {families.begin(), families.end()}});
  }

  bool came_before(RequestId id, const RequestSpec& spec) const {
    for (const Purge& purge : purges_) {
      if (id >= purge.end) continue;
      if (is_of_any(spec.namespace_digest, purge.families)) return true;
      const auto& shared = spec.shared_prefix;
      if (shared.has_value() && is_of_any(shared->digest, purge.families)) return true;
    }
    return false;
  }

  // Whoever had been submitted when they were noted has been taken in.
  void forget() { purges_.clear(); }

 private:
  static constexpr std::size_t kPurgesMax = 64;
  struct Purge {
    RequestId end;
    std::vector<NamespaceFamily> families;
  };

  std::vector<Purge> purges_;
};

}  // namespace stemma
