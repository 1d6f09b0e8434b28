// What is owed of a tree's pages: noting it, and handing it over, oldest first. A debt holds
// nothing; what is evicted before its turn, or goes out of sight, is written off.
#include "base/check.h"
#include "prefix/radix_prefix_cache.h"

namespace stemma {

// The end first: whoever takes it takes what is owed before it along.
void RadixPrefixCache::owe(const PrefixLock& held, const PageStretch& pages,
                           std::int64_t creditor) {
  STEMMA_CHECK(cache_of(held) == this, "only what this cache holds is owed here");
  STEMMA_CHECK_LE(pages.end * page_size(), held.tokens());
  NodeSlot at = slot_of(node_of(held));
  if (tree_.node(at).unlinked) return debts_.write_off(pages.pages());
  for (; tree_.node(at).end_pages() > pages.first; at = tree_.node(at).parent) {
    const std::int64_t start = tree_.node(at).start_pages;
    const PageStretch own = {std::max<std::int64_t>(pages.first - start, 0),
                             std::min(pages.end, tree_.node(at).end_pages()) - start};
    if (!own.empty()) debts_.owe(at, creditor, own);
  }
}

std::int64_t RadixPrefixCache::owed_end(const PrefixLock& held, std::int64_t first_page,
                                        std::int64_t creditor) const {
  STEMMA_CHECK(cache_of(held) == this, "only what this cache holds is owed here");
  std::int64_t end = held.tokens() / page_size();
  NodeSlot at = slot_of(node_of(held));
  for (; tree_.node(at).end_pages() > first_page; at = tree_.node(at).parent) {
    const std::int64_t start = tree_.node(at).start_pages;
    const std::int64_t first = std::max<std::int64_t>(first_page - start, 0);
    const PageStretch owed = debts_.of(at, creditor);
    const bool owed_first = owed.first <= first && first < owed.end;
    const std::int64_t node_end = owed_first ? owed.end : first;
    if (start + node_end < tree_.node(at).end_pages()) end = start + node_end;
  }
  return end;
}

std::optional<OwedText> RadixPrefixCache::try_take_owed(std::int64_t creditor) {
  const NodeSlot end = debts_.oldest_or_none(creditor);
  if (!end.valid()) return std::nullopt;
  PageStretch own = debts_.take(end, creditor);
  const std::int64_t end_page = tree_.node(end).start_pages + own.end;
  NodeSlot at = end;
  while (own.first == 0) {
    const NodeSlot above = tree_.node(at).parent;
    const PageStretch owed = debts_.of(above, creditor);
    if (owed.empty() || owed.end != tree_.node(above).chain.pages) break;
    own = debts_.take(above, creditor);
    at = above;
  }
  return OwedText{lock_path(end), {tree_.node(at).start_pages + own.first, end_page}};
}

std::optional<std::string> RadixPrefixCache::audit_debts() const {
  if (auto fault = debts_.audit()) return fault;
  for (std::int64_t creditor = 0; creditor < debts_.creditors(); ++creditor) {
    NodeSlot at = debts_.oldest_or_none(creditor);
    for (; at.valid(); at = debts_.newer_or_none(at, creditor)) {
      if (!tree_.nodes().exists(at)) return "pages of no node are owed";
      if (tree_.node(at).unlinked) return "pages in quarantine are owed";
      if (debts_.of(at, creditor).end > tree_.node(at).chain.pages) return "no pages are owed";
    }
  }
  return std::nullopt;
}

}  // namespace stemma
