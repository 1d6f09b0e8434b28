// Any schema of JSON, regular expression, grammar and structural tag: it is refused, or a text
// drawn from it comes to an end, and is JSON where it should be.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_text.h"
#include "base/prng.h"
#include "grammar/byte_regex.h"
#include "grammar/ebnf.h"
#include "grammar/grammar_texts.h"
#include "grammar/json_schema.h"
#include "grammar/structural_tag.h"
#include "model/unicode_text.h"

namespace {

constexpr std::size_t kTextBytes = 300;
constexpr std::size_t kBytesMax = 20'000;

constexpr std::size_t kStatesMax = 2'000;

// Aborts where no text goes on from here to an end. Where more states than kStatesMax can be
// reached nobody knows.
void check_that_it_can_end(stemma::ByteAutomaton& automaton, stemma::ByteAutomaton::State from) {
  std::set<stemma::ByteAutomaton::State> known = {from};
  std::vector<stemma::ByteAutomaton::State> open = {from};
  while (!open.empty()) {
    const auto state = open.back();
    open.pop_back();
    if (automaton.may_end(state)) return;
    for (int byte = 0; byte < 256; ++byte) {
      const auto next = automaton.next(state, static_cast<std::uint8_t>(byte));
      if (next != stemma::ByteAutomaton::kDead && known.insert(next).second) open.push_back(next);
    }
    if (known.size() > kStatesMax) return;
  }
  std::abort();
}

// A text of the grammar; empty if none came to an end, or there is no program.
std::string text_of(const stemma::ByteGrammar& grammar, stemma::ByteGrammar::Part whole,
                    stemma::Prng& prng) {
  stemma::Result<stemma::ByteProgram> program = grammar.compile(whole);
  if (!program.ok()) return {};
  stemma::ByteAutomaton automaton(std::move(program).value());
  std::string text = stemma::drawn_text(automaton, prng, kTextBytes, kBytesMax);
  const auto state = stemma::state_behind(automaton, text);
  if (state == stemma::ByteAutomaton::kDead) std::abort();
  if (!automaton.may_end(state)) {
    check_that_it_can_end(automaton, state);
    return {};
  }
  if (!stemma::is_utf8(text)) std::abort();
  return text;
}

void read_schema(std::string_view bytes, bool strict, stemma::Prng& prng) {
  const auto schema = stemma::parse_ordered_json(bytes, "schema", {.depth_max = 64});
  if (!schema.ok()) return;
  stemma::ByteGrammar grammar;
  const auto whole = stemma::add_json_schema(*schema, {.strict = strict}, grammar);
  if (!whole.ok()) return;
  const std::string text = text_of(grammar, *whole, prng);
  if (!text.empty() && !stemma::TemplateJson::accept(text)) std::abort();
}

void read_regex(std::string_view bytes, stemma::Prng& prng) {
  if (!stemma::is_utf8(bytes)) return;
  stemma::ByteGrammar grammar;
  const auto whole = stemma::add_regex(bytes, stemma::RegexMatch::kWhole, grammar);
  if (whole.ok()) text_of(grammar, *whole, prng);
}

void read_ebnf(std::string_view bytes, stemma::Prng& prng) {
  if (!stemma::is_utf8(bytes)) return;
  stemma::ByteGrammar grammar;
  const auto whole = stemma::add_ebnf(bytes, grammar);
  if (whole.ok()) text_of(grammar, *whole, prng);
}

void read_tag(std::string_view bytes, stemma::Prng& prng) {
  const auto tag = stemma::parse_ordered_json(bytes, "tag", {.depth_max = 64});
  if (!tag.ok()) return;
  stemma::ByteGrammar grammar;
  const auto whole = stemma::add_structural_tag(*tag, "tag", grammar);
  if (whole.ok()) text_of(grammar, *whole, prng);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 4096) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  stemma::Prng prng(data[0]);
  switch (data[0] % 4) {
    case 0:
      read_ebnf(bytes, prng);
      read_tag(bytes, prng);  // what is one is not the other
      break;
    case 3:
      read_regex(bytes, prng);
      break;
    default:
      read_schema(bytes, data[0] % 4 == 1, prng);
  }
  return 0;
}
