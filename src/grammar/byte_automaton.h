// ByteAutomaton: follows texts byte by byte through a program, and says what may come next.
//
// A state is the list of places where the text may be, one for each step of the program, each with
// the stacks of rules that may go on when its own has ended. However many ways there are to read a
// text, those that are in one rule are followed there as one, and part behind it: none is let go.
// States are made as texts come to them and kept, so that who comes by again looks up an entry of a
// table: a deterministic automaton, of which only what is used exists.
//
// Thread:     one thread at a time.
// Memory:     36 bytes a step of the program; 4 bytes a state and class of bytes (those that the
//             program tells apart, some 30 for a schema), 200 a state, 8 to 16 a place: 5 to 20 a
//             unit of work_done(), which keep_only() bounds.
// Cost:       a look-up for a byte that came in this state before; else linear in the places.
// Not here:   tokens (token_trie), where programs come from (byte_grammar).
//
// What a state is depends on the bytes that led to it and on nothing else: not on which texts were
// followed before, nor on keep_only().
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/byte_grammar.h"

namespace stemma {

class ByteAutomaton {
 public:
  using State = std::int32_t;
  static constexpr State kDead = -1;  // no text goes on so

  // `work`: what may be done to find the places of no bytes, in the units of allow_work; where that
  // is not enough it is exhausted, and of no use.
  static constexpr std::int64_t kAnyWork = std::numeric_limits<std::int64_t>::max();
  explicit ByteAutomaton(ByteProgram program, std::int64_t work = kAnyWork);

  // Of no bytes.
  State start() const { return 0; }
  // REQUIRES: `state` is alive, and was given or kept since the last keep_only().
  State next(State state, std::uint8_t byte) {
    const State known = next_[place_of(state, byte)];
    return known != kUnknown ? known : find_next(state, byte);
  }
  // Of which characters a text is: plain bytes (is_plain), or those and all beyond ASCII.
  enum class Text : std::uint8_t { kPlain, kAny };
  // How many such characters may come one after the other, whichever they are; kRunMax: as many or
  // more. REQUIRES: as next.
  int free_run(State state, Text text) {
    const int known = states_[static_cast<std::size_t>(state)].runs[static_cast<std::size_t>(text)];
    return known >= 0 ? known : find_run(state, text);
  }
  static constexpr int kRunMax = 64;
  // Characters of ASCII that most texts are of, and that strings of JSON have as they are.
  static constexpr bool is_plain(std::uint8_t byte) {
    return byte >= 0x20 && byte < 0x7F && byte != '"' && byte != '\\';
  }
  // Whether the text may be all; whether another byte may come. REQUIRES: as next.
  bool may_end(State state) const { return states_[static_cast<std::size_t>(state)].may_end; }
  bool may_go_on(State state) const {
    return !states_[static_cast<std::size_t>(state)].places->empty();
  }

  // How much work may be done from here on: a unit for each step of the program that is looked at,
  // kStackWork for each list of stacks, with a unit for each place in it, and kStateWork for each
  // state that are met for the first time since keep_only(). What is begun is done, so that it may
  // be as much more as one byte needs: kByteWorkMax at most.
  void allow_work(std::int64_t units) { bound_work(units, kByteWorkMax); }
  // There is no bound, as at first.
  void allow_any_work() { bound_work(kAnyWork, kAnyWork); }
  std::int64_t work_left() const { return work_left_; }
  // Whether some was not begun: what there is to find was taken for dead, and may be asked again.
  bool stopped() const { return stopped_; }
  // Whether one byte needed more than that, with all stacks that it meets for a first time or not:
  // states that were not known were taken for dead.
  bool exhausted() const { return exhausted_; }
  // What it took since keep_only() to find all that is known, in whatever portions: as much as it
  // takes whoever comes first, and no less than it takes to find any part of it alone.
  std::int64_t work_done() const { return work_done_; }
  // Work that is not its own, of whoever asks it.
  void add_work(std::int64_t units) { work_left_ -= units; }
  static constexpr std::int64_t kStateWork = 64;
  static constexpr std::int64_t kStackWork = 8;
  static constexpr std::int64_t kByteWorkMax = 200'000;

  // States and what they remember, as one number to bound them by.
  std::size_t size() const { return states_.size() + stacks_.size(); }
  // Of memory, by what it allocates.
  std::size_t bytes() const;
  // Forgets all states but that of no bytes and these, which get new numbers, and all that was
  // found behind them. REQUIRES: each as next.
  void keep_only(std::span<State* const> kept);
  // What that takes, in units of work: a small part of what it took to find what is forgotten.
  std::int64_t forgetting_work() const { return static_cast<std::int64_t>(2 * size()); }

 private:
  static constexpr State kUnknown = -2;

