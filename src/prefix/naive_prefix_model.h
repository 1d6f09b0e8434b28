// NaivePrefixModel: what a prefix cache does, written as plainly as possible, to compare with in
// tests.
//
// Nothing is incremental: every operation touches its whole path, every eviction collects and sorts
// all leaves, every query walks the tree. It keeps page ids, not pages.
//
// Thread:     tests.
// Memory:     maps and vectors.
// Cost:       O(tree) for everything.
// Not here:   anything that ships.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "prefix/eviction_order.h"
#include "prefix/naive_quotas.h"
#include "stemma/ids.h"
#include "stemma/prefix_cache.h"

namespace stemma {

class NaivePrefixModel {
 public:
  using Tokens = std::vector<TokenId>;
  using Pages = std::vector<PageId>;

  struct Node {
    std::int64_t id = 0;
    Node* parent = nullptr;
    Tokens tokens;
    Pages pages;
    std::map<Tokens, std::unique_ptr<Node>> children;  // by first page
    std::int64_t locks = 0;
    NodeUse use;
  };

  NaivePrefixModel(std::int64_t page_size, EvictionOrder order, std::int64_t namespaces)
      : page_size_(static_cast<std::size_t>(page_size)), order_(order) {
    for (std::int64_t ns = 0; ns < namespaces; ++ns) roots_.push_back(make_node(nullptr));
  }

  // Of the tenant whose only namespace that is.
  void set_quota(std::size_t ns, std::int64_t pages) { quotas_.set(roots_[ns].get(), pages); }

  std::int64_t probe(std::size_t ns, const Tokens& tokens) const {
    std::size_t matched = 0;
    const Node* node = roots_[ns].get();
    while (const Node* child = child_of(*node, tokens, matched)) {
      const std::size_t common = common_tokens(*child, tokens, matched);
      matched += common;
      if (common < child->tokens.size()) break;
      node = child;
    }
    return static_cast<std::int64_t>(matched);
  }

  Node* match(std::size_t ns, const Tokens& tokens) {
    ++now_;
    Node* node = walk(roots_[ns].get(), tokens, 0);
    for (Node* at = node; at != nullptr; at = at->parent) {
      at->use.last_use = now_;
      at->use.aging = aging_;
      ++at->use.hits;
      ++at->locks;
    }
    return node;
  }

  // `pages` continue what `held` covers up to the end of `tokens`. Moves the lock. Ids in `pages`
  // that turn out to be duplicates are returned.
  std::pair<Node*, Pages> insert(const Tokens& tokens, Node* held, const Pages& pages,
                                 std::int64_t priority) {
    ++now_;
    const std::size_t held_tokens = path_tokens(held).size();
    Node* node = walk(held, tokens, held_tokens);
    const std::size_t matched = path_tokens(node).size();
    const auto duplicates = static_cast<std::ptrdiff_t>((matched - held_tokens) / page_size_);
    Pages left(pages.begin() + duplicates, pages.end());
    unlock(held);
    if (!left.empty()) {
      const bool alone = node->parent != nullptr && node->children.empty() && node->locks == 0;
      if (!alone) node = add_child(node, tokens, matched, priority);
      const auto from = tokens.begin() + static_cast<std::ptrdiff_t>(matched);
      node->tokens.insert(node->tokens.end(), from, tokens.end());
      node->pages.insert(node->pages.end(), left.begin(), left.end());
    }
    for (Node* at = node; at != nullptr; at = at->parent) {
      at->use.last_use = now_;
      at->use.aging = aging_;
      at->use.priority = std::max(at->use.priority, priority);
      ++at->locks;
    }
    return {node, Pages(pages.begin(), pages.begin() + duplicates)};
  }

  static void unlock(Node* node) {
    for (; node != nullptr; node = node->parent) --node->locks;
  }

  Pages evict(std::int64_t wanted) {
    Pages out;
    while (static_cast<std::int64_t>(out.size()) < wanted) {
      std::vector<Node*> leaves;
      for (const auto& root : roots_) collect_leaves(*root, leaves);
      if (leaves.empty()) break;
      std::sort(leaves.begin(), leaves.end(), [this](Node* a, Node* b) {
        return std::pair(order_.key(a->use), a->id) < std::pair(order_.key(b->use), b->id);
      });
      Node* leaf = quotas_.next_of(leaves);
      aging_ = std::max(aging_, order_.key(leaf->use).first);
      std::size_t take =
          std::min(static_cast<std::size_t>(wanted) - out.size(), leaf->pages.size());
      const auto over_pages = static_cast<std::size_t>(quotas_.over_pages(leaf));
      if (over_pages > 0) take = std::min(take, over_pages);
      out.insert(out.end(), leaf->pages.end() - static_cast<std::ptrdiff_t>(take),
                 leaf->pages.end());
      leaf->pages.resize(leaf->pages.size() - take);
      leaf->tokens.resize(leaf->pages.size() * page_size_);
      if (leaf->pages.empty()) erase(leaf);
    }
    return out;
  }

  PrefixUsage usage() const {
    PrefixUsage usage;
    for (const auto& root : roots_) add_usage(*root, usage);
    return usage;
  }

  // The ids from the root to the end of `node`.
  static Pages path_pages(const Node* node) {
    Pages pages;
    for (; node != nullptr; node = node->parent) {
      pages.insert(pages.begin(), node->pages.begin(), node->pages.end());
    }
    return pages;
  }
  static Tokens path_tokens(const Node* node) {
    Tokens tokens;
    for (; node != nullptr; node = node->parent) {
      tokens.insert(tokens.begin(), node->tokens.begin(), node->tokens.end());
    }
    return tokens;
  }

