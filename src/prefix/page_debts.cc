#include "prefix/page_debts.h"

#include "base/check.h"

namespace stemma {

PageDebts::PageDebts(std::int64_t nodes_max, std::int64_t creditors) {
  for (std::int64_t creditor = 0; creditor < creditors; ++creditor) {
    queues_.push_back({HighWaterArray<Debt>(static_cast<std::size_t>(nodes_max), Debt()),
                       NodeSlot(), NodeSlot(), 0});
  }
}

void PageDebts::owe(NodeSlot node, std::int64_t creditor, const PageStretch& pages) {
  STEMMA_CHECK(!pages.empty(), "a debt is of some pages");
  const PageStretch before = of(node, creditor);
  PageStretch owed = pages;
  if (!before.empty()) {
    owed = {std::min(before.first, pages.first), std::max(before.end, pages.end)};
  }
  set(queues_[static_cast<std::size_t>(creditor)], node, owed);
}

PageStretch PageDebts::of(NodeSlot node, std::int64_t creditor) const {
  const Debt& debt = queue(creditor).debts[node.index()];
  return {debt.first, debt.end};
}

PageStretch PageDebts::take(NodeSlot node, std::int64_t creditor) {
  const PageStretch owed = of(node, creditor);
  STEMMA_CHECK(!owed.empty(), "only what is owed is taken");
  set(queues_[static_cast<std::size_t>(creditor)], node, {});
  return owed;
}

void PageDebts::split(NodeSlot lower, NodeSlot upper, std::int64_t pages) {
  for (Queue& queue : queues_) {
    const Debt whole = queue.debts[lower.index()];
    if (whole.first == whole.end) continue;
    set(queue, upper, {whole.first, std::min<std::int64_t>(whole.end, pages)});
    set(queue, lower, {std::max<std::int64_t>(whole.first - pages, 0), whole.end - pages});
  }
}

void PageDebts::cut(NodeSlot node, std::int64_t pages) {
  for (Queue& queue : queues_) {
    const Debt whole = queue.debts[node.index()];
    if (whole.end <= pages) continue;
    const PageStretch left = {whole.first, pages};
    written_off_pages_ += whole.end - whole.first - left.pages();
    set(queue, node, left);
  }
}

// Keeps the node's place in the queue if it has one.
void PageDebts::set(Queue& queue, NodeSlot node, const PageStretch& pages) {
  Debt& debt = queue.debts.at(node.index());
  const std::int64_t before = debt.end - debt.first;
  if (before > 0 && pages.empty()) unlink(queue, node);
  if (before == 0 && !pages.empty()) link(queue, node);
  debt.first = pages.empty() ? 0 : static_cast<std::int32_t>(pages.first);
  debt.end = pages.empty() ? 0 : static_cast<std::int32_t>(pages.end);
  queue.pages += pages.pages() - before;
  owed_pages_ += pages.pages() - before;
}

void PageDebts::link(Queue& queue, NodeSlot node) {
  Debt& debt = queue.debts.at(node.index());
  debt.older = queue.newest;
  debt.newer = NodeSlot();
  (queue.newest.valid() ? queue.debts.at(queue.newest.index()).newer : queue.oldest) = node;
  queue.newest = node;
}

void PageDebts::unlink(Queue& queue, NodeSlot node) {
  const Debt debt = queue.debts[node.index()];
  (debt.older.valid() ? queue.debts.at(debt.older.index()).newer : queue.oldest) = debt.newer;
  (debt.newer.valid() ? queue.debts.at(debt.newer.index()).older : queue.newest) = debt.older;
}

std::optional<std::string> PageDebts::audit() const {
  std::int64_t all = 0;
  for (const Queue& queue : queues_) {
    std::int64_t queued_pages = 0;
    NodeSlot older;
    for (NodeSlot at = queue.oldest; at.valid(); at = queue.debts[at.index()].newer) {
      const Debt& debt = queue.debts[at.index()];
      if (debt.older != older) return "a queue of debts is torn";
      if (debt.end <= debt.first) return "a node is queued that owes nothing";
      queued_pages += debt.end - debt.first;
      older = at;
    }
    if (queue.newest != older) return "a queue of debts has a wrong end";
    std::int64_t owed_pages = 0;
    for (const Debt& debt : queue.debts.written()) owed_pages += debt.end - debt.first;
    if (owed_pages != queued_pages || owed_pages != queue.pages) return "debts are miscounted";
    all += owed_pages;
  }
  if (all != owed_pages_) return "debts are not those of all creditors";
  return std::nullopt;
}

}  // namespace stemma
