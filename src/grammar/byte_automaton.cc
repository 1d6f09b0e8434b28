#include "grammar/byte_automaton.h"

#include <algorithm>
#include <utility>

namespace stemma {

using Kind = ByteStep::Kind;

namespace {

// Characters beyond ASCII whose bytes take values independently of each other (Unicode 15, table
// 3-7).
struct Bytes {
  std::uint8_t first, last;
};
struct Utf8Form {
  int bytes;
  Bytes lead, second;  // those behind are 0x80 to 0xBF
};
constexpr Utf8Form kUtf8Forms[] = {
    {2, {0xC2, 0xDF}, {0x80, 0xBF}}, {3, {0xE0, 0xE0}, {0xA0, 0xBF}},
    {3, {0xE1, 0xEC}, {0x80, 0xBF}}, {3, {0xED, 0xED}, {0x80, 0x9F}},
    {3, {0xEE, 0xEF}, {0x80, 0xBF}}, {4, {0xF0, 0xF0}, {0x90, 0xBF}},
    {4, {0xF1, 0xF3}, {0x80, 0xBF}}, {4, {0xF4, 0xF4}, {0x80, 0x8F}},
};

}  // namespace

ByteAutomaton::ByteAutomaton(ByteProgram program, std::int64_t work)
    : program_(std::move(program)) {
  marks_.resize(program_.steps.size());
  find_classes();
  begin(work);
}

void ByteAutomaton::find_classes() {
  std::array<bool, 257> begins = {};
  for (const ByteStep& step : program_.steps) {
    if (step.kind != Kind::kByte) continue;
    begins[step.first] = true;
    begins[step.last + std::size_t{1}] = true;
  }
  std::size_t last = 0;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && begins[byte]) ++last;
    class_of_[byte] = static_cast<std::uint8_t>(last);
  }
  classes_ = last + 1;
  // Bytes of a range, one of each class that it meets.
  const auto some_of = [&](std::uint8_t first, std::uint8_t final, auto&& is_meant) {
    std::vector<std::uint8_t> bytes;
    for (std::size_t byte = first; byte <= final; ++byte) {
      const auto code = static_cast<std::uint8_t>(byte);
      if (!is_meant(code)) continue;
      if (bytes.empty() || class_of_[bytes.back()] != class_of_[code]) bytes.push_back(code);
    }
    return bytes;
  };
  plain_ = some_of(0, 0x7F, is_plain);
  const auto all = [](std::uint8_t) { return true; };
  for (const Utf8Form& form : kUtf8Forms) {
    std::vector<std::vector<std::uint8_t>> places = {
        some_of(form.lead.first, form.lead.last, all),
        some_of(form.second.first, form.second.last, all)};
    for (int i = 2; i < form.bytes; ++i) places.push_back(some_of(0x80, 0xBF, all));
    beyond_.push_back(std::move(places));
  }
}

void ByteAutomaton::begin(std::int64_t work) {
  forget_all();
  byte_work_left_ = work;
  Reached reached;
  ++walk_;
  follow({program_.start, 0}, reached);
  exhausted_ = byte_work_left_ < 0;
  keep(std::move(reached));
  for (Stack& stack : stacks_) stack.counted = false;
}

// Gives the memory back.
void ByteAutomaton::forget_all() {
  states_ = {};
  next_ = {};
  known_.clear();
  stacks_ = std::vector<Stack>(1);  // 0: nothing goes on
  known_stacks_.clear();
  place_bytes_ = 0;
  work_done_ = 0;
}

std::size_t ByteAutomaton::bytes() const {
  constexpr std::size_t kNode = 48;  // of a map, with what the allocator adds
  constexpr std::size_t kStateNode = kNode + sizeof(std::pair<const Reached, State>);
  constexpr std::size_t kStackNode = kNode + sizeof(std::pair<const Place, std::int32_t>);
  return program_.steps.size() * (sizeof(ByteStep) + sizeof(Mark)) +
         states_.capacity() * sizeof(KeptState) + next_.capacity() * sizeof(State) +
         known_.size() * kStateNode + place_bytes_ + stacks_.capacity() * sizeof(Stack) +
         known_stacks_.size() * kStackNode;
}

