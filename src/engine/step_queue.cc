#include "engine/step_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace stemma {

StepQueue::~StepQueue() {
  while (!empty()) static_cast<void>(take_first());
}

bool StepQueue::can_follow() const noexcept {
  return steps_[0].has_value() && !steps_[0]->outputs.has_value() && steps_[0]->tokens_are_sure &&
         !steps_[1].has_value();
}

void StepQueue::start(const KvBatch& batch, const StepWish& wish, bool tokens_are_sure) {
  STEMMA_CHECK(empty() || can_follow(), "two steps at most");
  StartedStep& step = steps_[empty() ? 0 : 1].emplace();
  step.started_us = clock_.now_us();
  step.number = kv_.begin_step();
  if (runner_.queues()) {
    step.has_logits = wish.logits;
    step.has_tokens = true;
    step.tokens_are_sure = tokens_are_sure;
    const Status queued = runner_.queue(batch, pools_, wish);
    if (!queued.ok()) step.outputs = queued.error();
    return;
  }
  const Result<LogitsView> logits = runner_.forward(batch, pools_);
  step.outputs = logits.ok() ? Result<StepOutputs>({*logits}) : logits.error();
}

void StepQueue::await_first() {
  StartedStep& step = *steps_[0];
  if (step.retired) return;
  if (!step.outputs.has_value()) step.outputs = runner_.wait();
  kv_.retire_step(step.number);
  step.retired = true;
}

ComputedStep StepQueue::take_first() {
  await_first();
  StartedStep step = *std::exchange(steps_[0], std::exchange(steps_[1], std::nullopt));
  const std::int64_t now_us = clock_.now_us();
  const std::int64_t from_us = std::max(step.started_us, std::exchange(last_end_us_, now_us));
  return {std::move(*step.outputs), step.has_logits, step.has_tokens, now_us - from_us};
}

}  // namespace stemma
