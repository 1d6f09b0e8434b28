// NaiveQuotas: who goes first under quotas, written as plainly as possible: for the naive model.
//
// Each namespace is a tenant's own. Pages are counted anew whenever they are asked for.
//
// Thread:     tests.
// Memory:     an entry a leaf that was ever spared.
// Cost:       O(tree) a leaf.
// Not here:   the order of eviction (naive_prefix_model).
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <vector>

namespace stemma {

// `Node` is NaivePrefixModel's.
template <typename Node>
class NaiveQuotas {
 public:
  void set(const Node* root, std::int64_t pages) { quotas_[root] = pages; }

  // Pages beyond the quota of whose the node is; where he has none, all that there could be.
  std::int64_t over_pages(const Node* node) const {
    const auto quota = quotas_.find(root_of(node));
    if (quota == quotas_.end()) return std::numeric_limits<std::int64_t>::max();
    return std::max<std::int64_t>(pages_below(*quota->first) - quota->second, 0);
  }

  // Of leaves in everybody's order: first what was spared of who is over his quota by now, of the
  // fullest; then who has no quota or is over it; then what was spared first.
  Node* next_of(const std::vector<Node*>& leaves) {
    std::vector<Node*> parked;
    const auto spared = [this](const Node* leaf) { return is_spared(leaf); };
    std::copy_if(leaves.begin(), leaves.end(), std::back_inserter(parked), spared);
    std::sort(parked.begin(), parked.end(),
              [this](Node* a, Node* b) { return spared_[a->id].turn < spared_[b->id].turn; });
    Node* fullest = nullptr;
    for (Node* leaf : parked) {
      if (over_pages(leaf) > 0 && (fullest == nullptr || fuller(leaf, fullest))) fullest = leaf;
    }
    if (fullest != nullptr) return fullest;
    for (Node* leaf : leaves) {
      if (is_spared(leaf)) continue;
      if (over_pages(leaf) > 0) return leaf;
      spared_[leaf->id] = {++turns_, leaf->use.last_use};
      parked.push_back(leaf);
    }
    return parked.front();
  }

 private:
  struct Spared {
    std::int64_t turn = 0;
    std::int64_t last_use = 0;
  };

  // Until it is used.
  bool is_spared(const Node* leaf) const {
    const auto found = spared_.find(leaf->id);
    return found != spared_.end() && found->second.last_use == leaf->use.last_use;
  }

  bool fuller(const Node* a, const Node* b) const {
    const Node* root_a = root_of(a);
    const Node* root_b = root_of(b);
    return pages_below(*root_a) * quotas_.at(root_b) > pages_below(*root_b) * quotas_.at(root_a);
  }

  static const Node* root_of(const Node* node) {
    while (node->parent != nullptr) node = node->parent;
    return node;
  }

  static std::int64_t pages_below(const Node& node) {
    auto pages = static_cast<std::int64_t>(node.pages.size());
    for (const auto& [page, child] : node.children) pages += pages_below(*child);
    return pages;
  }

  std::map<const Node*, std::int64_t> quotas_;  // in pages, by root
  std::map<std::int64_t, Spared> spared_;       // by the node's id
  std::int64_t turns_ = 0;
};

}  // namespace stemma
