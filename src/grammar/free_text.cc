#include "grammar/free_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "model/unicode_text.h"

namespace stemma {
namespace {

using Part = ByteGrammar::Part;

std::u32string characters_of(std::string_view text) {
  std::u32string characters;
  for (std::size_t at = 0; at < text.size(); at = utf8_next(text, at)) {
    characters += utf8_code_at(text, at);
  }
  return characters;
}

// What of marks a text ends with: the longest begin of one, by its number. 0: of none.
class MarkStates {
 public:
  // Marks have numbers in the order in which they are added.
  void add(std::string_view mark);
  // Once, behind all marks.
  void connect();

  std::size_t size() const { return states_.size(); }
  // REQUIRES for what follows: connected.
  std::size_t next(std::size_t state, char32_t character) const;
  // The marks that the text ends with.
  const std::vector<std::size_t>& marks_at(std::size_t state) const { return states_[state].marks; }
  const std::u32string& mark(std::size_t number) const { return marks_[number]; }
  // Of all marks, in order.
  const std::u32string& alphabet() const { return alphabet_; }

 private:
  struct State {
    std::map<char32_t, std::size_t> next;
    std::size_t shorter = 0;  // of the next shorter begin
    std::vector<std::size_t> marks;
  };
  std::vector<State> states_ = std::vector<State>(1);
  std::vector<std::u32string> marks_;
  std::u32string alphabet_;
};

void MarkStates::add(std::string_view mark) {
  marks_.push_back(characters_of(mark));
  std::size_t state = 0;
  for (const char32_t character : marks_.back()) {
    const auto [found, is_new] = states_[state].next.try_emplace(character, states_.size());
    state = found->second;
    if (is_new) states_.emplace_back();
  }
  states_[state].marks.push_back(marks_.size() - 1);
}

// Shorter begins before longer ones.
void MarkStates::connect() {
  std::vector<std::size_t> order = {0};
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t state = order[i];
    for (const auto& [character, longer] : states_[state].next) {
      const std::size_t shorter = state == 0 ? 0 : next(states_[state].shorter, character);
      const std::vector<std::size_t>& ended = states_[shorter].marks;
      states_[longer].shorter = shorter;
      states_[longer].marks.insert(states_[longer].marks.end(), ended.begin(), ended.end());
      order.push_back(longer);
      alphabet_ += character;
    }
  }
  std::sort(alphabet_.begin(), alphabet_.end());
  alphabet_.erase(std::unique(alphabet_.begin(), alphabet_.end()), alphabet_.end());
}

std::size_t MarkStates::next(std::size_t state, char32_t character) const {
  while (true) {
    const auto found = states_[state].next.find(character);
    if (found != states_[state].next.end()) return found->second;
    if (state == 0) return 0;
    state = states_[state].shorter;
  }
}

// Adds a character behind those that are there.
void add_character(char32_t character, std::vector<CharRange>& ranges) {
  if (!ranges.empty() && ranges.back().last + 1 == character) {
    ranges.back().last = character;
  } else {
    ranges.push_back({character, character});
  }
}

class FreeTextWriter {
 public:
  FreeTextWriter(const FreeText& text, ByteGrammar& grammar) : text_(text), grammar_(grammar) {
    for (const FreeText::Trigger& trigger : text.triggers) {
      states_.add(trigger.mark);
      behind_.push_back(grammar.rule(trigger.behind));
    }
    for (const std::string& mark : text.excluded) states_.add(mark);
    for (const std::string& mark : text.ends) states_.add(mark);
    states_.connect();
    std::vector<CharRange> known;
    for (const char32_t character : states_.alphabet()) add_character(character, known);
    unknown_ = grammar.one_of(other_chars(known));
  }

  // As far as the grammar has room: who compiles it is told if it had none.
  void define(Part whole) {
    rules_.push_back(whole);
    while (rules_.size() < states_.size()) rules_.push_back(grammar_.rule());
    for (std::size_t state = 0; state < states_.size() && !grammar_.is_full(); ++state) {
      grammar_.define(rules_[state], body_of(state));
    }
  }

 private:
  bool is_trigger(std::size_t mark) const { return mark < text_.triggers.size(); }

  // What may come behind a text that ends so.
  Part body_of(std::size_t state) {
    std::map<std::size_t, std::vector<CharRange>> ways;  // characters by where they lead
    for (const char32_t character : states_.alphabet()) {
      add_character(character, ways[states_.next(state, character)]);
    }
    std::vector<Part> parts;
    if (may_end(state)) parts.push_back(grammar_.sequence({}));
    for (const auto& [to, characters] : ways) {
      if (const auto rest = rest_at(to)) {
        parts.push_back(grammar_.sequence({grammar_.one_of(characters), *rest}));
      }
    }
    parts.push_back(grammar_.sequence({unknown_, rules_[0]}));
    return grammar_.either(std::move(parts));
  }

  // What goes on where the text ends so; nullopt: it may not.
  std::optional<Part> rest_at(std::size_t state) {
    std::vector<Part> behind;
    for (const std::size_t mark : states_.marks_at(state)) {
      if (!is_trigger(mark)) return std::nullopt;
      behind.push_back(behind_[mark]);
    }
    if (behind.empty()) return rules_[state];
    return grammar_.either(std::move(behind));
  }

  // Whether nothing that began in such a text comes to its end within the end behind it.
  bool may_end(std::size_t state) const {
    return std::all_of(text_.ends.begin(), text_.ends.end(), [&](const std::string& end) {
      const std::u32string characters = characters_of(end);
      std::size_t at = state;
      for (std::size_t i = 0; i + 1 < characters.size(); ++i) {
        at = states_.next(at, characters[i]);
        for (const std::size_t mark : states_.marks_at(at)) {
          if (states_.mark(mark).size() > i + 1 && !is_excluded(mark)) return false;
        }
      }
      return true;
    });
  }

  bool is_excluded(std::size_t mark) const {
    return !is_trigger(mark) && mark < text_.triggers.size() + text_.excluded.size();
  }

  const FreeText& text_;
  ByteGrammar& grammar_;
  MarkStates states_;
  Part unknown_;              // a character that no mark has
  std::vector<Part> behind_;  // triggers, as rules: several states may lead there
  std::vector<Part> rules_;   // by state
};

}  // namespace

Status check_marks(const FreeText& text) {
  std::size_t bytes = 0;
  for (const FreeText::Trigger& trigger : text.triggers) bytes += trigger.mark.size();
  for (const std::string& mark : text.excluded) bytes += mark.size();
  for (const std::string& mark : text.ends) bytes += mark.size();
  if (bytes <= FreeText::kBytesMax) return {};
  return Error{ErrorCode::kTooLarge,
               fmt::format("marks of {} bytes (at most {})", bytes, FreeText::kBytesMax)};
}

Status define_free_text(Part whole, const FreeText& text, ByteGrammar& grammar) {
  STEMMA_RETURN_IF_ERROR(check_marks(text));
  if (!grammar.is_full()) FreeTextWriter(text, grammar).define(whole);
  return grammar.check_room();
}

}  // namespace stemma
