// Requests that have the prompt of another one, which computes it for them.
#include <utility>

#include "base/check.h"
#include "sched/scheduler.h"

namespace stemma {

Request* Scheduler::fork_or_null(const Request& request) {
  return request.first_fork;
}

std::optional<ForkedTail> Scheduler::try_fork(Request& request, Request& fork) {
  STEMMA_CHECK(request.state() == RequestState::kRunning && fork.fork_of == request.id,
               "a fork of a prompt that is computed");
  request.remove_fork(fork);
  queue_changed_ = true;
  if (fork.rests) return std::nullopt;
  if (!builder_->has_room(fork, request.sequence.published_tokens(), in_flight_))
    return std::nullopt;
  std::optional<ForkedSequence> forked = kv_.try_fork(request.sequence, request.prompt_tokens);
  if (!forked.has_value()) return std::nullopt;
  fork.sequence = std::move(forked->sequence);
  fork.computed_tokens = fork.prompt_tokens;
  fork.cached_tokens = fork.prompt_tokens;
  fork.become(RequestState::kPrefilling);
  fork.become(RequestState::kRunning);
  waiting_.remove(fork);
  enter_flight(fork);
  ++totals_.forks;
  return ForkedTail{forked->tail_from, forked->tail_to, forked->windowed_from, forked->windowed_to};
}

// Who waited to be forked off it computes for himself.
void Scheduler::let_forks_go(Request& request) {
  while (Request* fork = fork_or_null(request)) {
    request.remove_fork(*fork);
    queue_changed_ = true;
  }
}

}  // namespace stemma
