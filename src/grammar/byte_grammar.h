// ByteGrammar: which texts an output may be, as rules over the bytes of UTF-8.
//
// Parts are made of smaller parts: bytes, characters, sequences, choices, repetitions, and rules,
// which may name themselves. What comes of it is a program for a ByteAutomaton.
//
// Thread:     one thread a grammar; a program is a value.
// Memory:     64 bytes and its list a part, kPartsMax at most; 12 bytes a step of the program,
//             kStepsMax at most.
// Cost:       compiling is linear in the parts and the steps.
// Not here:   following a text (byte_automaton), schemas of JSON (json_schema).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/result.h"

namespace stemma {

// Characters from `first` to `last`, both included; surrogates among them are passed over.
struct CharRange {
  char32_t first = 0;
  char32_t last = 0;
};

inline constexpr char32_t kCharMax = 0x10FFFF;

// What is left of all characters. REQUIRES: `ranges` sorted, and none touches the next.
std::vector<CharRange> other_chars(std::span<const CharRange> ranges);

// One step of a program.
struct ByteStep {
  enum class Kind : std::uint8_t {
    kByte,    // a byte from `first` to `last`, then `next`
    kFork,    // `next` or `other`
    kCall,    // the rule that begins at `other`, then `next`
    kReturn,  // the rule ends
  };
  Kind kind = Kind::kReturn;
  std::uint8_t first = 0;
  std::uint8_t last = 0;
  std::int32_t next = -1;
  std::int32_t other = -1;
};

struct ByteProgram {
  std::vector<ByteStep> steps;
  std::int32_t start = 0;
};

class ByteGrammar {
 public:
  // Of a grammar; valid while it lives.
  struct Part {
    std::int32_t number = -1;
  };

  // More steps of a program, or parts of a grammar, are refused when it is compiled.
  static constexpr std::size_t kStepsMax = std::size_t{1} << 18;
  static constexpr std::size_t kPartsMax = std::size_t{1} << 20;

  Part text(std::string_view bytes);
  // One of these characters. REQUIRES: at least one that is no surrogate.
  Part one_of(std::span<const CharRange> ranges);
  // One of the characters of a text of ASCII. REQUIRES: not empty.
  Part one_of(std::string_view chars);
  // Of no parts: nothing comes.
  Part sequence(std::vector<Part> parts);
  // REQUIRES: at least one.
  Part either(std::vector<Part> parts);
  // No text is of it, and none of what cannot do without it: a choice goes without, and so does
  // what may be left out. `why` is for who asks why_nothing.
  Part nothing(std::string why);
  // One of these texts. Those that begin alike are one reading up to there. REQUIRES: at least one.
  Part one_text_of(std::span<const std::string_view> texts);
  // One of these texts, and what is behind it.
  struct Begun {
    std::string_view text;
    Part rest;
  };
  // As one_text_of: however many begin alike, they are followed as one up to there. REQUIRES: at
  // least one.
  Part one_begun_of(std::vector<Begun> ways);
  Part optional(Part part) { return repeated(part, 0, 1); }
  // Absent `most`: as often as one likes. REQUIRES: 0 <= least <= most.
  Part repeated(Part part, std::int64_t least, std::optional<std::int64_t> most);

  // A rule that is defined later, once. A part that is used in many places is best one: each use
  // of another part is steps of its own.
  Part rule();
  void define(Part rule, Part body);
  Part rule(Part body);

  // Whether there are so many parts that it is refused, whatever else is made.
  bool is_full() const { return nodes_.size() > kPartsMax; }
  // kTooLarge where it is.
  Status check_room() const;
  // Why no text is of it, where it cannot do without what is nothing; nullopt otherwise. O(parts).
  // REQUIRES: its rules are defined.
  std::optional<std::string> why_nothing(Part whole) const;

  // The program of texts that `start` is: what no finite text is of is left out. kTooLarge beyond
  // kStepsMax and kPartsMax; kInvalidArgument where a rule can begin with itself, or no text is
  // left. REQUIRES: every rule is defined.
  Result<ByteProgram> compile(Part start) const;

 private:
  friend class ByteCompiler;
  friend class ByteTexts;
  enum class Kind : std::uint8_t { kBytes, kSequence, kEither, kRepeated, kRule };
  struct Node {
    Kind kind = Kind::kSequence;
    std::uint8_t first = 0;  // kBytes
    std::uint8_t last = 0;
    std::int32_t rule = -1;   // kRule
    std::int64_t least = 0;   // kRepeated
    std::int64_t most = -1;   // -1: as often as one likes
    std::vector<Part> parts;  // what it is made of
  };

  Part add(Node node);
  Part bytes(std::uint8_t first, std::uint8_t last);
  void add_utf8(CharRange range, std::vector<Part>& out);

  std::vector<Node> nodes_;
  std::vector<Part> rules_;                       // their bodies; -1: not defined yet
  std::map<std::int32_t, std::string> nothings_;  // why they are
};

}  // namespace stemma
