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

constexpr std::int32_t kAll = 0;  // the stacks behind which the text is all
constexpr std::int32_t kUnwanted = -1;

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
  begin_walk();
  to_follow_.push_back({program_.start, kAll});
  Ways ways = follow();
  exhausted_ = byte_work_left_ < 0;
  keep(std::move(ways));
  for (Stacks& stacks : stacks_) stacks.counted = false;
}

// Gives the memory back.
void ByteAutomaton::forget_all() {
  states_ = {};
  next_ = {};
  known_.clear();
  stacks_ = {};
  known_stacks_.clear();
  place_bytes_ = 0;
  work_done_ = 0;
  keep_stacks({.places = {}, .may_end = true});
}

std::size_t ByteAutomaton::bytes() const {
  constexpr std::size_t kNode = 40;  // of a table, with its bucket and what the allocator adds
  constexpr std::size_t kStateNode = kNode + sizeof(std::pair<const Ways, State>);
  constexpr std::size_t kStacksNode = kNode + sizeof(std::pair<const Ways, std::int32_t>);
  return program_.steps.size() * (sizeof(ByteStep) + sizeof(Mark)) +
         states_.capacity() * sizeof(KeptState) + next_.capacity() * sizeof(State) +
         known_.size() * kStateNode + place_bytes_ + stacks_.capacity() * sizeof(Stacks) +
         known_stacks_.size() * kStacksNode;
}

void ByteAutomaton::keep_only(std::span<State* const> kept) {
  const auto content_of = [&](State state) {
    const KeptState& one = states_[static_cast<std::size_t>(state)];
    return Ways{*one.places, one.may_end};
  };
  std::vector<Ways> contents = {content_of(start())};
  for (const State* const state : kept) contents.push_back(content_of(*state));
  const std::vector<Stacks> stacks = std::exchange(stacks_, {});
  const auto known_stacks = std::exchange(known_stacks_, {});  // whose keys `stacks` point at
  forget_all();
  // Those that are wanted, from the last on; then, from the first on, by their new numbers.
  std::vector<std::int32_t> again(stacks.size(), kUnwanted);
  const auto want_all = [&](const Ways& ways) {
    for (const Place& place : ways.places) again[static_cast<std::size_t>(place.stacks)] = kAll;
  };
  const auto renumber = [&](Ways& ways) {
    for (Place& place : ways.places) place.stacks = again[static_cast<std::size_t>(place.stacks)];
  };
  for (const Ways& ways : contents) want_all(ways);
  for (std::size_t i = stacks.size(); i-- > 0;) {
    if (again[i] != kUnwanted) want_all(*stacks[i].ways);
  }
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    if (again[i] == kUnwanted) continue;
    Ways ways = *stacks[i].ways;
    renumber(ways);
    again[i] = keep_stacks(ways);
  }
  for (std::size_t i = 0; i < contents.size(); ++i) {
    renumber(contents[i]);
    const State state = keep(std::move(contents[i]));
    if (i > 0) *kept[i - 1] = state;
  }
}

void ByteAutomaton::begin_walk() {
  ++walk_;
  others_.clear();
  to_follow_.clear();
  opened_count_ = 0;
  unions_.clear();
}

// How many steps that are depends on the places alone, not on their order nor on numbers.
ByteAutomaton::Ways ByteAutomaton::follow() {
  Union whole;
  while (!to_follow_.empty()) {
    const Place place = to_follow_.back();
    to_follow_.pop_back();
    if (--byte_work_left_ < 0) return {};
    if (meets(place)) continue;
    const ByteStep& step = program_.steps[static_cast<std::size_t>(place.step)];
    switch (step.kind) {
      case Kind::kByte:
        whole.found.push_back(place);
        break;
      case Kind::kFork:
        to_follow_.push_back({step.next, place.stacks});
        to_follow_.push_back({step.other, place.stacks});
        break;
      case Kind::kCall:
        call(step.other, {step.next, place.stacks});
        break;
      case Kind::kReturn:
        end_rule(place.stacks, whole.ways.may_end);
        break;
    }
  }
  std::sort(whole.found.begin(), whole.found.end());
  return united(std::move(whole));
}

