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

// What the bytes of a token are up to one of them, if the token begins with a character.
struct Begun {
  int wanted = 0;  // bytes that the character still has
  std::uint8_t least = 0x80;
  std::uint8_t most = 0xBF;
  bool is_text = true;   // since a mark of ASCII that is no plain byte
  bool all_text = true;  // all of it
  bool all_plain = true;
  int chars = 0;

  void follow(std::uint8_t byte) {
    if (wanted > 0) {
      is_text = is_text && byte >= least && byte <= most;
      --wanted;
    } else {
      is_text = is_text && (ByteAutomaton::is_plain(byte) || (byte >= 0xC2 && byte <= 0xF4));
      wanted = byte < 0xC2 ? 0 : byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
      ++chars;
    }
    least = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
    most = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
    all_text = all_text && is_text;
    all_plain = all_plain && ByteAutomaton::is_plain(byte);
  }
};

constexpr int kManyChars = 1 << 20;

// Begins of tokens at which somebody looks are work too, of less than a unit each.
constexpr std::int64_t kLooks = 1024;
constexpr std::int64_t kLooksWork = 64;

std::size_t text_index(ByteAutomaton::Text text) {
  return static_cast<std::size_t>(text);
}

void set_bit(TokenId token, std::span<std::uint64_t> bits) {
  const auto i = static_cast<std::size_t>(token);
  bits[i / 64] |= std::uint64_t{1} << (i % 64);
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
      above.is_text = above.is_text && node.is_text;
      const auto own = static_cast<std::uint16_t>(above.begins ? 1 : 0);
      above.height = std::max(above.height, static_cast<std::uint16_t>(own + node.height));
    }
  };
  for (Masks& masks : masks_) {
    for (auto& mask : masks) mask.resize(token_words(std::ssize(bytes_of_tokens)));
  }
  Masks& any = masks_[text_index(ByteAutomaton::Text::kAny)];
  Masks& plain = masks_[text_index(ByteAutomaton::Text::kPlain)];
  std::vector<Begun> begun;  // behind each byte of the token before
  const std::string nothing;
  const std::string* before = &nothing;
  for (const TokenId token : order) {
    const std::string& bytes = bytes_of(token);
    leave(bytes_in_common(*before, bytes));
    begun.resize(path.size());
    while (path.size() < bytes.size()) {
      path.push_back(nodes_.size());
      begun.push_back(begun.empty() ? Begun() : begun.back());
      const auto byte = static_cast<std::uint8_t>(bytes[path.size() - 1]);
      const bool begins = begun.back().wanted == 0;
      begun.back().follow(byte);
      nodes_.push_back({.byte = byte,
                        .is_plain = ByteAutomaton::is_plain(byte),
                        .is_text = begun.back().is_text,
                        .begins = begins,
                        .depth = static_cast<std::uint16_t>(path.size() - 1),
                        .height = static_cast<std::uint16_t>(begins ? 1 : 0),
                        .first_token = static_cast<std::uint32_t>(tokens_.size())});
      if (begins && byte < 0x80) begun.back().is_text = true;  // text may begin anew
    }
    tokens_.push_back(token);
    for (std::size_t i = 0; i < kLengths.size(); ++i) {
      if (begun.back().chars > kLengths[i]) continue;
      if (begun.back().all_text) set_bit(token, any[i]);
      if (begun.back().all_plain) set_bit(token, plain[i]);
    }
    depth_max_ = std::max(depth_max_, bytes.size());
    before = &bytes;
  }
  leave(0);
  nodes_.push_back({.first_token = static_cast<std::uint32_t>(tokens_.size())});
}

// Sets what is sure. False where the automaton has no work left to say.
bool TokenTrie::begin(ByteAutomaton& automaton, Walk& walk) const {
  Sure& sure = walk.sure_;
  int run = automaton.free_run(walk.state_, sure.text = ByteAutomaton::Text::kAny);
  if (run < kLengths.front()) {
    run = automaton.free_run(walk.state_, sure.text = ByteAutomaton::Text::kPlain);
  }
  if (automaton.stopped()) return false;
  walk.way_.resize(depth_max_ + 1);
  walk.way_[0].state = walk.state_;
  const auto longer = std::upper_bound(kLengths.begin(), kLengths.end(), run);
  if (longer == kLengths.begin()) return true;
  sure.chars = *(longer - 1);
  const auto& mask =
      masks_[text_index(sure.text)][static_cast<std::size_t>(longer - 1 - kLengths.begin())];
  for (std::size_t i = 0; i < walk.bits_.size(); ++i) walk.bits_[i] |= mask[i];
  return true;
}

// Sets the bits of all tokens at a node and below; the node behind them.
std::uint32_t TokenTrie::set_all(const Node& node, std::span<std::uint64_t> bits) const {
  const std::uint32_t end = nodes_[node.behind].first_token;
  for (std::uint32_t i = node.first_token; i < end; ++i) set_bit(tokens_[i], bits);
  return node.behind;
}

bool TokenTrie::find_allowed(ByteAutomaton& automaton, Walk& walk) const {
  if (walk.way_.empty() && !begin(automaton, walk)) return false;
  const Sure sure = walk.sure_;
  std::uint32_t at = walk.at_;
  const auto stop = [&] {
    walk.at_ = at;
    return false;
  };
  for (std::int64_t looks = 1; at + 1 < nodes_.size(); ++looks) {
    if (looks % kLooks == 0) {
      automaton.add_work(kLooksWork);
      if (automaton.work_left() <= 0) return stop();
    }
    const Node& node = nodes_[at];
    const Walk::Step& above = walk.way_[node.depth];
    const bool is_sure = sure.text == ByteAutomaton::Text::kPlain ? node.is_plain : node.is_text;
    if (is_sure && above.chars + node.height <= sure.chars) {
      at = node.behind;
      continue;
    }
    if (node.begins && node.is_text) {
      const auto text = node.is_plain ? ByteAutomaton::Text::kPlain : ByteAutomaton::Text::kAny;
      if (node.height <= automaton.free_run(above.state, text)) {
        at = set_all(node, walk.bits_);
        continue;
      }
      if (automaton.stopped()) return stop();
    }
    const ByteAutomaton::State next = automaton.next(above.state, node.byte);
    if (next == ByteAutomaton::kDead) {
      if (automaton.stopped()) return stop();
      at = node.behind;
      continue;
    }
    const bool stays_sure = sure.text == ByteAutomaton::Text::kPlain
                                ? ByteAutomaton::is_plain(node.byte)
                                : ByteAutomaton::is_plain(node.byte) || node.byte >= 0x80;
    const int chars = above.chars + (node.begins ? 1 : 0);
    walk.way_[node.depth + std::size_t{1}] = {next, stays_sure ? chars : kManyChars};
    ++at;
    for (std::uint32_t i = node.first_token; i < nodes_[at].first_token; ++i) {
      set_bit(tokens_[i], walk.bits_);
    }
  }
  return true;
}

}  // namespace stemma
