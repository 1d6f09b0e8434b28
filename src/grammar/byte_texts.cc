#include "grammar/byte_texts.h"

#include <algorithm>

namespace stemma {

// Parts are made of earlier ones, but for rules: in their order few have to wait.
ByteTexts::ByteTexts(const ByteGrammar& grammar, Part start)
    : grammar_(grammar), states_(grammar.nodes_.size()) {
  reach(start);
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (states_[i] != State::kElsewhere) settle({static_cast<std::int32_t>(i)});
  }
}

std::span<const ByteGrammar::Part> ByteTexts::parts_of(Part part) const {
  const ByteGrammar::Node& one = node(part);
  if (one.kind != ByteGrammar::Kind::kRule) return one.parts;
  return {&grammar_.rules_[static_cast<std::size_t>(one.rule)], 1};
}

void ByteTexts::reach(Part start) {
  std::vector<Part> open = {start};
  while (!open.empty()) {
    const Part part = open.back();
    open.pop_back();
    State& state = states_[static_cast<std::size_t>(part.number)];
    if (state != State::kElsewhere) continue;
    state = State::kNoText;
    for (const Part inner : parts_of(part)) open.push_back(inner);
  }
}

// Who waited for it is looked at again.
void ByteTexts::settle(Part part) {
  std::vector<Part> open = {part};
  while (!open.empty()) {
    const Part next = open.back();
    open.pop_back();
    if (has_text(next) || !finds_text(next)) continue;
    states_[static_cast<std::size_t>(next.number)] = State::kText;
    const auto waiting = waiting_.find(next.number);
    if (waiting == waiting_.end()) continue;
    open.insert(open.end(), waiting->second.begin(), waiting->second.end());
    waiting_.erase(waiting);
  }
}

// Where none is found yet, it waits for what it lacks: of a choice for each, else for the first.
bool ByteTexts::finds_text(Part part) {
  const ByteGrammar::Node& one = node(part);
  if (one.kind == ByteGrammar::Kind::kBytes ||
      (one.kind == ByteGrammar::Kind::kRepeated && one.least == 0))
    return true;
  const std::span<const Part> parts = parts_of(part);
  const auto has = [&](Part inner) { return has_text(inner); };
  if (one.kind == ByteGrammar::Kind::kEither) {
    if (std::any_of(parts.begin(), parts.end(), has)) return true;
    for (const Part inner : parts) waiting_[inner.number].push_back(part);
    return false;
  }
  const auto lacking = std::find_if_not(parts.begin(), parts.end(), has);
  if (lacking == parts.end()) return true;
  waiting_[lacking->number].push_back(part);
  return false;
}

std::optional<ByteGrammar::Part> ByteTexts::without_text_for(Part part) const {
  std::vector<bool> seen(states_.size());
  while (!has_text(part) && !seen[static_cast<std::size_t>(part.number)]) {
    seen[static_cast<std::size_t>(part.number)] = true;
    const std::span<const Part> parts = parts_of(part);
    if (parts.empty()) return part;
    const auto lacking =
        std::find_if_not(parts.begin(), parts.end(), [&](Part inner) { return has_text(inner); });
    // Of a choice the last: it is left where all others may be left out.
    part = node(part).kind == ByteGrammar::Kind::kEither ? parts.back() : *lacking;
  }
  return std::nullopt;
}

}  // namespace stemma