void ByteAutomaton::keep_only(std::span<State* const> kept) {
  const auto content_of = [&](State state) {
    const KeptState& one = states_[static_cast<std::size_t>(state)];
    return Reached{*one.places, one.may_end};
  };
  std::vector<Reached> contents = {content_of(start())};
  for (const State* const state : kept) contents.push_back(content_of(*state));
  const std::vector<Stack> stacks = std::exchange(stacks_, {});
  forget_all();
  std::vector<std::int32_t> again(stacks.size(), -1);
  again[0] = 0;
  for (std::size_t i = 0; i < contents.size(); ++i) {
    for (Place& place : contents[i].places) {
      place.stack = pushed_again(stacks, place.stack, again);
    }
    const State state = keep(std::move(contents[i]));
    if (i > 0) *kept[i - 1] = state;
  }
}

std::int32_t ByteAutomaton::pushed_again(std::span<const Stack> old, std::int32_t number,
                                         std::span<std::int32_t> again) {
  std::vector<std::size_t> upwards;
  auto at = static_cast<std::size_t>(number);
  for (; again[at] < 0; at = static_cast<std::size_t>(old[at].below)) upwards.push_back(at);
  std::int32_t stack = again[at];
  for (auto one = upwards.rbegin(); one != upwards.rend(); ++one) {
    stack = pushed(old[*one].step, stack);
    again[*one] = stack;
  }
  return stack;
}

