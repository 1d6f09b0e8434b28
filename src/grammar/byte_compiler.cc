#include "grammar/byte_compiler.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace stemma {

using Kind = ByteStep::Kind;

// What has no text is left out: who follows the program always comes to an end.
Result<ByteProgram> ByteCompiler::compile() {
  for (const Part body : grammar_.rules_) STEMMA_CHECK_GE(body.number, 0);
  if (!texts_.has_text(start_)) {
    return Error{ErrorCode::kInvalidArgument, "there is no finite text of this form"};
  }
  for (const Part body : grammar_.rules_) {
    const bool is_called = texts_.has_text(body);
    entries_.push_back(is_called ? emit(body, add({.kind = Kind::kReturn})) : -1);
    if (full()) break;
  }
  // The whole is a rule too, the last one.
  entries_.push_back(emit(start_, add({.kind = Kind::kReturn})));
  if (full()) {
    return Error{ErrorCode::kTooLarge, fmt::format("more than {} steps", ByteGrammar::kStepsMax)};
  }
  if (begins_with_itself()) {
    return Error{ErrorCode::kInvalidArgument, "a form begins with itself"};
  }
  resolve_calls();
  return ByteProgram{std::move(steps_), entries_.back()};
}

std::int32_t ByteCompiler::add(const ByteStep& step) {
  steps_.push_back(step);
  return static_cast<std::int32_t>(steps_.size()) - 1;
}

std::int32_t ByteCompiler::emit(Part part, std::int32_t next) {
  const ByteGrammar::Node& node = grammar_.nodes_[static_cast<std::size_t>(part.number)];
  if (full()) return next;
  switch (node.kind) {
    case ByteGrammar::Kind::kBytes:
      return add({.kind = Kind::kByte, .first = node.first, .last = node.last, .next = next});
    case ByteGrammar::Kind::kSequence:
      for (auto item = node.parts.rbegin(); item != node.parts.rend(); ++item) {
        next = emit(*item, next);
      }
      return next;
    case ByteGrammar::Kind::kEither:
      return emit_either(node.parts, next);
    case ByteGrammar::Kind::kRepeated:
      return emit_repeated(node, next);
    case ByteGrammar::Kind::kRule:
      return add({.kind = Kind::kCall, .next = next, .other = node.rule});
  }
  return next;
}

// What comes first is tried first.
std::int32_t ByteCompiler::emit_either(const std::vector<Part>& parts, std::int32_t next) {
  std::int32_t entry = -1;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (!texts_.has_text(*part)) continue;
    const std::int32_t begin = emit(*part, next);
    entry = entry < 0 ? begin : add({.kind = Kind::kFork, .next = begin, .other = entry});
  }
  return entry;
}

std::int32_t ByteCompiler::emit_repeated(const ByteGrammar::Node& node, std::int32_t next) {
  const Part part = node.parts.front();
  std::int32_t entry = next;
  if (!texts_.has_text(part)) return entry;
  if (node.most < 0) {
    entry = add({.kind = Kind::kFork, .other = next});
    const std::int32_t body = emit(part, entry);
    steps_[static_cast<std::size_t>(entry)].next = body;
  }
  for (std::int64_t i = node.least; i < node.most && !full(); ++i) {
    const std::int32_t body = emit(part, entry);
    entry = add({.kind = Kind::kFork, .next = body, .other = next});
  }
  for (std::int64_t i = 0; i < node.least && !full(); ++i) entry = emit(part, entry);
  return entry;
}

// Which rules come to an end without a byte. A call goes on once it is known that what it calls
// does.
std::vector<bool> ByteCompiler::rules_that_may_be_empty() const {
  std::vector<bool> ends(entries_.size());
  std::vector<bool> seen(steps_.size());
  std::vector<std::vector<std::pair<std::int32_t, std::int32_t>>> waiting(entries_.size());
  struct Place {
    std::int32_t step, rule;
  };
  std::vector<Place> open;
  for (std::size_t rule = 0; rule < entries_.size(); ++rule) {
    if (entries_[rule] >= 0) open.push_back({entries_[rule], static_cast<std::int32_t>(rule)});
  }
  while (!open.empty()) {
    const Place place = open.back();
    open.pop_back();
    const auto at = static_cast<std::size_t>(place.step);
    if (seen[at]) continue;
    seen[at] = true;
    const ByteStep& step = steps_[at];
    const auto rule = static_cast<std::size_t>(place.rule);
    if (step.kind == Kind::kFork) {
      open.push_back({step.next, place.rule});
      open.push_back({step.other, place.rule});
    } else if (step.kind == Kind::kCall) {
      const auto callee = static_cast<std::size_t>(step.other);
      if (ends[callee]) {
        open.push_back({step.next, place.rule});
      } else {
        waiting[callee].emplace_back(step.next, place.rule);
      }
    } else if (step.kind == Kind::kReturn && !ends[rule]) {
      ends[rule] = true;
      for (const auto& [next, caller] : waiting[rule]) open.push_back({next, caller});
    }
  }
  return ends;
}

// Whether a rule can come to itself before a byte has come.
bool ByteCompiler::begins_with_itself() const {
  const std::vector<bool> empty = rules_that_may_be_empty();
  // The rules that each begins with.
  std::vector<std::vector<std::int32_t>> first(entries_.size());
  std::vector<bool> seen(steps_.size());
  std::vector<std::int64_t> callers(entries_.size());
  std::vector<std::int32_t> open;
  for (std::size_t rule = 0; rule < entries_.size(); ++rule) {
    if (entries_[rule] >= 0) open.assign(1, entries_[rule]);
    while (!open.empty()) {
      const auto at = static_cast<std::size_t>(open.back());
      open.pop_back();
      if (seen[at]) continue;
      seen[at] = true;
      const ByteStep& step = steps_[at];
      if (step.kind == Kind::kFork) {
        open.push_back(step.next);
        open.push_back(step.other);
      } else if (step.kind == Kind::kCall) {
        first[rule].push_back(step.other);
        ++callers[static_cast<std::size_t>(step.other)];
        if (empty[static_cast<std::size_t>(step.other)]) open.push_back(step.next);
      }
    }
  }
  // Rules that nobody begins with are taken away until none is left: else there is a circle.
  std::size_t left = entries_.size();
  for (std::size_t rule = 0; rule < entries_.size(); ++rule) {
    if (callers[rule] == 0) open.push_back(static_cast<std::int32_t>(rule));
  }
  while (!open.empty()) {
    const auto rule = static_cast<std::size_t>(open.back());
    open.pop_back();
    --left;
    for (const std::int32_t begun : first[rule]) {
      if (--callers[static_cast<std::size_t>(begun)] == 0) open.push_back(begun);
    }
  }
  return left != 0;
}

void ByteCompiler::resolve_calls() {
  for (ByteStep& step : steps_) {
    if (step.kind == Kind::kCall) step.other = entries_[static_cast<std::size_t>(step.other)];
  }
}

}  // namespace stemma
