#include "grammar/byte_texts.h"

#include <algorithm>
#include <unordered_set>

namespace stemma {

// Parts are made of earlier ones, but for rules: in their order few have to wait.
ByteTexts::ByteTexts(const ByteGrammar& grammar, Part start) : grammar_(grammar) {
  std::vector<Part> parts = reached_from(start);
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return a.number < b.number; });
  for (const Part part : parts) settle(part);
}

std::span<const ByteGrammar::Part> ByteTexts::parts_of(Part part) const {
  const ByteGrammar::Node& one = node(part);
  if (one.kind != ByteGrammar::Kind::kRule) return one.parts;
  return {&grammar_.rules_[static_cast<std::size_t>(one.rule)], 1};
}

std::vector<ByteGrammar::Part> ByteTexts::reached_from(Part start) {
  std::vector<Part> reached;
  std::vector<Part> open = {start};
  while (!open.empty()) {
    const Part part = open.back();
    open.pop_back();
    if (!has_.emplace(part.number, false).second) continue;
    reached.push_back(part);
    for (const Part inner : parts_of(part)) open.push_back(inner);
  }
  return reached;
}

// Who waited for it is looked at again.
void ByteTexts::settle(Part part) {
  std::vector<Part> open = {part};
  while (!open.empty()) {
    const Part next = open.back();
    open.pop_back();
    if (has_text(next) || !finds_text(next)) continue;
    has_[next.number] = true;
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
  std::unordered_set<std::int32_t> seen;
  while (!has_text(part) && seen.insert(part.number).second) {
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