  // As RadixPrefixCache::draw, for nodes of at most 32 tokens.
  std::string draw() const {
    std::string out;
    for (std::size_t ns = 0; ns < roots_.size(); ++ns) {
      out += "namespace " + std::to_string(ns) + "\n";
      for (const auto& [page, child] : roots_[ns]->children) draw_node(*child, 1, out);
    }
    return out;
  }

 private:
  std::unique_ptr<Node> make_node(Node* parent) {
    auto node = std::make_unique<Node>();
    node->id = next_id_++;
    node->parent = parent;
    node->use.created = now_;
    return node;
  }

  Tokens page_at(const Tokens& tokens, std::size_t at) const {
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(at);
    return Tokens(first, first + static_cast<std::ptrdiff_t>(page_size_));
  }

  Node* child_of(const Node& node, const Tokens& tokens, std::size_t at) const {
    if (at + page_size_ > tokens.size()) return nullptr;
    const auto child = node.children.find(page_at(tokens, at));
    return child == node.children.end() ? nullptr : child->second.get();
  }

  std::size_t common_tokens(const Node& node, const Tokens& tokens, std::size_t at) const {
    std::size_t common = 0;
    while (common < node.tokens.size() && at + common < tokens.size() &&
           node.tokens[common] == tokens[at + common]) {
      ++common;
    }
    return common / page_size_ * page_size_;
  }

  // Down from `node`, which ends at `at`; splits where the tokens end inside a node.
  Node* walk(Node* node, const Tokens& tokens, std::size_t at) {
    while (Node* child = child_of(*node, tokens, at)) {
      const std::size_t common = common_tokens(*child, tokens, at);
      at += common;
      if (common < child->tokens.size()) return split(child, common);
      node = child;
    }
    return node;
  }

  Node* split(Node* lower, std::size_t tokens) {
    std::unique_ptr<Node>& place = lower->parent->children[page_at(lower->tokens, 0)];
    std::unique_ptr<Node> owned = std::move(place);
    place = make_node(lower->parent);
    Node* upper = place.get();
    const auto cut = static_cast<std::ptrdiff_t>(tokens);
    const auto cut_pages = static_cast<std::ptrdiff_t>(tokens / page_size_);
    upper->tokens.assign(lower->tokens.begin(), lower->tokens.begin() + cut);
    upper->pages.assign(lower->pages.begin(), lower->pages.begin() + cut_pages);
    upper->locks = lower->locks;
    upper->use = lower->use;
    lower->tokens.erase(lower->tokens.begin(), lower->tokens.begin() + cut);
    lower->pages.erase(lower->pages.begin(), lower->pages.begin() + cut_pages);
    lower->parent = upper;
    upper->children[page_at(lower->tokens, 0)] = std::move(owned);
    return upper;
  }

  Node* add_child(Node* parent, const Tokens& tokens, std::size_t at, std::int64_t priority) {
    std::unique_ptr<Node>& place = parent->children[page_at(tokens, at)];
    place = make_node(parent);
    place->use.priority = priority;
    return place.get();
  }

  static void erase(Node* leaf) {
    auto& siblings = leaf->parent->children;
    const auto place = std::find_if(siblings.begin(), siblings.end(),
                                    [&](const auto& entry) { return entry.second.get() == leaf; });
    siblings.erase(place);
  }

  static void collect_leaves(Node& node, std::vector<Node*>& leaves) {
    if (node.children.empty() && node.locks == 0 && node.parent != nullptr) leaves.push_back(&node);
    for (const auto& [page, child] : node.children) collect_leaves(*child, leaves);
  }

  static void add_usage(const Node& node, PrefixUsage& usage) {
    const auto tokens = static_cast<std::int64_t>(node.tokens.size());
    (node.locks == 0 ? usage.evictable_tokens : usage.locked_tokens) += tokens;
    for (const auto& [page, child] : node.children) add_usage(*child, usage);
  }

  void draw_node(const Node& node, std::size_t depth, std::string& out) const {
    out += std::string(depth * 2, ' ') + "[";
    for (std::size_t i = 0; i < node.tokens.size(); ++i) {
      if (i > 0) out += i % page_size_ == 0 ? "|" : " ";
      out += std::to_string(node.tokens[i]);
    }
    out += "] @";
    for (std::size_t i = 0; i < node.pages.size();) {
      std::size_t end = i + 1;
      while (end < node.pages.size() &&
             node.pages[end].value() == node.pages[end - 1].value() + 1) {
        ++end;
      }
      out += (i > 0 ? "," : "") + std::to_string(node.pages[i].value());
      if (end - i > 1) out += "-" + std::to_string(node.pages[end - 1].value());
      i = end;
    }
    if (node.locks > 0) out += " locks " + std::to_string(node.locks);
    out += "\n";
    for (const auto& [page, child] : node.children) draw_node(*child, depth + 1, out);
  }

  std::size_t page_size_;
  EvictionOrder order_;
  std::vector<std::unique_ptr<Node>> roots_;
  std::int64_t next_id_ = 0;
  std::int64_t now_ = 0;
  std::int64_t aging_ = 0;
  NaiveQuotas<Node> quotas_;
};

}  // namespace stemma
