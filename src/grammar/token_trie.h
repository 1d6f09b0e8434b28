// TokenTrie: the tokens of a vocabulary by the bytes that they write, and which of them a grammar
// allows now.
//
// Thread:     const methods are safe from many threads at once.
// Memory:     16 bytes a node, of which a vocabulary of 128k tokens has some 300,000; ten bits a
//             token.
// Cost:       of find_allowed(): a look at every begin of a token that the grammar allows, and one
//             more byte: a microsecond where few bytes may come. Tokens of text alone are not
//             looked at where any text may come.
// Not here:   which bytes a token writes (token_bytes).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "grammar/byte_automaton.h"
#include "stemma/ids.h"

namespace stemma {

// Words of 64 bits that hold a bit for each token: token t is bit t % 64 of word t / 64.
inline std::size_t token_words(std::int64_t tokens) {
  return static_cast<std::size_t>((tokens + 63) / 64);
}

class TokenTrie {
 public:
  // By token; what writes no bytes is never allowed.
  explicit TokenTrie(const std::vector<std::string>& bytes_of_tokens);

  // Which tokens may follow in a state, as far as it is known: a value.
  class Walk;

  // Sets the bits of the tokens that may follow in the walk's state, and no others. False where the
  // automaton has no work left before all are known: it is to be called again, as long as the
  // automaton keeps its states.
  [[nodiscard]] bool find_allowed(ByteAutomaton& automaton, Walk& walk) const;

 private:
  // In depth-first order: the first node below this one, if there is one, is the next.
  struct Node {
    std::uint8_t byte = 0;
    // It and all below it are plain bytes; whole characters but for a last one, plain or beyond
    // ASCII.
    bool is_plain = true;
    bool is_text = true;
    bool begins = true;             // a character
    std::uint16_t depth = 0;        // of its byte in the token
    std::uint16_t height = 1;       // characters that begin on the longest way down from it
    std::uint32_t behind = 0;       // the first node that is not below this one
    std::uint32_t first_token = 0;  // its tokens are those up to the next node's first
  };

  // Tokens of so many characters of a text at most, as bits; in the order of kLengths.
  static constexpr std::array<int, 5> kLengths = {4, 8, 12, 16, ByteAutomaton::kRunMax};
  using Masks = std::array<std::vector<std::uint64_t>, kLengths.size()>;
  // What is allowed for sure, before anything is looked at: tokens of so many characters of `text`.
  struct Sure {
    ByteAutomaton::Text text = ByteAutomaton::Text::kAny;
    int chars = 0;
  };

  bool begin(ByteAutomaton& automaton, Walk& walk) const;
  std::uint32_t set_all(const Node& node, std::span<std::uint64_t> bits) const;

  std::vector<Node> nodes_;  // and one behind the last
  std::vector<TokenId> tokens_;
  std::array<Masks, 2> masks_;  // of each ByteAutomaton::Text
  std::size_t depth_max_ = 0;
};

class TokenTrie::Walk {
 public:
  // REQUIRES: bits.size() == token_words(number of tokens), all 0; they outlive this.
  Walk(ByteAutomaton::State state, std::span<std::uint64_t> bits) : state_(state), bits_(bits) {}

  ByteAutomaton::State state() const { return state_; }

 private:
  friend class TokenTrie;
  // Of the way down: the state behind it, and how many characters it is; more than there may be
  // where it is not of the sure text alone.
  struct Step {
    ByteAutomaton::State state = ByteAutomaton::kDead;
    int chars = 0;
  };

  ByteAutomaton::State state_;
  std::span<std::uint64_t> bits_;
  Sure sure_ = {};
  std::vector<Step> way_ = {};  // empty: it has not begun
  std::uint32_t at_ = 0;        // the node that is looked at next
};

}  // namespace stemma