  // A byte may come at `step`, or a rule goes on there; `stacks` may go on when its own has ended,
  // by their number: ~i for what is behind opened_[i], on a walk.
  struct Place {
    std::int32_t step = 0;
    std::int32_t stacks = 0;
    auto operator<=>(const Place&) const = default;
  };
  // A text goes on at one of these places, or is all. In order, and one for each step, so that what
  // is alike is equal: a state, or the stacks behind a rule, of which each begins with a place.
  struct Ways {
    std::vector<Place> places;
    bool may_end = false;
    bool operator==(const Ways&) const = default;
  };
  struct WaysHash {
    std::size_t operator()(const Ways& ways) const;
  };
  struct Stacks {
    const Ways* ways = nullptr;  // the key in known_stacks_; places have lesser numbers
    std::uint64_t ended = 0;     // the last walk on which a rule before them did
    bool counted = false;        // as work
  };
  struct KeptState {
    const std::vector<Place>* places = nullptr;  // of the key in known_
    bool may_end = false;
    bool counted = false;  // as work
    // Of each text: free_run, and behind_any.
    std::array<std::int8_t, 2> runs = {-1, -1};  // -1: not known
    std::array<State, 2> behind = {kUnknown, kUnknown};
  };

  std::size_t place_of(State state, std::uint8_t byte) const {
    return static_cast<std::size_t>(state) * classes_ + class_of_[byte];
  }
  void bound_work(std::int64_t units, std::int64_t byte_units) {
    work_left_ = units;
    byte_work_max_ = byte_units;
    stopped_ = exhausted_ = false;
  }
  using ByteClasses = std::bitset<256>;
  ByteClasses classes_of(const ByteStep& step) const;
  void find_classes();
  void begin(std::int64_t work);
  void forget_all();
  State find_next(State state, std::uint8_t byte);
  int find_run(State state, Text text);
  // The state behind any one character; kDead if it is not one for all.
  State behind_any(State state, Text text);
  State find_behind_any(State state, Text text);
  State behind_any_byte(State state, std::span<const std::uint8_t> bytes);
  State behind_any_beyond(State state);
  // Whoever calls a rule on the walk that is under way shares what it reads: it is followed once.
  struct Opened {
    std::vector<Place> behind;  // where callers go on; where that is an end, their own stacks do
    bool has_ended = false;
    std::int32_t number = -1;  // of the stacks, once they are known
  };
  // REQUIRES: stacks < 0.
  Opened& opened_behind(std::int32_t stacks) {
    const std::int32_t number = ~stacks;
    return opened_[static_cast<std::size_t>(number)];
  }
  // What is to be one of several lists of stacks, or a state, while it is put together.
  struct Union {
    std::vector<std::int32_t> of = {};  // in order
    std::vector<Place> found = {};      // in order, of one step perhaps several
    std::size_t taken = 0;              // of those
    Ways ways = {};
  };

  void begin_walk();
  // What comes of the places that are to be followed.
  Ways follow();
  void call(std::int32_t rule, Place behind);
  void end_rule(std::int32_t stacks, bool& may_end);
  Ways united(Union whole);
  Union union_of(std::vector<std::int32_t> stacks);
  std::vector<std::int32_t> take_known(Union& one);
  // The number of stacks, once it is known; -1 before.
  std::int32_t known_number(std::int32_t stacks);
  std::int32_t known_union(const std::vector<std::int32_t>& stacks) const;
  std::int32_t keep_stacks(const Ways& ways);
  void count_as_work(std::int32_t stacks);
  State keep(Ways ways);

  ByteProgram program_;
  std::array<std::uint8_t, 256> class_of_ = {};  // bytes of one class are never told apart
  std::size_t classes_ = 0;
  std::vector<std::uint8_t> plain_;  // a byte of each class that has plain ones
  // Characters beyond ASCII, by their bytes: each place takes these, one of each class.
  std::vector<std::vector<std::vector<std::uint8_t>>> beyond_;
  std::vector<KeptState> states_;
  std::vector<State> next_;  // [states, classes]
  std::unordered_map<Ways, State, WaysHash> known_;
  std::vector<Stacks> stacks_;
  std::unordered_map<Ways, std::int32_t, WaysHash> known_stacks_;
  // Of the walk that is under way; kept for their memory.
  std::vector<Place> to_follow_;
  std::vector<Opened> opened_;  // the first opened_count_
  std::size_t opened_count_ = 0;
  std::vector<Union> open_unions_;
  Ways one_way_;
  std::map<std::vector<std::int32_t>, std::int32_t> unions_;
  // Whether a place was met on it: the first stacks of each step, and others. Which rule was
  // opened.
  struct Mark {
    std::uint64_t walk = 0;
    std::uint64_t walk_opened = 0;
    std::int32_t stacks = 0;
    std::int32_t opened = 0;
  };
  bool meets(const Place& place);
  std::vector<Mark> marks_;  // by step
  std::set<Place> others_;
  std::uint64_t walk_ = 0;
  std::int64_t work_left_ = kAnyWork;
  std::int64_t byte_work_max_ = kAnyWork;
  std::int64_t byte_work_left_ = 0;  // of the byte that is followed
  std::int64_t byte_counted_ = 0;    // of its work, what others have met before
  std::size_t place_bytes_ = 0;      // of all states and stacks
  std::int64_t work_done_ = 0;
  bool stopped_ = false;
  bool exhausted_ = false;
};

}  // namespace stemma