bool ByteAutomaton::meets(const Place& place) {
  Mark& mark = marks_[static_cast<std::size_t>(place.step)];
  if (mark.walk != walk_) {
    mark.walk = walk_;
    mark.stacks = place.stacks;
    return false;
  }
  return mark.stacks == place.stacks || !others_.insert(place).second;
}

void ByteAutomaton::call(std::int32_t rule, Place behind) {
  Mark& mark = marks_[static_cast<std::size_t>(rule)];
  if (mark.walk_opened != walk_) {
    mark.walk_opened = walk_;
    mark.opened = static_cast<std::int32_t>(opened_count_++);
    if (opened_.size() < opened_count_) opened_.emplace_back();
    Opened& opened = opened_[static_cast<std::size_t>(mark.opened)];
    opened.behind.clear();
    opened.has_ended = false;
    opened.number = -1;
    to_follow_.push_back({rule, ~mark.opened});
  }
  Opened& opened = opened_[static_cast<std::size_t>(mark.opened)];
  opened.behind.push_back(behind);
  if (opened.has_ended) to_follow_.push_back(behind);
}

// Once for all who come to its end: callers that come later go on at once.
void ByteAutomaton::end_rule(std::int32_t stacks, bool& may_end) {
  if (stacks < 0) {
    Opened& opened = opened_behind(stacks);
    if (std::exchange(opened.has_ended, true)) return;
    to_follow_.insert(to_follow_.end(), opened.behind.begin(), opened.behind.end());
    return;
  }
  Stacks& known = stacks_[static_cast<std::size_t>(stacks)];
  if (std::exchange(known.ended, walk_) == walk_) return;
  may_end = may_end || known.ways->may_end;
  to_follow_.insert(to_follow_.end(), known.ways->places.begin(), known.ways->places.end());
}

// What is behind its places is put together first. It comes to an end, as no rule begins with
// itself.
ByteAutomaton::Ways ByteAutomaton::united(Union whole) {
  std::vector<Union>& open = open_unions_;
  open.clear();
  open.push_back(std::move(whole));
  while (byte_work_left_ >= 0) {
    std::vector<std::int32_t> missing = take_known(open.back());
    if (!missing.empty()) {
      open.push_back(union_of(std::move(missing)));
      continue;
    }
    Union done = std::move(open.back());
    open.pop_back();
    if (open.empty()) return std::move(done.ways);
    const std::int32_t number = keep_stacks(done.ways);
    count_as_work(number);
    if (done.of.size() == 1) {
      opened_behind(done.of.front()).number = number;
    } else {
      unions_.emplace(std::move(done.of), number);
    }
  }
  return {};
}

// Takes places up to one of which the stacks behind it are not known: these, or none.
std::vector<std::int32_t> ByteAutomaton::take_known(Union& one) {
  for (std::size_t end = one.taken; one.taken < one.found.size(); one.taken = end) {
    const std::int32_t step = one.found[one.taken].step;
    while (end < one.found.size() && one.found[end].step == step) ++end;
    std::int32_t number = -1;
    if (end - one.taken == 1) {
      const std::int32_t behind = one.found[one.taken].stacks;
      number = known_number(behind);
      if (number < 0) return {behind};
    } else {
      std::vector<std::int32_t> all;
      for (std::size_t i = one.taken; i < end; ++i) all.push_back(one.found[i].stacks);
      number = known_union(all);
      if (number < 0) return all;
    }
    one.ways.places.push_back({step, number});
  }
  return {};
}

std::int32_t ByteAutomaton::known_union(const std::vector<std::int32_t>& stacks) const {
  const auto known = unions_.find(stacks);
  return known == unions_.end() ? -1 : known->second;
}

