#include "prefix/wanted_leaves.h"

#include <algorithm>

#include "base/check.h"

namespace stemma {

WantedLeaves::WantedLeaves(std::int64_t nodes_max)
    : wants_(static_cast<std::size_t>(nodes_max), Want()), leaves_(nodes_max) {}

void WantedLeaves::want(NodeSlot slot, std::int32_t pages, const WantedTurn& turn) {
  STEMMA_DCHECK(!contains(slot), "a leaf here is ranked by the wants it came with");
  any_ = true;
  Want& want = wants_.at(slot.index());
  if (want.round != round_) want = {round_, 0, turn};
  want.pages = std::max(want.pages, pages);
  if (turn.is_before(want.turn)) want.turn = turn;
}

void WantedLeaves::split(NodeSlot lower, NodeSlot upper, std::int32_t pages) {
  if (!any_) return;
  const Want whole = wants_[lower.index()];
  const std::int32_t above = std::min(whole.pages, pages);
  wants_.at(upper.index()) = {whole.round, above, whole.turn};
  wants_.at(lower.index()).pages = whole.pages - above;
}

void WantedLeaves::add_leaf(NodeSlot slot, NodeId id) {
  STEMMA_DCHECK(wanted_pages(slot) > 0, "only what is wanted waits here");
  // The highest turn first. ~ turns every number round, - not the lowest.
  const WantedTurn& turn = wants_[slot.index()].turn;
  leaves_.push(slot, {~turn.turn, turn.shared ? 1 : 0}, id);
}

}  // namespace stemma
