#include "sched/request.h"

#include <array>
#include <utility>

#include "base/check.h"

namespace stemma {
namespace {

constexpr std::size_t kStates = 7;

// Row: from; column: to. W waiting, P prefilling, R running, E preempted, F finished, C cancelled,
// X failed.
constexpr std::array<std::array<bool, kStates>, kStates> kAllowed = {{
    //  W  P  R  E  F  C  X
    {{0, 1, 0, 0, 0, 1, 1}},  // waiting
    {{0, 0, 1, 1, 1, 1, 1}},  // prefilling
    {{0, 0, 0, 1, 1, 1, 1}},  // running
    {{0, 1, 0, 0, 0, 1, 1}},  // preempted
    {{0, 0, 0, 0, 0, 0, 0}},  // finished
    {{0, 0, 0, 0, 0, 0, 0}},  // cancelled
    {{0, 0, 0, 0, 0, 0, 0}},  // failed
}};

constexpr std::array<std::string_view, kStates> kNames = {
    "waiting", "prefilling", "running", "preempted", "finished", "cancelled", "failed"};

}  // namespace

std::string_view request_state_name(RequestState state) {
  return kNames[static_cast<std::size_t>(state)];
}

bool may_become(RequestState from, RequestState to) noexcept {
  return kAllowed[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

void Request::become(RequestState next) {
  STEMMA_CHECK(may_become(state_, next), "the transition table of request.cc");
  state_ = next;
}

void Request::start(NewRequest&& request) {
  const std::int32_t kept_slot = slot;
  *this = Request();
  slot = kept_slot;
  id = request.id;
  ns = request.ns;
  tokens = std::move(request.prompt);
  prompt_tokens = total_tokens();
  output_tokens_max = request.output_tokens_max;
  priority = request.priority;
  retention = request.retention;
  adapter = request.adapter;
  publishes = request.publishes;
  fork_of = request.fork_of;
  scores_prompt = request.scores_prompt;
  scored_tokens = request.scored_tokens;
  state_ = RequestState::kWaiting;
}

void Request::add_fork(Request& fork) {
  STEMMA_CHECK(fork.fork_of == id, "a fork knows whose it is");
  fork.previous_fork = last_fork;
  fork.next_fork = nullptr;
  (last_fork == nullptr ? first_fork : last_fork->next_fork) = &fork;
  last_fork = &fork;
  ++forks_waiting;
}

void Request::remove_fork(Request& fork) {
  STEMMA_CHECK(fork.fork_of == id && forks_waiting > 0, "forks are counted");
  (fork.previous_fork == nullptr ? first_fork : fork.previous_fork->next_fork) = fork.next_fork;
  (fork.next_fork == nullptr ? last_fork : fork.next_fork->previous_fork) = fork.previous_fork;
  fork.previous_fork = fork.next_fork = nullptr;
  fork.fork_of = RequestId();
  --forks_waiting;
}

}  // namespace stemma
