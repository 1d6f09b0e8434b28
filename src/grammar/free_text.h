// FreeText: any text in which certain marks do not come, or behind which something else goes on as
// soon as one has come.
//
// Marks are found as A. Aho and M. Corasick do (Efficient string matching, 1975): a state for each
// begin of a mark, and a rule of the grammar for each state.
//
// Thread:     pure functions.
// Memory:     a rule a state: as many as marks have characters; its parts.
// Cost:       O(states * different characters of marks).
// Not here:   who writes such marks (structural_tag, openai/tool_calls).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "grammar/byte_grammar.h"
#include "stemma/result.h"

namespace stemma {

struct FreeText {
  struct Trigger {
    std::string mark;
    ByteGrammar::Part behind;  // what goes on where the mark has come: all the rest
  };
  // All marks are well-formed UTF-8, none is empty.
  std::vector<Trigger> triggers = {};
  std::vector<std::string> excluded = {};  // come nowhere, not as the end of a trigger either
  // One of these comes behind the text, which the grammar says elsewhere: none comes in it, nor
  // begins in it and ends in the one that comes.
  std::vector<std::string> ends = {};

  static constexpr std::size_t kBytesMax = 1024;  // of all marks
};

// kTooLarge where the marks have more than kBytesMax.
Status check_marks(const FreeText& text);

// What `whole` is: the text, with what is behind a trigger. The parts behind may be made of it.
// Errors are those of check_marks; kTooLarge where the grammar is full.
// REQUIRES: `whole` is a rule that is not defined.
Status define_free_text(ByteGrammar::Part whole, const FreeText& text, ByteGrammar& grammar);

}  // namespace stemma
