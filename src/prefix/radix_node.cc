#include "prefix/radix_node.h"

#include <limits>

#include "base/check.h"

namespace stemma {

NodeSlab::NodeSlab(std::int64_t nodes_max) : nodes_max_(nodes_max) {
  STEMMA_CHECK(nodes_max >= 0 && nodes_max <= std::numeric_limits<std::int32_t>::max(),
               "node slots are 31 bits");
  const auto nodes = static_cast<std::size_t>(nodes_max);
  nodes_ = UntouchedArray<RadixNode>(nodes);
  histories_ = UntouchedArray<NodeHistory>(nodes);
}

NodeSlot NodeSlab::make(std::int64_t created) {
  NodeSlot slot = unused_;
  if (slot.valid()) {
    unused_ = nodes_[slot.index()].parent;
  } else {
    STEMMA_CHECK_LT(high_water_, nodes_max_);
    slot = NodeSlot(high_water_++);
  }
  nodes_[slot.index()] = RadixNode();
  histories_[slot.index()] = {NodeId(next_id_++), created};
  ++nodes_in_use_;
  return slot;
}

void NodeSlab::drop(NodeSlot slot) {
  STEMMA_CHECK(exists(slot), "a node is dropped once");
  histories_[slot.index()] = NodeHistory();
  nodes_[slot.index()].parent = unused_;
  unused_ = slot;
  --nodes_in_use_;
}

}  // namespace stemma
