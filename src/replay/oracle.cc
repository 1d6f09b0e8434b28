#include "replay/oracle.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace stemma {

std::string_view oracle_name(OracleKind kind) {
  switch (kind) {
    case OracleKind::kBelady:
      return "belady";
    case OracleKind::kBeladyForced:
      return "belady_forced";
    case OracleKind::kKnowsWhether:
      return "knows_whether";
  }
  return "unknown";
}

std::optional<OracleKind> try_parse_oracle(std::string_view name) {
  for (const OracleKind kind : kOracleKinds) {
    if (oracle_name(kind) == name) return kind;
  }
  return std::nullopt;
}

Oracle::Oracle(const TraceFuture& future, OracleKind kind, std::int64_t capacity_pages)
    : future_(future), kind_(kind), capacity_pages_(capacity_pages) {
  STEMMA_CHECK_GE(capacity_pages, 1);
  states_.resize(static_cast<std::size_t>(future.nodes()));
}

ReplayReport Oracle::run() {
  for (std::int32_t request = 0; request < future_.requests(); ++request) {
    ++report_.requests;
    report_.lookup_pages += future_.lookups_of(request);
    if (kind_ == OracleKind::kBelady) {
      serve_by_page(request);
    } else {
      serve_by_path(request);
    }
  }
  return report_;
}

// All that is resident is looked up before anything is put in: what the request leaves free is
// known only when the next use of each of its pages is.
void Oracle::serve_by_page(std::int32_t request) {
  const auto pages = future_.pages_of(request);
  const auto next_uses = future_.next_uses_of(request);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (!state(pages[i]).resident) continue;
    if (std::cmp_less(i, future_.lookups_of(request))) ++report_.hit_pages;
    leaves_.erase(rank_of(pages[i]));
    state(pages[i]) = {next_uses[i], request, 0, true};
    leaves_.insert(rank_of(pages[i]));
  }
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (state(pages[i]).resident || !make_room(next_uses[i], TraceFuture::kRoot)) continue;
    ++resident_pages_;
    state(pages[i]) = {next_uses[i], request, 0, true};
    leaves_.insert(rank_of(pages[i]));
  }
}

void Oracle::serve_by_path(std::int32_t request) {
  const auto pages = future_.pages_of(request);
  const auto next_uses = future_.next_uses_of(request);
  Node tip = TraceFuture::kRoot;
  std::size_t i = 0;
  // The last page that hits is the only one of the path that can be a leaf: it leaves the leaves
  // before what it is ranked by changes.
  for (; i < pages.size() && state(pages[i]).resident; ++i) {
    tip = pages[i];
    if (is_leaf(tip)) leaves_.erase(rank_of(tip));
    state(tip).next_use = next_uses[i];
    state(tip).last_use = request;
  }
  report_.hit_pages += std::min(static_cast<std::int64_t>(i), future_.lookups_of(request));
  for (; i < pages.size() && make_room(next_uses[i], tip); ++i) {
    if (tip != TraceFuture::kRoot) ++state(tip).resident_children;
    tip = pages[i];
    state(tip) = {next_uses[i], request, 0, true};
    ++resident_pages_;
  }
  if (tip != TraceFuture::kRoot && is_leaf(tip)) leaves_.insert(rank_of(tip));
}

bool Oracle::make_room(std::int32_t next_use, Node tip) {
  if (resident_pages_ < capacity_pages_) return true;
  if (leaves_.empty()) return false;
  const Node victim = leaves_.rbegin()->node;
  const std::int32_t victim_next_use = state(victim).next_use;
  if (kind_ == OracleKind::kBelady && next_use >= victim_next_use) return false;
  if (kind_ == OracleKind::kKnowsWhether && victim_next_use != TraceFuture::kNever) return false;
  evict(victim, tip);
  return true;
}

void Oracle::evict(Node leaf, Node tip) {
  leaves_.erase(rank_of(leaf));
  state(leaf).resident = false;
  --resident_pages_;
  ++report_.evicted_pages;
  const Node parent = future_.parent(leaf);
  if (parent == TraceFuture::kRoot || kind_ == OracleKind::kBelady) return;
  --state(parent).resident_children;
  if (parent != tip && is_leaf(parent)) leaves_.insert(rank_of(parent));
}

Oracle::LeafRank Oracle::rank_of(Node node) const {
  const State& known = state(node);
  const bool exact = kind_ != OracleKind::kKnowsWhether;
  const std::int32_t whether = known.next_use == TraceFuture::kNever ? 1 : 0;
  return {exact ? known.next_use : whether, -known.last_use, node};
}

bool Oracle::is_leaf(Node node) const {
  return state(node).resident && state(node).resident_children == 0;
}

}  // namespace stemma
