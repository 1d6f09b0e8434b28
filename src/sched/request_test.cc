// Covers the transition table: every pair of states, against the rules in words.
#include "sched/request.h"

#include <gtest/gtest.h>

#include <vector>

namespace stemma {
namespace {

const std::vector<RequestState> kAll = {RequestState::kWaiting,  RequestState::kPrefilling,
                                        RequestState::kRunning,  RequestState::kPreempted,
                                        RequestState::kFinished, RequestState::kCancelled,
                                        RequestState::kFailed};

bool ended(RequestState state) {
  return state == RequestState::kFinished || state == RequestState::kCancelled ||
         state == RequestState::kFailed;
}

bool queued(RequestState state) {
  return state == RequestState::kWaiting || state == RequestState::kPreempted;
}

// Nothing follows an end; cancel and failure may come at any time before it; who is queued can only
// be admitted; who is in flight can be preempted or finish; nobody waits for the first time twice.
bool rule(RequestState from, RequestState to) {
  if (ended(from) || to == RequestState::kWaiting) {
    return false;
  }
  if (to == RequestState::kCancelled || to == RequestState::kFailed) {
    return true;
  }
  if (queued(from)) {
    return to == RequestState::kPrefilling;
  }
  return to == RequestState::kPreempted || to == RequestState::kFinished ||
         (from == RequestState::kPrefilling && to == RequestState::kRunning);
}

TEST(Request, TransitionTableIsTheRuleInWords) {
  for (const RequestState from : kAll) {
    for (const RequestState to : kAll) {
      EXPECT_EQ(may_become(from, to), rule(from, to))
          << request_state_name(from) << " -> " << request_state_name(to);
    }
  }
}

TEST(RequestDeathTest, AnIllegalTransitionStopsTheProgram) {
  Request request;
  request.start({.id = RequestId(1), .ns = NamespaceId(0), .prompt = {1, 2}});
  EXPECT_EQ(request.state(), RequestState::kWaiting);
  EXPECT_DEATH(request.become(RequestState::kRunning), "transition table");
}

TEST(Request, ForksAreInTheOrderOfTheirArrivalWhoeverLeaves) {
  std::vector<Request> all(5);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].id = RequestId(static_cast<std::int64_t>(i));
    if (i == 0) continue;
    all[i].fork_of = RequestId(0);
    all[0].add_fork(all[i]);
  }
  const auto forks = [&] {
    std::vector<std::int64_t> ids;
    for (const Request* fork = all[0].first_fork; fork != nullptr; fork = fork->next_fork) {
      ids.push_back(fork->id.value());
    }
    EXPECT_EQ(std::ssize(ids), all[0].forks_waiting);
    return ids;
  };
  EXPECT_EQ(forks(), (std::vector<std::int64_t>{1, 2, 3, 4}));
  all[0].remove_fork(all[2]);
  EXPECT_FALSE(all[2].fork_of.valid());
  EXPECT_EQ(forks(), (std::vector<std::int64_t>{1, 3, 4}));
  all[0].remove_fork(all[4]);
  all[0].remove_fork(all[1]);
  EXPECT_EQ(forks(), (std::vector<std::int64_t>{3}));
  all[0].remove_fork(all[3]);
  EXPECT_TRUE(forks().empty());
}

TEST(Request, AReusedPlaceStartsAfresh) {
  Request request;
  request.slot = 3;
  request.start({.id = RequestId(1), .ns = NamespaceId(0), .prompt = {1, 2}});
  request.computed_tokens = 2;
  request.preemptions = 1;
  request.become(RequestState::kCancelled);
  request.start({.id = RequestId(2), .ns = NamespaceId(0), .prompt = {5}});
  EXPECT_EQ(request.slot, 3);
  EXPECT_EQ(request.computed_tokens, 0);
  EXPECT_EQ(request.preemptions, 0);
  EXPECT_EQ(request.prompt_tokens, 1);
  EXPECT_EQ(request.generated_tokens(), 0);
}

}  // namespace
}  // namespace stemma
