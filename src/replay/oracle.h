// Oracle: what a cache would hit that knows the trace's future, for policies to be seen against
// that do not (L. A. Belady, "A study of replacement algorithms", IBM Systems Journal 1966).
//
//   belady          the page that is used latest goes; a new page that would be used later than
//                   every other is not admitted
//   belady_forced   the leaf that is used latest goes, and every page is admitted
//   knows_whether   knows only whether a page is used again: only a leaf that is not ever goes, and
//                   a new page is not admitted where there is none
//
// No policy hits more than belady and, where there are no outputs, than belady_forced.
// knows_whether is no bound: what comes back late keeps out what would come back often, so that lru
// may hit more.
//
// As in the tree, only leaves may go, pages without a resident page below them: but not so with
// belady, which is to be a bound whatever the trace. Where pages come back as outputs, who keeps a
// page must also keep those above it that would have come back by themselves, and what is best then
// nobody knows. Without outputs no page is used before the one that it continues, and the page that
// is used latest is always a leaf.
//
// Pages of outputs are put in as others are, and are no look-ups.
//
// Thread:     one thread an oracle.
// Memory:     about 80 bytes a different page of the trace.
// Cost:       O(log leaves) a page.
// Not here:   policies that can be served with (prefix/eviction_order), reading traces.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "replay/replayer.h"
#include "replay/trace_future.h"

namespace stemma {

enum class OracleKind : std::uint8_t { kBelady, kBeladyForced, kKnowsWhether };

inline constexpr OracleKind kOracleKinds[] = {OracleKind::kBelady, OracleKind::kBeladyForced,
                                              OracleKind::kKnowsWhether};

std::string_view oracle_name(OracleKind kind);  // "belady", "belady_forced", "knows_whether"
// The inverse; nullopt for any other name.
std::optional<OracleKind> try_parse_oracle(std::string_view name);

class Oracle {
 public:
  // `future` must outlive this. REQUIRES: capacity_pages >= 1.
  Oracle(const TraceFuture& future, OracleKind kind, std::int64_t capacity_pages);

  // All requests of the trace, one after another.
  ReplayReport run();

 private:
  using Node = TraceFuture::Node;
  // The order in which leaves go: the greatest first.
  struct LeafRank {
    std::int32_t next_use = 0;  // for knows_whether: 1 if it is not used again, else 0
    std::int32_t idle = 0;      // −(last use)
    Node node = 0;
    auto operator<=>(const LeafRank&) const = default;
  };
  struct State {
    std::int32_t next_use = 0;
    std::int32_t last_use = 0;
    std::int32_t resident_children = 0;
    bool resident = false;
  };

  void serve_by_page(std::int32_t request);
  void serve_by_path(std::int32_t request);
  // Makes room for one page below `tip`, which stays; false if it is not to be had or not worth it.
  bool make_room(std::int32_t next_use, Node tip);
  void evict(Node leaf, Node tip);
  LeafRank rank_of(Node node) const;
  bool is_leaf(Node node) const;
  State& state(Node node) { return states_[static_cast<std::size_t>(node)]; }
  const State& state(Node node) const { return states_[static_cast<std::size_t>(node)]; }

  const TraceFuture& future_;
  OracleKind kind_;
  std::int64_t capacity_pages_;
  std::int64_t resident_pages_ = 0;
  std::vector<State> states_;  // [nodes]
  std::set<LeafRank> leaves_;  // all but the present request's last page; of belady, every page
  ReplayReport report_;
};

}  // namespace stemma
