#include "grammar/byte_automaton.h"

#include <algorithm>
#include <utility>

namespace stemma {

using Kind = ByteStep::Kind;

ByteAutomaton::ByteAutomaton(ByteProgram program) : program_(std::move(program)) {
  marks_.resize(program_.steps.size());
  find_classes();
  begin();
}

void ByteAutomaton::find_classes() {
  std::array<bool, 257> begins = {};
  for (const ByteStep& step : program_.steps) {
    if (step.kind != Kind::kByte) continue;
    begins[step.first] = true;
    begins[step.last + std::size_t{1}] = true;
  }
  std::size_t last = 0;
  std::int64_t last_plain = -1;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && begins[byte]) ++last;
    class_of_[byte] = static_cast<std::uint8_t>(last);
    const auto code = static_cast<std::uint8_t>(byte);
    if (!is_plain(code) || last_plain == static_cast<std::int64_t>(last)) continue;
    plain_.push_back(code);
    last_plain = static_cast<std::int64_t>(last);
  }
  classes_ = last + 1;
}

void ByteAutomaton::begin() {
  states_.clear();
  next_.clear();
  known_.clear();
  stacks_.assign(1, {});  // 0: nothing goes on
  known_stacks_.clear();
  Reached reached;
  ++walk_;
  others_.clear();
  follow({program_.start, 0}, reached);
  keep(std::move(reached));
}

void ByteAutomaton::keep_only(std::span<State* const> kept) {
  const std::vector<Stack> stacks = std::exchange(stacks_, {});
  std::vector<Reached> contents;
  for (const State* const state : kept) {
    const KeptState& one = states_[static_cast<std::size_t>(*state)];
    contents.push_back({*one.places, one.may_end});
  }
  begin();
  for (std::size_t i = 0; i < kept.size(); ++i) {
    for (Place& place : contents[i].places) place.stack = pushed_again(stacks, place.stack);
    *kept[i] = keep(std::move(contents[i]));
  }
}

std::int32_t ByteAutomaton::pushed_again(std::span<const Stack> old, std::int32_t number) {
  std::vector<std::int32_t> steps;
  for (; number != 0; number = old[static_cast<std::size_t>(number)].below) {
    steps.push_back(old[static_cast<std::size_t>(number)].step);
  }
  std::int32_t stack = 0;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) stack = pushed(*step, stack);
  return stack;
}

// Places in the order in which they are found: it depends on the bytes alone.
void ByteAutomaton::follow(Place from, Reached& reached) {
  open_.assign(1, from);
  while (!open_.empty()) {
    const Place place = open_.back();
    open_.pop_back();
    if (reached.places.size() >= kPlacesMax) return;
    if (meets(place)) continue;
    const ByteStep& step = program_.steps[static_cast<std::size_t>(place.step)];
    switch (step.kind) {
      case Kind::kByte:
        reached.places.push_back(place);
        break;
      case Kind::kFork:
        open_.push_back({step.other, place.stack});
        open_.push_back({step.next, place.stack});
        break;
      case Kind::kCall: {
        // A rule that ends with another one does not wait for it.
        const bool is_last =
            program_.steps[static_cast<std::size_t>(step.next)].kind == Kind::kReturn;
        open_.push_back({step.other, is_last ? place.stack : pushed(step.next, place.stack)});
        break;
      }
      case Kind::kReturn:
        if (place.stack == 0) {
          reached.may_end = true;
        } else {
          const Stack& stack = stacks_[static_cast<std::size_t>(place.stack)];
          open_.push_back({stack.step, stack.below});
        }
        break;
    }
  }
}

bool ByteAutomaton::meets(const Place& place) {
  Mark& mark = marks_[static_cast<std::size_t>(place.step)];
  if (mark.walk != walk_) {
    mark = {walk_, place.stack};
    return false;
  }
  return mark.stack == place.stack || !others_.insert(place).second;
}

std::int32_t ByteAutomaton::pushed(std::int32_t step, std::int32_t below) {
  const auto number = static_cast<std::int32_t>(stacks_.size());
  const auto [known, added] = known_stacks_.try_emplace({step, below}, number);
  if (added) stacks_.push_back({step, below});
  return known->second;
}

ByteAutomaton::State ByteAutomaton::find_next(State state, std::uint8_t byte) {
  Reached reached;
  ++walk_;
  others_.clear();
  for (const Place& place : *states_[static_cast<std::size_t>(state)].places) {
    const ByteStep& step = program_.steps[static_cast<std::size_t>(place.step)];
    if (byte >= step.first && byte <= step.last) follow({step.next, place.stack}, reached);
  }
  const bool dead = reached.places.empty() && !reached.may_end;
  const State next = dead ? kDead : keep(std::move(reached));
  next_[place_of(state, byte)] = next;
  return next;
}

ByteAutomaton::State ByteAutomaton::next_plain(State state) {
  const State first = next(state, plain_.front());
  if (first == kDead) return kDead;
  const bool same = std::all_of(plain_.begin(), plain_.end(),
                                [&](std::uint8_t byte) { return next(state, byte) == first; });
  return same ? first : kDead;
}

// Along the states behind plain bytes, up to one of which it is known.
int ByteAutomaton::find_run(State state) {
  std::vector<State> path = {state};
  int run = 0;
  while (true) {
    const State behind = next_plain(path.back());
    if (behind == kDead) break;
    const bool is_circle = behind == path.back();
    const int known = is_circle ? kRunMax : states_[static_cast<std::size_t>(behind)].run;
    if (known >= 0) {
      run = std::min(known + 1, kRunMax);
      break;
    }
    if (path.size() == kRunMax) {  // of those behind it more would have to be known
      states_[static_cast<std::size_t>(state)].run = kRunMax;
      return kRunMax;
    }
    path.push_back(behind);
  }
  for (; !path.empty(); path.pop_back()) {
    states_[static_cast<std::size_t>(path.back())].run = static_cast<std::int8_t>(run);
    run = std::min(run + 1, kRunMax);
  }
  return states_[static_cast<std::size_t>(state)].run;
}

ByteAutomaton::State ByteAutomaton::keep(Reached reached) {
  const auto number = static_cast<State>(states_.size());
  const auto [known, added] = known_.try_emplace(std::move(reached), number);
  if (added) {
    KeptState& kept = states_.emplace_back();
    kept.places = &known->first.places;
    kept.may_end = known->first.may_end;
    next_.resize(next_.size() + classes_, kUnknown);
  }
  return known->second;
}

}  // namespace stemma
