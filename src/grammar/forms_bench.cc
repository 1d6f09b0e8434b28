#include "grammar/forms_bench.h"

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/prng.h"
#include "grammar/byte_automaton.h"
#include "grammar/text_form.h"
#include "grammar/token_trie.h"
#include "model/sampler.h"
#include "model/unicode_text.h"

namespace stemma {
namespace {

double now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

// The bytes, then marks (a fiftieth, as in vocabularies of models) and words: half of them with a
// space in front, a sixth in letters beyond ASCII.
std::vector<std::string> drawn_vocabulary(std::int64_t tokens) {
  constexpr std::string_view kMarks = "\"\n,:.{}[]\\'";
  Prng prng(1);
  std::vector<std::string> bytes;
  bytes.reserve(static_cast<std::size_t>(tokens));
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  while (std::ssize(bytes) < tokens) {
    std::string word = prng.below(2) == 0 ? " " : "";
    if (prng.below(50) == 0) {
      for (std::int64_t left = 1 + prng.below(4); left > 0; --left) {
        word += kMarks[static_cast<std::size_t>(prng.below(std::ssize(kMarks)))];
      }
    } else {
      const bool beyond = prng.below(6) == 0;
      for (std::int64_t left = 1 + prng.below(beyond ? 3 : 9); left > 0; --left) {
        const auto letter = static_cast<char32_t>(prng.below(beyond ? 3'000 : 26));
        utf8_append(letter + (beyond ? 0x4E00 : U'a'), word);
      }
    }
    bytes.push_back(std::move(word));
  }
  return bytes;
}

struct Form {
  std::string_view name;
  TextForm::Kind kind = TextForm::Kind::kSchema;
  std::string_view schema;  // or the structural tag
  std::string_view begin;   // of a text
  std::string_view step;    // that goes on, again and again
};

ByteAutomaton automaton_of(const Form& form) {
  ByteGrammar grammar;
  const TextForm text = {
      .kind = form.kind, .path = "form", .schema = TemplateJson::parse(form.schema)};
  const auto whole = add_text_form(text, grammar);
  STEMMA_CHECK(whole.ok(), "a form of the benchmark");
  return ByteAutomaton(grammar.compile(*whole).value());
}

// What it takes to know which tokens may come: where nothing was found before, and where an output
// has come along, whose tokens before have found some of it.
struct Samples {
  std::vector<double> first_us;
  std::vector<double> next_us;
};
constexpr int kNextOfFirst = 8;

Samples token_us(const Form& form, const TokenTrie& trie, std::int64_t vocab_tokens, int tokens) {
  ByteAutomaton automaton = automaton_of(form);
  std::vector<std::uint64_t> bits(token_words(vocab_tokens));
  ByteAutomaton::State state = automaton.start();
  const auto follow = [&](std::string_view text) {
    for (const char byte : text) state = automaton.next(state, static_cast<std::uint8_t>(byte));
  };
  follow(form.begin);
  Samples samples;
  for (int i = 0; i < tokens; ++i) {
    const bool is_first = i % kNextOfFirst == 0;
    if (is_first) {
      ByteAutomaton::State* const kept[] = {&state};
      automaton.keep_only(kept);
    }
    const double begin = now_us();
    std::fill(bits.begin(), bits.end(), 0);
    TokenTrie::Walk walk(state, bits);
    STEMMA_CHECK(trie.find_allowed(automaton, walk), "its work has no bound");
    (is_first ? samples.first_us : samples.next_us).push_back(now_us() - begin);
    follow(form.step);
    STEMMA_CHECK(state != ByteAutomaton::kDead, "the text keeps to its form");
  }
  return samples;
}

double draw_us(std::int64_t vocab_tokens, int draws) {
  Prng prng(2);
  std::vector<float> logits(static_cast<std::size_t>(vocab_tokens));
  for (float& logit : logits) logit = static_cast<float>(8 * prng.unit());
  Sampler sampler(vocab_tokens);
  const SamplingParams params = {.temperature = 1, .seed = 3};
  std::vector<double> samples;
  for (int i = 0; i < draws; ++i) {
    const double begin = now_us();
    STEMMA_CHECK(sampler.try_sample(logits, params, {}).has_value(), "these are logits");
    samples.push_back(now_us() - begin);
  }
  return median(samples);
}

using Kind = TextForm::Kind;
constexpr Form kForms[] = {
    {"bounded_string", Kind::kSchema, R"({"type":"string","maxLength":4000})", "\"", "some"},
    {"string", Kind::kSchema, R"({"type":"array","items":{"type":"string"}})", "[\"", "some"},
    {"members", Kind::kSchema, R"({"additionalProperties":{"type":"boolean"},"type":"object"})",
     "{\"a\"", ": true, \"a\""},
    {"pattern", Kind::kSchema, R"({"type":"string","pattern":".{300,}"})", "\"", "some"},
    {"free_text", Kind::kTag, R"({"structures":[{"begin":"<tool_call>{\"name\": ","end":"}",
     "schema":{"type":"string"}}],"triggers":["<tool_call>"]})",
     "So", " <tool: "},
};

}  // namespace

std::vector<BenchLine> bench_forms(const FormsBenchOptions& options) {
  const TokenTrie trie(drawn_vocabulary(options.vocab_tokens));
  const double draw = draw_us(options.vocab_tokens, options.tokens / 4 + 1);
  std::vector<BenchLine> lines;
  for (const Form& form : kForms) {
    const Samples samples = token_us(form, trie, options.vocab_tokens, options.tokens);
    const auto add = [&](std::string_view visit, const std::vector<double>& us) {
      const double middle = median(us);
      lines.push_back({.bench = "forms",
                       .params = {{"form", std::string(form.name)},
                                  {"visit", std::string(visit)},
                                  {"vocab_tokens", std::to_string(options.vocab_tokens)}},
                       .value = middle,
                       .unit = "us",
                       .bound = draw,
                       .bound_name = "draw",
                       .ratio = draw / middle,
                       .repeats = static_cast<int>(us.size()),
                       .spread = spread(us)});
    };
    add("first", samples.first_us);
    add("next", samples.next_us);
  }
  return lines;
}

}  // namespace stemma
