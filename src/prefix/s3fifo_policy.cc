// A page that others continue is no leaf's last page, so moving the pages above one from queue to
// queue never touches the leaves.
#include "prefix/s3fifo_policy.h"

#include <algorithm>

#include "base/check.h"
#include "prefix/page_fingerprint.h"

namespace stemma {

S3FifoPolicy::S3FifoPolicy(const PagePolicyOptions& options)
    : capacity_(options.pages),
      page_size_(static_cast<std::size_t>(options.page_size)),
      ghosts_(std::max<std::int64_t>(options.pages - options.pages / kPagesPerSmallPage, 1)),
      pages_(static_cast<std::size_t>(options.pages)),
      small_(options.nodes_max),
      main_(options.nodes_max),
      leaves_(static_cast<std::size_t>(options.nodes_max)) {}

void S3FifoPolicy::published(const Published& what) {
  PageId above = what.above;
  std::uint64_t fingerprint =
      above.valid() ? page(above).fingerprint : root_fingerprint(what.namespace_seed);
  for (std::size_t i = 0; i < what.pages.size(); ++i) {
    const PageId id = what.pages[i];
    fingerprint = next_fingerprint(fingerprint, what.tokens.subspan(i * page_size_, page_size_));
    page(id) = {.fingerprint = fingerprint, .number = next_number_++, .above = above};
    ++small_pages_;
    if (ghosts_.take(fingerprint).has_value()) enter_main(id);
    above = id;
  }
}

void S3FifoPolicy::completed(std::span<const PageId> path, const PathPlaces&, const RequestEnd&) {
  for (const PageId id : path) {
    Page& used = page(id);
    if (used.computed) used.uses = std::min<std::uint8_t>(used.uses + 1, kUsesMax);
    used.computed = true;
  }
}

void S3FifoPolicy::enter_main(PageId id) noexcept {
  for (; id.valid() && !page(id).in_main; id = page(id).above) {
    Page& moved = page(id);
    moved.in_main = true;
    moved.uses = 0;
    moved.number = next_number_++;
    --small_pages_;
  }
}

void S3FifoPolicy::add_leaf(const Leaf& leaf) {
  const Page& last = page(leaf.last_page);
  leaves_[leaf.slot.index()] = leaf;
  (last.in_main ? main_ : small_).push(leaf.slot, {last.number, 0}, leaf.id);
}

void S3FifoPolicy::remove_leaf(NodeSlot slot) {
  (main_.contains(slot) ? main_ : small_).remove(slot);
}

PagePolicy::Victim S3FifoPolicy::next_victim() {
  STEMMA_CHECK(leaves() > 0, "a victim is one of the leaves");
  for (;;) {
    const bool small = small_is_full() ? !small_.empty() : main_.empty();
    const NodeSlot slot = small ? small_.top() : main_.top();
    const Leaf leaf = leaves_[slot.index()];
    Page& last = page(leaf.last_page);
    if (last.uses == 0) return {slot, 1};
    remove_leaf(slot);
    if (small) {
      enter_main(leaf.last_page);
    } else {
      --last.uses;
      last.number = next_number_++;
    }
    add_leaf(leaf);
  }
}

void S3FifoPolicy::evicted(std::span<const PageId> pages) {
  for (const PageId id : pages) {
    const Page& gone = page(id);
    if (gone.in_main) continue;
    --small_pages_;
    PageRecord ghost;
    ghost.fingerprint = gone.fingerprint;
    ghosts_.push(ghost);
  }
}

std::optional<std::string> S3FifoPolicy::audit() const {
  if (auto fault = small_.audit()) return fault;
  if (auto fault = main_.audit()) return fault;
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    const NodeSlot slot(static_cast<std::int32_t>(i));
    if (!contains(slot)) continue;
    const Page& last = pages_[leaves_[i].last_page.index()];
    const EvictionIndex& queue = last.in_main ? main_ : small_;
    if (!queue.contains(slot)) return "s3fifo: a leaf is not in its last page's queue";
    if (queue.key(slot).first != last.number)
      return "s3fifo: a leaf is not in its last page's place";
    if (last.in_main && last.above.valid() && !pages_[last.above.index()].in_main) {
      return "s3fifo: a page of the main queue continues one of the small queue";
    }
  }
  if (small_pages_ < small_.leaves()) return "s3fifo: pages of the small queue are miscounted";
  return std::nullopt;
}

}  // namespace stemma
