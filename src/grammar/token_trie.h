// TokenTrie: the tokens of a vocabulary by the bytes that they write, and which of them a grammar
// allows now.
//
// Thread:     const methods are safe from many threads at once.
// Memory:     16 bytes a node, of which a vocabulary of 128k tokens has some 300,000.
// Cost:       of allowed(): a look at every begin of a token that the grammar allows, and one more
//             byte: a microsecond where few bytes may come. Tokens of plain text are not looked at
//             where any plain text may come, but for setting their bits.
// Not here:   which bytes a token writes (token_bytes).
#pragma once

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

  // Sets the bits of the tokens that may follow in this state, and no others.
  // REQUIRES: bits.size() == token_words(number of tokens), all 0.
  void allowed(ByteAutomaton& automaton, ByteAutomaton::State state,
               std::span<std::uint64_t> bits) const;

 private:
  // In depth-first order: the first node below this one, if there is one, is the next.
  struct Node {
    std::uint8_t byte = 0;
    bool is_plain = true;           // it and all below it are plain bytes
    std::uint16_t depth = 0;        // of its byte in the token
    std::uint32_t behind = 0;       // the first node that is not below this one
    std::uint32_t first_token = 0;  // its tokens are those up to the next node's first
    std::uint16_t height = 1;       // bytes of the longest way down, its own included
  };

  std::uint32_t set_all(const Node& node, std::span<std::uint64_t> bits) const;

  std::vector<Node> nodes_;  // and one behind the last
  std::vector<TokenId> tokens_;
  std::size_t depth_max_ = 0;
};

}  // namespace stemma
