// Nothing in the index changes its key: a page that a request uses is held by it, and no leaf.
#include "prefix/tlru_policy.h"

#include <algorithm>

#include "base/check.h"

namespace stemma {

TlruPolicy::TlruPolicy(const PagePolicyOptions& options)
    : page_size_(options.page_size),
      pages_(static_cast<std::size_t>(options.pages)),
      index_(options.nodes_max),
      last_pages_(static_cast<std::size_t>(options.nodes_max)) {}

void TlruPolicy::published(const Published& what) {
  for (const PageId id : what.pages) pages_[id.index()] = {.request = requests_};
}

// A page of the path stands for its share of the request's tokens: a replay's pages for more than
// the cache was given.
void TlruPolicy::completed(std::span<const PageId> path, const PathPlaces& places,
                           const RequestEnd& end) {
  ++requests_;
  const std::int64_t history_tokens =
      std::max(end.prompt_tokens + end.output_tokens, places.text_pages * page_size_);
  for (std::size_t i = 0; i < path.size(); ++i) {
    const std::int64_t lost_pages = places.text_pages - places.of(i);
    const std::int64_t lost_tokens = history_tokens * lost_pages / places.text_pages;
    pages_[path[i].index()] = {.request = requests_,
                               .spare = lost_tokens + kNextTurnTokens <= kComputedTokensMax};
  }
}

EvictionKey TlruPolicy::key(PageId page) const noexcept {
  const Page& known = pages_[page.index()];
  return {known.spare ? 0 : 1, known.request};
}

void TlruPolicy::add_leaf(const Leaf& leaf) {
  last_pages_[leaf.slot.index()] = leaf.last_page;
  index_.push(leaf.slot, key(leaf.last_page), leaf.id);
}

PagePolicy::Victim TlruPolicy::next_victim() {
  STEMMA_CHECK(leaves() > 0, "a victim is one of the leaves");
  return {index_.top(), 1};
}

std::optional<std::string> TlruPolicy::audit() const {
  if (auto fault = index_.audit()) return fault;
  for (std::size_t i = 0; i < last_pages_.size(); ++i) {
    const NodeSlot slot(static_cast<std::int32_t>(i));
    if (!contains(slot)) continue;
    if (index_.key(slot) != key(last_pages_[i])) return "tlru: a leaf lies under an old key";
  }
  return std::nullopt;
}

}  // namespace stemma