// Most rules have one caller: what is behind it is found at once, for the same work.
std::int32_t ByteAutomaton::known_number(std::int32_t stacks) {
  if (stacks >= 0) return stacks;
  Opened& opened = opened_behind(stacks);
  if (opened.number >= 0 || opened.behind.size() > 1) return opened.number;
  const Place& behind = opened.behind.front();
  if (program_.steps[static_cast<std::size_t>(behind.step)].kind == Kind::kReturn) return -1;
  const std::int32_t below =
      behind.stacks >= 0 ? behind.stacks : opened_behind(behind.stacks).number;
  if (below < 0) return -1;
  one_way_.places.assign(1, {behind.step, below});
  opened.number = keep_stacks(one_way_);
  --byte_work_left_;
  count_as_work(opened.number);
  return opened.number;
}

ByteAutomaton::Union ByteAutomaton::union_of(std::vector<std::int32_t> stacks) {
  Union one;
  one.of = stacks;
  // A rule that ends with another one does not wait for it.
  std::set<std::int32_t> met(stacks.begin(), stacks.end());
  while (!stacks.empty()) {
    const std::int32_t number = stacks.back();
    stacks.pop_back();
    if (number >= 0) {
      const Ways& ways = *stacks_[static_cast<std::size_t>(number)].ways;
      one.ways.may_end = one.ways.may_end || ways.may_end;
      one.found.insert(one.found.end(), ways.places.begin(), ways.places.end());
      continue;
    }
    for (const Place& place : opened_behind(number).behind) {
      if (program_.steps[static_cast<std::size_t>(place.step)].kind != Kind::kReturn) {
        one.found.push_back(place);
      } else if (met.insert(place.stacks).second) {
        stacks.push_back(place.stacks);
      }
    }
  }
  std::sort(one.found.begin(), one.found.end());
  one.found.erase(std::unique(one.found.begin(), one.found.end()), one.found.end());
  byte_work_left_ -= std::ssize(one.found);
  return one;
}

std::int32_t ByteAutomaton::keep_stacks(const Ways& ways) {
  const auto number = static_cast<std::int32_t>(stacks_.size());
  const auto [known, added] = known_stacks_.try_emplace(ways, number);
  if (added) {
    stacks_.push_back({.ways = &known->first});
    place_bytes_ += known->first.places.capacity() * sizeof(Place);
  }
  return known->second;
}

// A byte is bounded by all of them, so that whether it needs too much depends on it alone.
void ByteAutomaton::count_as_work(std::int32_t number) {
  Stacks& stacks = stacks_[static_cast<std::size_t>(number)];
  const std::int64_t work = kStackWork + std::ssize(stacks.ways->places);
  const bool counted = std::exchange(stacks.counted, true);
  byte_work_left_ -= work;
  if (counted) byte_counted_ += work;
}

std::size_t ByteAutomaton::WaysHash::operator()(const Ways& ways) const {
  constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15;
  std::uint64_t hash = ways.may_end ? 1 : 0;
  for (const Place& place : ways.places) {
    const auto step = static_cast<std::uint32_t>(place.step);
    const auto stacks = static_cast<std::uint32_t>(place.stacks);
    hash = (hash ^ (std::uint64_t{step} << 32 | stacks)) * kFactor;
    hash ^= hash >> 29;
  }
  return hash;
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
  begin_walk();
  const std::vector<Place>& places = *states_[static_cast<std::size_t>(state)].places;
  ByteClasses alike = ByteClasses().set();
  for (const Place& place : places) {
    const ByteStep& step = program_.steps[static_cast<std::size_t>(place.step)];
    const bool takes = byte >= step.first && byte <= step.last;
    const ByteClasses taken = classes_of(step);
    alike &= takes ? taken : ~taken;
    if (takes) to_follow_.push_back({step.next, place.stacks});
  }
  byte_work_left_ -= std::ssize(places);
  Ways ways = follow();
  exhausted_ = byte_work_left_ < 0;  // what was reached may not be all
  const bool dead = exhausted_ || (ways.places.empty() && !ways.may_end);
  const State next = dead ? kDead : keep(std::move(ways));
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

ByteAutomaton::State ByteAutomaton::keep(Ways ways) {
  const auto number = static_cast<State>(states_.size());
  const auto [known, added] = known_.try_emplace(std::move(ways), number);
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