// Their order depends on the bytes alone. At a fork the other way is that which goes on behind what
// is repeated or may be left out: it comes first, and what has gone on so for longest does, so that
// readings that begin later do not take the room of those that can end.
void ByteAutomaton::follow(Place from, Reached& reached) {
  open_.assign(1, from);
  while (!open_.empty()) {
    const Place place = open_.back();
    open_.pop_back();
    if (--byte_work_left_ < 0) return;
    if (meets(place)) continue;
    const ByteStep& step = program_.steps[static_cast<std::size_t>(place.step)];
    switch (step.kind) {
      case Kind::kByte:
        if (marks_[static_cast<std::size_t>(place.step)].kept++ < kReadingsMax) {
          reached.places.push_back(place);
        }
        break;
      case Kind::kFork:
        open_.push_back({step.next, place.stack});
        open_.push_back({step.other, place.stack});
        break;
      case Kind::kCall: {
        // A rule that ends with another one does not wait for it.
        const bool is_last =
            program_.steps[static_cast<std::size_t>(step.next)].kind == Kind::kReturn;
        open_.push_back(
            {step.other, is_last ? place.stack : pushed_as_work(step.next, place.stack)});
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

// A byte is bounded by all of them, so that whether it needs too much depends on it alone.
std::int32_t ByteAutomaton::pushed_as_work(std::int32_t step, std::int32_t below) {
  const std::int32_t stack = pushed(step, below);
  const bool counted = std::exchange(stacks_[static_cast<std::size_t>(stack)].counted, true);
  byte_work_left_ -= kStackWork;
  if (counted) byte_counted_ += kStackWork;
  return stack;
}

// They are numbered in the order of their bytes.
ByteAutomaton::ByteClasses ByteAutomaton::classes_of(const ByteStep& step) const {
  const std::size_t first = class_of_[step.first];
  const std::size_t last = class_of_[step.last];
  return (ByteClasses().set() >> (ByteClasses().size() - 1 - (last - first))) << first;
}

// Bytes that the same places take lead to the same state: it is found once for all of them.
ByteAutomaton::State ByteAutomaton::find_next(State state, std::uint8_t byte) {
  if (work_left_ <= 0) {
    stopped_ = true;
    return kDead;
  }
  byte_work_left_ = byte_work_max_;
  byte_counted_ = 0;
  Reached reached;
  ++walk_;
  others_.clear();
  const std::vector<Place>& places = *states_[static_cast<std::size_t>(state)].places;
  ByteClasses alike = ByteClasses().set();
  for (const Place& place : places) {
    const ByteStep& step = program_.steps[static_cast<std::size_t>(place.step)];
    const bool takes = byte >= step.first && byte <= step.last;
    const ByteClasses taken = classes_of(step);
    alike &= takes ? taken : ~taken;
    if (takes) follow({step.next, place.stack}, reached);
  }
  byte_work_left_ -= std::ssize(places);
  exhausted_ = byte_work_left_ < 0;  // what was reached may not be all
  const bool dead = exhausted_ || (reached.places.empty() && !reached.may_end);
  const State next = dead ? kDead : keep(std::move(reached));
  for (std::size_t one = 0; one < classes_ && !exhausted_; ++one) {
    if (alike[one]) next_[static_cast<std::size_t>(state) * classes_ + one] = next;
  }
  std::int64_t work = byte_work_max_ - byte_work_left_ - byte_counted_;
  if (!dead && !std::exchange(states_[static_cast<std::size_t>(next)].counted, true)) {
    work += kStateWork;
  }
  work_left_ = exhausted_ ? 0 : work_left_ - work;
  stopped_ = exhausted_;
  work_done_ += work;
  return next;
}

ByteAutomaton::State ByteAutomaton::behind_any_byte(State state,
                                                    std::span<const std::uint8_t> bytes) {
  const State first = next(state, bytes.front());
  if (first == kDead) return kDead;
  const bool same = std::all_of(bytes.begin(), bytes.end(),
                                [&](std::uint8_t byte) { return next(state, byte) == first; });
  return same ? first : kDead;
}

// Of all that begin alike the next bytes may lead to several states, if they come together again.
ByteAutomaton::State ByteAutomaton::behind_any_beyond(State state) {
  State behind = kDead;
  for (const auto& places : beyond_) {
    std::set<State> reached = {state};
    for (const auto& bytes : places) {
      std::set<State> further;
      for (const State from : reached) {
        for (const std::uint8_t byte : bytes) further.insert(next(from, byte));
      }
      if (further.contains(kDead)) return kDead;
      reached = std::move(further);
    }
    if (reached.size() != 1 || (behind != kDead && behind != *reached.begin())) return kDead;
    behind = *reached.begin();
  }
  return behind;
}

ByteAutomaton::State ByteAutomaton::behind_any(State state, Text text) {
  const auto of = static_cast<std::size_t>(text);
  const State known = states_[static_cast<std::size_t>(state)].behind[of];
  if (known != kUnknown) return known;
  const State behind = find_behind_any(state, text);
  if (!stopped_) states_[static_cast<std::size_t>(state)].behind[of] = behind;
  return behind;
}

ByteAutomaton::State ByteAutomaton::find_behind_any(State state, Text text) {
  const State plain = behind_any_byte(state, plain_);
  if (plain == kDead || text == Text::kPlain) return plain;
  return behind_any_beyond(state) == plain ? plain : kDead;
}

// Along the states behind characters, up to one of which it is known.
int ByteAutomaton::find_run(State state, Text text) {
  const auto run_of = [&](State of) -> std::int8_t& {
    return states_[static_cast<std::size_t>(of)].runs[static_cast<std::size_t>(text)];
  };
  std::vector<State> path = {state};
  int run = 0;
  while (true) {
    const State behind = behind_any(path.back(), text);
    if (stopped_) return 0;
    if (behind == kDead) break;
    const int known = behind == path.back() ? kRunMax : run_of(behind);
    if (known >= 0) {
      run = std::min(known + 1, kRunMax);
      break;
    }
    if (path.size() == kRunMax) {  // of those behind it more would have to be known
      run_of(state) = kRunMax;
      return kRunMax;
    }
    path.push_back(behind);
  }
  for (; !path.empty(); path.pop_back()) {
    run_of(path.back()) = static_cast<std::int8_t>(run);
    run = std::min(run + 1, kRunMax);
  }
  return run_of(state);
}

ByteAutomaton::State ByteAutomaton::keep(Reached reached) {
  const auto number = static_cast<State>(states_.size());
  const auto [known, added] = known_.try_emplace(std::move(reached), number);
  if (added) {
    KeptState& kept = states_.emplace_back();
    kept.places = &known->first.places;
    kept.may_end = known->first.may_end;
    place_bytes_ += known->first.places.capacity() * sizeof(Place);
    next_.resize(next_.size() + classes_, kUnknown);
  }
  return known->second;
}

}  // namespace stemma
