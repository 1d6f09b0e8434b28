// GrammarTexts: for tests: whether a text is of a grammar, and texts drawn from one.
//
// Thread:     one test, one thread.
// Memory:     the automaton's.
// Cost:       O(text).
// Not here:   anything that programs need: only tests include this.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/prng.h"
#include "grammar/byte_automaton.h"
#include "grammar/byte_grammar.h"
#include "grammar/json_schema.h"

namespace stemma {

inline ByteAutomaton automaton_of(const ByteGrammar& grammar, ByteGrammar::Part whole) {
  Result<ByteProgram> program = grammar.compile(whole);
  STEMMA_CHECK(program.ok(), program.error().detail.c_str());
  return ByteAutomaton(std::move(program).value());
}

inline ByteAutomaton::State state_behind(ByteAutomaton& automaton, ByteAutomaton::State state,
                                         std::string_view text) {
  for (const char byte : text) {
    if (state == ByteAutomaton::kDead) break;
    state = automaton.next(state, static_cast<std::uint8_t>(byte));
  }
  return state;
}

inline ByteAutomaton::State state_behind(ByteAutomaton& automaton, std::string_view text) {
  return state_behind(automaton, automaton.start(), text);
}

inline bool accepts(ByteAutomaton& automaton, std::string_view text) {
  const ByteAutomaton::State state = state_behind(automaton, text);
  return state != ByteAutomaton::kDead && automaton.may_end(state);
}

// The automaton of a schema. REQUIRES: the schema has one.
inline ByteAutomaton automaton_of_schema(std::string_view schema, bool strict = true) {
  ByteGrammar grammar;
  const Result<ByteGrammar::Part> whole =
      add_json_schema(TemplateJson::parse(schema), {.strict = strict}, grammar);
  STEMMA_CHECK(whole.ok(), whole.ok() ? "" : whole.error().detail.c_str());
  return automaton_of(grammar, *whole);
}

// A text of about so many bytes, each drawn from those that may come: behind them the text goes
// towards an end, by the first bytes that close what is open, and by `mark`, with which texts end
// that nothing else closes. Unfinished at `bytes_max`.
inline std::string drawn_text(ByteAutomaton& automaton, Prng& prng, std::size_t bytes,
                              std::size_t bytes_max = std::size_t{1} << 20,
                              std::string_view mark = {}) {
  std::string text;
  ByteAutomaton::State state = automaton.start();
  while (automaton.may_go_on(state) && text.size() < bytes_max) {
    if (automaton.may_end(state) && (text.size() >= bytes || prng.below(8) == 0)) break;
    if (!mark.empty() && text.size() >= bytes && prng.below(4) == 0) {
      const ByteAutomaton::State behind = state_behind(automaton, state, mark);
      if (behind != ByteAutomaton::kDead) {
        text += mark;
        state = behind;
        continue;
      }
    }
    std::vector<std::uint8_t> choices;
    for (int byte = 0; byte < 256; ++byte) {
      if (automaton.next(state, static_cast<std::uint8_t>(byte)) != ByteAutomaton::kDead) {
        choices.push_back(static_cast<std::uint8_t>(byte));
      }
    }
    std::uint8_t chosen =
        choices[static_cast<std::size_t>(prng.below(static_cast<std::int64_t>(choices.size())))];
    const std::string_view closing = "\"}]0:,tnrul";
    for (const char byte : closing) {
      const auto code = static_cast<std::uint8_t>(byte);
      if (text.size() < bytes && prng.below(4) != 0) break;
      if (automaton.next(state, code) == ByteAutomaton::kDead) continue;
      chosen = code;
      break;
    }
    text += static_cast<char>(chosen);
    state = automaton.next(state, chosen);
  }
  return text;
}

}  // namespace stemma
