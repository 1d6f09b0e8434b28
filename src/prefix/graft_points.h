// GraftPoints: which namespaces go on from a page of another one, and whether that page is found:
// what events must know to say where texts continue each other.
//
// Thread:     engine thread only.
// Memory:     some 50 bytes a namespace and 100 a page that any goes on from.
// Cost:       O(1), note O(log pages that any goes on from).
// Not here:   texts in two namespaces (cache/grafts), the log (radix_prefix_cache_events).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "stemma/ids.h"
#include "stemma/prefix_cache.h"

namespace stemma {

class GraftPoints {
 public:
  // Whether any namespace is grafted.
  bool any() const noexcept { return grafted_ > 0; }

  // From now on the namespace goes on from a page, which is not known if it did not so far, or from
  // none.
  void set_grafted(NamespaceId ns, bool grafted) {
    if (grafts_.size() <= ns.index()) grafts_.resize(ns.index() + 1);
    Graft& graft = grafts_[ns.index()];
    if (graft.grafted == grafted) return;
    leave(graft);
    graft.grafted = grafted;
    grafted_ += grafted ? 1 : -1;
  }
  // The namespace, which is grafted, goes on from this page; whether that is found is heeded where
  // it is the first to do so. False if it was known.
  bool set_after(NamespaceId ns, const PageKey& key, bool found) {
    Graft& graft = grafts_[ns.index()];
    if (graft.after == key) return false;
    leave(graft);
    graft.after = key;
    Point& point = points_[key];
    if (point.namespaces++ == 0) point.found = found;
    return true;
  }
  bool is_grafted(NamespaceId ns) const {
    return ns.index() < grafts_.size() && grafts_[ns.index()].grafted;
  }
  // nullopt: from none, or it is not known.
  std::optional<PageKey> after(NamespaceId ns) const {
    return ns.index() < grafts_.size() ? grafts_[ns.index()].after : std::nullopt;
  }
  // Whether what the namespace has can be found: not without the page that it goes on from.
  bool is_found(NamespaceId ns) const {
    if (!is_grafted(ns)) return true;
    const std::optional<PageKey>& key = grafts_[ns.index()].after;
    return key.has_value() && points_.at(*key).found;
  }
  // A page begins to be found, or stops. Whether any namespace goes on from it to which that is
  // new.
  bool note(const PageKey& key, bool found) {
    const auto point = points_.find(key);
    return point != points_.end() && std::exchange(point->second.found, found) != found;
  }
  // No page is found any more.
  void lose_all() {
    for (auto& [key, point] : points_) point.found = false;
  }

 private:
  struct Graft {
    bool grafted = false;
    std::optional<PageKey> after;
  };
  struct Point {
    bool found = false;
    std::int64_t namespaces = 0;  // that go on from it; not 0
  };

  void leave(Graft& graft) {
    if (!graft.after.has_value()) return;
    const auto point = points_.find(*graft.after);
    if (--point->second.namespaces == 0) points_.erase(point);
    graft.after.reset();
  }

  std::vector<Graft> grafts_;  // by namespace
  std::map<PageKey, Point> points_;
  std::int64_t grafted_ = 0;  // namespaces
};

}  // namespace stemma
