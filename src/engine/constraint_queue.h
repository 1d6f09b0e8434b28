// ConstraintQueue: whose constraint still has to find out which tokens may come next, and who of
// them is worked for in a step.
//
// A step does so much work for all of them together, however costly their forms are; whoever is not
// ready then rests: it computes nothing whose token would have to be chosen, while others go on.
// When a token comes depends on others, which one does not (I13).
//
//   a half goes to the request that has waited longest, so that each comes to its end,
//   a little to each that had nothing yet, so that cheap forms do not wait for costly ones,
//   and the rest in the order in which they have waited
//
// Thread:     engine thread only.                      Invariants: I12, I13 (docs/INVARIANTS.md).
// Memory:     an entry for each place of the scheduler's slab, at construction.
// Cost:       O(n log n) a step for n requests that have a constraint, beside the work.
// Not here:   the work (OutputConstraint::prepare), what a resting request leaves out (Scheduler).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sched/request.h"
#include "stemma/sampling.h"

namespace stemma {

class ConstraintQueue {
 public:
  // Units of OutputConstraint::prepare: some 25 ms a step. What was begun is done, so that it may
  // be as much again at most.
  static constexpr std::int64_t kStepWork = 200'000;
  // What each may have that had nothing yet: forms of JSON need less for a token.
  static constexpr std::int64_t kFirstWork = kStepWork / 16;

  // Requests have slots below `slots`.
  explicit ConstraintQueue(std::size_t slots);

  // Both must live until remove. REQUIRES: the request is not here.
  void add(Request& request, OutputConstraint& constraint);
  // It accepted a token, and has to find out about the next. REQUIRES: the request is here.
  void note_accepted(const Request& request);
  // Nothing if it is not here.
  void remove(const Request& request);

  // Works so much for all together, and says of each whether it rests (Request::rests). Returns how
  // much it was.
  std::int64_t work(std::int64_t units = kStepWork);

 private:
  struct Entry {
    Request* request_or_null = nullptr;
    OutputConstraint* constraint = nullptr;
    std::int64_t turn = 0;       // in the order in which they began to wait
    bool had_some = false;       // work, for the next token
    std::size_t list_place = 0;  // in listed_
  };

  std::int64_t work_for(Entry& entry, std::int64_t units);

  std::vector<Entry> entries_;   // by slot
  std::vector<Entry*> listed_;   // those with a request
  std::vector<Entry*> waiting_;  // of the step: that are not ready, those in flight first
  std::int64_t next_turn_ = 0;
};

}  // namespace stemma
