// Namespaces of the tree, each with a root, and what becomes of their pages when their names run
// out.
//
// A namespace that is closed keeps its pages, and with them its name. When all names are given, the
// next new namespace gets that of one that has nothing; where all have something, those that were
// used least lately, and that nobody holds, lose all of it: one in kNamesPerSweep at once, for
// finding their nodes takes a look at every node. Nobody else loses anything.
//
// Who opens many namespaces does not pay with what other tenants are sure of: those whose loss
// leaves their tenant its quota go first, and no others with them, however few they are. Where
// there are none, it is those of who has more than his quota, and where there are none of these
// either, those of tenants within theirs: no name is refused for what could go.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "prefix/radix_prefix_cache.h"

namespace stemma {
namespace {

constexpr std::int64_t kNamesPerSweep = 64;

std::int64_t pages_of(const RadixTree& tree, const std::vector<NodeSlot>& nodes) {
  std::int64_t pages = 0;
  for (const NodeSlot node : nodes) pages += tree.node(node).chain.pages;
  return pages;
}

}  // namespace

std::optional<NamespaceId> RadixPrefixCache::try_open_namespace(const NamespaceDigest& digest,
                                                                OwnedPages* evicted_or_null) {
  const std::optional<NamespaceId> known = namespaces_.try_open(digest);
  if (known.has_value() && known->index() < roots_.size()) return known;
  NamespaceId ns;
  if (known.has_value()) {
    ns = *known;
    roots_.push_back(tree_.add_root(now_));
    namespace_of_[roots_.back().index()] = ns;
  } else {
    ns = rename_closed_or_none(digest, evicted_or_null);
    if (!ns.valid()) return std::nullopt;
    tree_.renew_root(root_of(ns), now_);
    grafts_.set_grafted(ns, false);
  }
  if (quotas_.any()) quotas_.name_root(root_of(ns), family_of(digest));
  return ns;
}

void RadixPrefixCache::close_namespace(NamespaceId ns) {
  namespaces_.close(ns);
  if (tree_.node(root_of(ns)).children == 0) namespaces_.note_empty(ns);
}

std::optional<NamespaceId> RadixPrefixCache::find_namespace(const NamespaceDigest& digest) const {
  return namespaces_.find(digest);
}

// The name of a closed namespace, which loses what it has.
NamespaceId RadixPrefixCache::rename_closed_or_none(const NamespaceDigest& digest,
                                                    OwnedPages* evicted_or_null) {
  NamespaceId ns = first_free_or_none(namespaces_.first_closed_or_none());
  if (!ns.valid()) return ns;
  if (tree_.node(root_of(ns)).children > 0) {
    OwnedPages evicted = empty_least_used();
    if (evicted_or_null != nullptr) evicted_or_null->append(std::move(evicted));
    ns = namespaces_.first_closed_or_none();  // one of those, for it has nothing now
  }
  namespaces_.rename(ns, digest);
  return ns;
}

// The first one, from this one on in the row of closed ones, of which nobody holds anything.
NamespaceId RadixPrefixCache::first_free_or_none(NamespaceId first) const {
  while (first.valid() && tree_.node(root_of(first)).lock_count > 0) {
    first = namespaces_.next_closed_or_none(first);
  }
  return first;
}

OwnedPages RadixPrefixCache::empty_least_used() {
  const RadixTree::ChildLists lists = tree_.child_lists();
  OwnedPages out;
  for (const Payers payers :
       {Payers::kWhoKeepTheirQuotas, Payers::kWhoHaveMore, Payers::kEverybody}) {
    out = empty_least_used_of(payers, lists);
    if (!out.empty()) break;
  }
  ++epoch_;
  return out;
}

// What nobody holds is held by nobody below either (I3).
OwnedPages RadixPrefixCache::empty_least_used_of(Payers payers,
                                                 const RadixTree::ChildLists& lists) {
  std::int64_t left = std::max<std::int64_t>(namespaces_.namespaces_max() / kNamesPerSweep, 1);
  OwnedPages out;
  NamespaceId next;
  NamespaceId ns = first_free_or_none(namespaces_.first_closed_or_none());
  for (; ns.valid() && left > 0; ns = next) {
    next = first_free_or_none(namespaces_.next_closed_or_none(ns));  // before ns goes to the front
    const std::int64_t over = quotas_.over_pages(root_of(ns));
    if (payers != Payers::kEverybody && over == 0) continue;
    const std::vector<NodeSlot> nodes = subtrees({root_of(ns)}, lists);
    if (payers == Payers::kWhoKeepTheirQuotas && pages_of(tree_, nodes) > over) continue;
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      if (!tree_.node(*node).is_root()) out.append(take_leaf(*node));
    }
    --left;
  }
  return out;
}

const NamespaceDigest& RadixPrefixCache::digest_of(NodeSlot root) const {
  return namespaces_.digest(namespace_of(root));
}

NodeSlot RadixPrefixCache::root_of(NamespaceId ns) const {
  STEMMA_CHECK(namespaces_.contains(ns), "a namespace is opened before it is used");
  return roots_[ns.index()];
}

}  // namespace stemma
