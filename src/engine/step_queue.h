// StepQueue: the steps that a Runner computes: one, and where it queues steps another behind it.
//
// Where it does not, a step is computed as it is started.
//
// Thread:     engine thread only.                      Invariants: I6, I10 (docs/INVARIANTS.md).
// Memory:     none beside the Runner's.
// Cost:       that of computing.
// Not here:   what a step computes (sched/), what becomes of it (Engine).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "stemma/kv_batch.h"
#include "stemma/kv_cache.h"
#include "stemma/result.h"
#include "stemma/runner.h"

namespace stemma {

struct ComputedStep {
  Result<StepOutputs> outputs;
  bool has_logits = true;
  bool has_tokens = false;  // chosen by the runner
  std::int64_t us = 0;      // since it was started, or since the one before it was done
};

// A step that was started.
struct StartedStep {
  std::int64_t number = 0;  // of the cache
  std::int64_t started_us = 0;
  bool has_logits = true;
  bool has_tokens = false;
  bool tokens_are_sure = false;
  std::optional<Result<StepOutputs>> outputs = {};  // nullopt: not waited for, if it was queued
  bool retired = false;
};

class StepQueue {
 public:
  // All must outlive it.
  StepQueue(Runner& runner, KvPools pools, KvCache& kv, const Clock& clock)
      : runner_(runner), pools_(pools), kv_(kv), clock_(clock) {}
  // Waits for what was started.
  ~StepQueue();
  StepQueue(const StepQueue&) = delete;
  StepQueue& operator=(const StepQueue&) = delete;

  bool empty() const noexcept { return !steps_[0].has_value(); }
  // Whether another step may be started behind one that is known to be under way, whose tokens
  // stand for its outputs.
  bool can_follow() const noexcept;

  // A Runner that queues no steps gives logits alone, whatever is wished for. `tokens_are_sure`:
  // the ones that the Runner chooses are those that the outputs get. REQUIRES: empty() or
  // can_follow().
  void start(const KvBatch& batch, const StepWish& wish, bool tokens_are_sure);
  // Waits for the first step; afterwards nothing reads or writes pages for it. REQUIRES: !empty().
  void await_first();
  // The same, and takes it from the queue. What it has is valid until the next call here.
  ComputedStep take_first();

 private:
  Runner& runner_;
  KvPools pools_;
  KvCache& kv_;
  const Clock& clock_;
  std::array<std::optional<StartedStep>, 2> steps_;
  std::int64_t last_end_us_ = 0;
};

}  // namespace stemma
