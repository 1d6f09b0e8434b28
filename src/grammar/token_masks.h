// TokenMasks: which tokens the states of one automaton allow, one list a state for all who are in
// it.
//
// Thread:     one at a time; what a list says never changes, and may be read meanwhile.
// Memory:     a bit a token of the vocabulary and state: of kKnownMax states, and of those that
//             somebody holds.
// Cost:       a look-up.
// Not here:   finding out (token_trie).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "grammar/byte_automaton.h"

namespace stemma {

struct TokenMask {
  std::vector<std::uint64_t> words;  // as TokenTrie has them
  std::int64_t holders = 0;
};

class TokenMasks {
 public:
  static constexpr std::size_t kKnownMax = 512;

  // That of a state; nullptr if it is not known. Valid until the next add, unless it is held.
  TokenMask* find_or_null(ByteAutomaton::State state) {
    const auto found = known_.find(state);
    return found == known_.end() ? nullptr : found->second.get();
  }
  // REQUIRES: that of the state is not known.
  TokenMask& add(ByteAutomaton::State state, std::vector<std::uint64_t> words) {
    if (known_.size() >= kKnownMax) {
      std::erase_if(known_, [](const auto& one) { return one.second->holders == 0; });
    }
    const auto [place, added] = known_.try_emplace(state, std::make_unique<TokenMask>());
    STEMMA_CHECK(added, "a state has one list");
    place->second->words = std::move(words);
    return *place->second;
  }
  // States have other numbers from now on, or none: what is held stays until it is let go.
  void forget_states() {
    for (auto& [state, mask] : known_) {
      if (mask->holders > 0) forgotten_.push_back(std::move(mask));
    }
    known_.clear();
  }

  static void hold(TokenMask& mask) { ++mask.holders; }
  // REQUIRES: it is held.
  void let_go(TokenMask& mask) {
    if (--mask.holders > 0) return;
    std::erase_if(forgotten_, [&](const auto& one) { return one.get() == &mask; });
  }

  // Lists that there are.
  std::size_t size() const { return known_.size() + forgotten_.size(); }

 private:
  std::unordered_map<ByteAutomaton::State, std::unique_ptr<TokenMask>> known_;
  std::vector<std::unique_ptr<TokenMask>> forgotten_;  // each is held
};

}  // namespace stemma
