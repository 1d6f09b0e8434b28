#include "grammar/token_trie.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace stemma {
namespace {

std::size_t bytes_in_common(const std::string& a, const std::string& b) {
  const std::size_t most = std::min(a.size(), b.size());
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin()).first -
      a.begin());
}

}  // namespace

TokenTrie::TokenTrie(const std::vector<std::string>& bytes_of_tokens) {
  // No grammar has a text of so many bytes come as one token.
  constexpr std::size_t kBytesMax = std::numeric_limits<std::uint16_t>::max();
  std::vector<TokenId> order;
  for (std::size_t token = 0; token < bytes_of_tokens.size(); ++token) {
    const std::size_t bytes = bytes_of_tokens[token].size();
    if (bytes > 0 && bytes <= kBytesMax) order.push_back(static_cast<TokenId>(token));
  }
  const auto bytes_of = [&](TokenId token) -> const std::string& {
    return bytes_of_tokens[static_cast<std::size_t>(token)];
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return bytes_of(a) < bytes_of(b); });
  std::vector<std::size_t> path;  // nodes of the token before
  const auto leave = [&](std::size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      Node& node = nodes_[path.back()];
      node.behind = static_cast<std::uint32_t>(nodes_.size());
      if (path.size() == 1) continue;
      Node& above = nodes_[path[path.size() - 2]];
      above.is_plain = above.is_plain && node.is_plain;
      above.height = std::max<std::uint16_t>(above.height, node.height + 1U);
    }
  };
  const std::string nothing;
  const std::string* before = &nothing;
  for (const TokenId token : order) {
    const std::string& bytes = bytes_of(token);
    leave(bytes_in_common(*before, bytes));
    for (std::size_t depth = path.size(); depth < bytes.size(); ++depth) {
      path.push_back(nodes_.size());
      const auto byte = static_cast<std::uint8_t>(bytes[depth]);
      nodes_.push_back({.byte = byte,
                        .is_plain = ByteAutomaton::is_plain(byte),
                        .depth = static_cast<std::uint16_t>(depth),
                        .first_token = static_cast<std::uint32_t>(tokens_.size())});
    }
    tokens_.push_back(token);
    depth_max_ = std::max(depth_max_, bytes.size());
    before = &bytes;
  }
  leave(0);
  nodes_.push_back({.first_token = static_cast<std::uint32_t>(tokens_.size())});
}

// Sets the bits of all tokens at a node and below; the node behind them.
std::uint32_t TokenTrie::set_all(const Node& node, std::span<std::uint64_t> bits) const {
  for (std::uint32_t i = node.first_token; i < nodes_[node.behind].first_token; ++i) {
    const auto token = static_cast<std::size_t>(tokens_[i]);
    bits[token / 64] |= std::uint64_t{1} << (token % 64);
  }
  return node.behind;
}

void TokenTrie::allowed(ByteAutomaton& automaton, ByteAutomaton::State state,
                        std::span<std::uint64_t> bits) const {
  std::vector<ByteAutomaton::State> states(depth_max_ + 1);  // behind the bytes of the way down
  states[0] = state;
  for (std::uint32_t at = 0; at + 1 < nodes_.size();) {
    const Node& node = nodes_[at];
    if (node.is_plain && node.height <= automaton.free_run(states[node.depth])) {
      at = set_all(node, bits);
      continue;
    }
    const ByteAutomaton::State next = automaton.next(states[node.depth], node.byte);
    if (next == ByteAutomaton::kDead) {
      at = node.behind;
      continue;
    }
    states[node.depth + std::size_t{1}] = next;
    ++at;
    for (std::uint32_t i = node.first_token; i < nodes_[at].first_token; ++i) {
      const auto token = static_cast<std::size_t>(tokens_[i]);
      bits[token / 64] |= std::uint64_t{1} << (token % 64);
    }
  }
}

}  // namespace stemma
