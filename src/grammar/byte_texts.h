// ByteTexts: of which parts of a grammar there is a text that comes to an end.
//
// Thread:     pure once made; the grammar must outlive it.
// Memory:     some 40 bytes a part that is looked at, and what waits for rules that are read later.
// Cost:       linear in these parts, however many others the grammar has.
// Not here:   what the texts are (byte_compiler, byte_automaton).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/byte_grammar.h"

namespace stemma {

class ByteTexts {
 public:
  // Of `start` and of all that it is made of. REQUIRES: the rules among those are defined.
  ByteTexts(const ByteGrammar& grammar, ByteGrammar::Part start);

  // False of what `start` is not made of, too.
  bool has_text(ByteGrammar::Part part) const {
    const auto found = has_.find(part.number);
    return found != has_.end() && found->second;
  }
  // What was made as nothing and leaves `part` without a text; nullopt where there is a text, or
  // where a rule only names itself.
  std::optional<ByteGrammar::Part> without_text_for(ByteGrammar::Part part) const;

 private:
  using Part = ByteGrammar::Part;

  const ByteGrammar::Node& node(Part part) const {
    return grammar_.nodes_[static_cast<std::size_t>(part.number)];
  }
  std::vector<Part> reached_from(Part start);
  void settle(Part part);
  bool finds_text(Part part);
  std::span<const Part> parts_of(Part part) const;

  const ByteGrammar& grammar_;
  std::unordered_map<std::int32_t, bool> has_;                   // of parts that are looked at
  std::unordered_map<std::int32_t, std::vector<Part>> waiting_;  // by what they wait for
};

}  // namespace stemma
