// ByteAutomaton: follows texts byte by byte through a program, and says what may come next.
//
// A state is the list of places where the text may be, each with the rules that are to go on when
// its own has ended. States are made as texts come to them and kept, so that who comes by again
// looks up an entry of a table: a deterministic automaton, of which only what is used exists.
//
// Thread:     one thread at a time.
// Memory:     about 1.1 KiB a state and 16 bytes a place; nothing bounds them but keep_only().
// Cost:       a look-up for a byte that came in this state before; else linear in the places.
// Not here:   tokens (token_trie), where programs come from (byte_grammar).
//
// What a state is depends on the bytes that led to it and on nothing else: not on which texts were
// followed before, nor on keep_only().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "grammar/byte_grammar.h"

namespace stemma {

class ByteAutomaton {
 public:
  using State = std::int32_t;
  static constexpr State kDead = -1;  // no text goes on so
  // A text that may be read in more ways than that is followed in the first so many alone: what
  // comes is of the grammar still, and can come to an end.
  static constexpr std::size_t kPlacesMax = 512;

  explicit ByteAutomaton(ByteProgram program);

  // Of no bytes.
  State start() const { return 0; }
  // REQUIRES: `state` is alive, and was given or kept since the last keep_only().
  State next(State state, std::uint8_t byte) {
    const State known = states_[static_cast<std::size_t>(state)].next[byte];
    return known != kUnknown ? known : find_next(state, byte);
  }
  // Whether the text may be all; whether another byte may come. REQUIRES: as next.
  bool may_end(State state) const { return states_[static_cast<std::size_t>(state)].may_end; }
  bool may_go_on(State state) const {
    return !states_[static_cast<std::size_t>(state)].places->empty();
  }

  // States and what they remember, as one number to bound them by.
  std::size_t size() const { return states_.size() + stacks_.size(); }
  // Forgets all states but that of no bytes and these, which get new numbers.
  // REQUIRES: each as next.
  void keep_only(std::span<State* const> kept);

 private:
  static constexpr State kUnknown = -2;

  // A byte may come at `step`; `stack` goes on when its rule has ended, 0: nothing does.
  struct Place {
    std::int32_t step = 0;
    std::int32_t stack = 0;
    auto operator<=>(const Place&) const = default;
  };
  struct Stack {
    std::int32_t step = 0;   // where a rule goes on,
    std::int32_t below = 0;  // and what goes on when that one has ended
  };
  struct Reached {
    std::vector<Place> places;
    bool may_end = false;
    auto operator<=>(const Reached&) const = default;
  };
  struct KeptState {
    std::array<State, 256> next;
    const std::vector<Place>* places = nullptr;  // of the key in known_
    bool may_end = false;
  };

  void begin();
  State find_next(State state, std::uint8_t byte);
  // Adds the places from which a byte may come.
  void follow(Place from, Reached& reached);
  std::int32_t pushed(std::int32_t step, std::int32_t below);
  State keep(Reached reached);
  // The stack that was `number` of `old`.
  std::int32_t pushed_again(std::span<const Stack> old, std::int32_t number);

  ByteProgram program_;
  std::vector<KeptState> states_;
  std::map<Reached, State> known_;
  std::vector<Stack> stacks_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> known_stacks_;
  std::vector<Place> open_;  // follow's, kept for its memory
  std::set<Place> seen_;
};

}  // namespace stemma
