// Whose pages go first. Who has more than his quota, and who has none, pays in the eviction order.
// A leaf whose turn comes while its tenant is within its quota is parked instead: its tenant's
// parked leaves are then the first of its own order, and what is left in everybody's order are
// leaves that may go. So nothing is passed over twice: each use of a leaf parks it once at most.
//
// A tenant that gets more than its quota loses of its parked leaves first, whoever comes next in
// the order: they had their turn. Tenants within their quotas lose theirs when nobody else has any.
#include <string>
#include <vector>

#include "base/check.h"
#include "prefix/radix_prefix_cache.h"

namespace stemma {

void RadixPrefixCache::set_quota(const NamespaceFamily& tenant, std::int64_t pages) {
  const TenantQuota quota = {.family = tenant, .quota_pages = pages};
  set_quotas({&quota, 1});
}

void RadixPrefixCache::set_quotas(std::span<const TenantQuota> quotas) {
  const bool first = !quotas_.any();
  const auto known_tenants = static_cast<std::int32_t>(quotas_.tenants());
  for (const TenantQuota& quota : quotas) {
    STEMMA_CHECK(quota.quota_pages >= 0 && quota.quota_pages <= allocator_.total_pages(),
                 "a quota is of the pool's pages");
    if (quotas_.set(quota.family, quota.quota_pages)) parked_.add_queue();
    parked_.recount(quotas_.find(quota.family));
  }
  if (quotas_.tenants() == known_tenants) return;
  std::vector<NodeSlot> tops;  // whose nodes are somebody else's by now
  for (const NodeSlot root : roots_) {
    quotas_.name_root(root, family_of(digest_of(root)));
    const bool is_new = quotas_.tenant_of(root).value() >= known_tenants;
    if ((first || is_new) && tree_.node(root).children > 0) tops.push_back(root);
  }
  if (!tops.empty()) place_below(std::move(tops));
}

// Gives all nodes below these roots to their tenants, and counts their pages, in quarantine or not.
void RadixPrefixCache::place_below(std::vector<NodeSlot> roots) {
  const RadixTree::ChildLists lists = tree_.child_lists();
  std::vector<NodeSlot> placed = std::move(roots);
  for (std::size_t i = 0; i < placed.size(); ++i) {
    for (NodeSlot child = lists.first_child[placed[i].index()]; child.valid();
         child = lists.next_sibling[child.index()]) {
      quotas_.place(child, placed[i]);
      parked_.recount(quotas_.count(child, tree_.node(child).chain.pages));
      placed.push_back(child);
    }
  }
}

std::vector<TenantQuota> RadixPrefixCache::quotas() const {
  std::vector<TenantQuota> quotas;
  for (const TenantId tenant : id_range(TenantId(0), quotas_.tenants())) {
    quotas.push_back(quotas_.quota(tenant));
  }
  return quotas;
}

NodeSlot RadixPrefixCache::root_above(NodeSlot slot) const {
  while (!tree_.node(slot).is_root()) slot = tree_.node(slot).parent;
  return slot;
}

std::int64_t RadixPrefixCache::spare_pages(NodeSlot leaf) const noexcept {
  const std::int64_t pages = tree_.node(leaf).chain.pages - wanted_.wanted_pages(leaf);
  return std::min(pages, quotas_.over_pages(leaf));
}

// The leaf's turn came, and its tenant is within its quota.
void RadixPrefixCache::park(NodeSlot leaf) {
  remove_evictable(leaf);
  parked_.park(leaf, quotas_.tenant_of(leaf), tree_.node(leaf).last_use);
}

// The parked leaf that goes before all others: of the tenants over their quotas, of the fullest.
// Where there is no other leaf that nobody waits for, the one parked first.
NodeSlot RadixPrefixCache::next_parked_or_none() const {
  if (parked_.leaves() == 0) return {};
  const TenantId fullest = parked_.fullest();
  if (quotas_.over_pages(fullest) > 0) return parked_.first(fullest);
  return ordered_leaves() == 0 ? parked_.oldest() : NodeSlot();
}

// The leaf that goes next.
NodeSlot RadixPrefixCache::coldest_or_none() {
  const NodeSlot parked = next_parked_or_none();
  if (parked.valid()) return parked;
  if (policy_ != nullptr) policy_->begin_eviction();
  while (ordered_leaves() > 0) {
    const NodeSlot leaf = policy_ == nullptr ? index_.top() : policy_->next_victim().slot;
    if (spare_pages(leaf) > 0) return leaf;
    park(leaf);
  }
  const NodeSlot over = next_parked_or_none();
  return over.valid() || wanted_.leaves() == 0 ? over : wanted_.last();
}

// No more than its tenant has beyond its quota, or all where nobody has anything else to give.
OwnedPages RadixPrefixCache::evict_parked_leaf(NodeSlot leaf, std::int64_t wanted_pages) {
  std::int64_t pages = tree_.node(leaf).chain.pages - wanted_.wanted_pages(leaf);
  const std::int64_t over_pages = quotas_.over_pages(leaf);
  if (over_pages > 0) pages = std::min(pages, over_pages);
  if (policy_ == nullptr) aging_ = std::max(aging_, key_of(leaf).first);
  OwnedPages out = evict_unordered_leaf(leaf, std::min(wanted_pages, pages));
  if (parked_.contains(leaf) && wanted_as_a_whole(leaf)) {
    parked_.remove(leaf);
    add_evictable(leaf);
  }
  return out;
}

// Every node is its namespace's tenant's, and so are the pages that are counted; what is parked is
// in its tenant's queue.
std::optional<std::string> RadixPrefixCache::audit_quotas() const {
  if (!quotas_.any()) return std::nullopt;
  std::vector<std::int64_t> pages(static_cast<std::size_t>(quotas_.tenants()), 0);
  for (const NodeSlot slot : id_range(NodeSlot(0), tree_.nodes().high_water())) {
    if (!tree_.nodes().exists(slot)) continue;
    const NamespaceFamily family = family_of(digest_of(root_above(slot)));
    const TenantId tenant = quotas_.tenant_of(slot);
    if (tenant != quotas_.find(family)) return "a node is not its namespace's tenant's";
    if (parked_.contains(slot) && parked_.tenant_of(slot) != tenant)
      return "a leaf is parked with another tenant's";
    if (tenant.valid()) pages[tenant.index()] += tree_.node(slot).chain.pages;
  }
  for (const TenantId tenant : id_range(TenantId(0), quotas_.tenants())) {
    if (pages[tenant.index()] != quotas_.quota(tenant).pages)
      return "a tenant's pages are miscounted";
  }
  return std::nullopt;
}

}  // namespace stemma
