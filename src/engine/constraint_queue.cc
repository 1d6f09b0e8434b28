#include "engine/constraint_queue.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace stemma {

ConstraintQueue::ConstraintQueue(std::size_t slots) : entries_(slots) {
  listed_.reserve(slots);
  waiting_.reserve(slots);
}

void ConstraintQueue::add(Request& request, OutputConstraint& constraint) {
  Entry& entry = entries_[static_cast<std::size_t>(request.slot)];
  STEMMA_CHECK(entry.request_or_null == nullptr, "a request has one constraint");
  entry = {&request, &constraint, next_turn_++, false, listed_.size()};
  listed_.push_back(&entry);
}

void ConstraintQueue::note_accepted(const Request& request) {
  Entry& entry = entries_[static_cast<std::size_t>(request.slot)];
  STEMMA_CHECK(entry.request_or_null == &request, "its constraint accepted a token");
  entry.turn = next_turn_++;
  entry.had_some = false;
}

void ConstraintQueue::remove(const Request& request) {
  Entry& entry = entries_[static_cast<std::size_t>(request.slot)];
  if (entry.request_or_null != &request) return;
  Entry* const last = listed_.back();
  listed_[entry.list_place] = last;
  last->list_place = entry.list_place;
  listed_.pop_back();
  entry = {};
}

std::int64_t ConstraintQueue::work(std::int64_t units) {
  waiting_.clear();
  for (Entry* const entry : listed_) {
    if (!entry->constraint->is_ready()) waiting_.push_back(entry);
  }
  const auto rank = [](const Entry* entry) {
    return std::tuple(!entry->request_or_null->in_flight(), entry->turn);
  };
  std::sort(waiting_.begin(), waiting_.end(),
            [&](const Entry* a, const Entry* b) { return rank(a) < rank(b); });
  std::int64_t left = units;
  if (!waiting_.empty()) left -= work_for(*waiting_.front(), units / 2);
  for (Entry* const entry : waiting_) {
    if (!entry->had_some) left -= work_for(*entry, std::min(left, kFirstWork));
  }
  for (Entry* const entry : waiting_) left -= work_for(*entry, left);
  for (Entry* const entry : listed_) {
    entry->request_or_null->rests = !entry->constraint->is_ready();
  }
  return units - left;
}

std::int64_t ConstraintQueue::work_for(Entry& entry, std::int64_t units) {
  if (units <= 0 || entry.constraint->is_ready()) return 0;
  entry.had_some = true;
  return entry.constraint->prepare(units);
}

}  // namespace stemma
