// The policy "hazard" on whole traces: its victims are those of a plain reference, one by one; and
// what it finds beside lru and Belady, on real traces and on workloads of many kinds.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "prefix/hazard_policy.h"
#include "replay/naive_hazard.h"
#include "replay/oracle.h"
#include "replay/policy_twins.h"
#include "replay/replay_workloads.h"
#include "replay/replayer.h"
#include "replay/shared_traces.h"
#include "replay/trace_future.h"

namespace stemma {
namespace {

using Trace = std::vector<TraceRequest>;

void expect_same_victims(const Trace& trace, std::int64_t pages) {
  PolicyTwins<NaiveHazard> twins(
      "hazard", pages, NaiveHazard(pages, kHashPageTokens, pages * HazardPolicy::kGhostsPerPage));
  for (std::size_t i = 0; i < trace.size(); ++i) {
    ASSERT_NO_FATAL_FAILURE(twins.serve(trace[i])) << "request " << i;
  }
  EXPECT_GT(twins.evictions(), pages);
}

TEST(ReplayHazard, VictimsOfChatsAreThoseOfAPlainReference) {
  ReplayWorkload workload(1);
  workload.add_chats({.begin_s = 0, .end_s = 600, .gap_s = 2}, 20);
  expect_same_victims(workload.trace(), 300);
}

// A loop that fits follows chats: lru's order takes over on the way.
TEST(ReplayHazard, VictimsOfAShiftAreThoseOfAPlainReference) {
  ReplayWorkload workload(2);
  workload.add_chats({.begin_s = 0, .end_s = 400, .gap_s = 2}, 20);
  workload.add_loop({.begin_s = 400, .end_s = 900, .gap_s = 0.5}, 15, 10);
  expect_same_victims(workload.trace(), 200);
}

TEST(ReplayHazard, VictimsOfRealConversationsAreThoseOfAPlainReference) {
  const auto trace = try_read_conversations(STEMMA_SOURCE_DIR, 500);
  if (!trace.has_value()) GTEST_SKIP() << "no conversations in ../shared";
  expect_same_victims(*trace, 600);
}

double hit_rate(const Trace& trace, const std::string& policy, std::int64_t pages) {
  const auto replayer = Replayer::open({.policy = policy, .capacity_pages = pages}).value();
  for (const TraceRequest& request : trace) replayer->feed(request);
  return replayer->report().hit_rate();
}

// Capacities of a trace, as shares of its different pages.
constexpr std::array kShares = {0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3};
constexpr double kTolerated = 0.002;  // below lru, in hit rate

TEST(ReplayHazard, ClosesAQuarterOfTheGapToBeladyOnRealConversations) {
  const auto read = try_read_conversations(STEMMA_SOURCE_DIR);
  if (!read.has_value()) GTEST_SKIP() << "no conversations in ../shared";
  const Trace& trace = *read;
  TraceFuture future;
  for (const TraceRequest& request : trace) future.add(request);
  double closed = 0;
  for (const double share : kShares) {
    const auto pages = static_cast<std::int64_t>(182'790 * share);
    const double lru = hit_rate(trace, "lru", pages);
    const double hazard = hit_rate(trace, "hazard", pages);
    EXPECT_GT(hazard, lru - kTolerated) << share;
    if (share > 0.1) continue;
    const double belady = Oracle(future, OracleKind::kBelady, pages).run().hit_rate();
    closed += (hazard - lru) / (belady - lru) / 5;
  }
  EXPECT_GE(closed, 0.25);
}

class ReplayHazardWorkload : public testing::TestWithParam<const char*> {};

TEST_P(ReplayHazardWorkload, IsNowhereBelowLru) {
  const Trace trace = workload_by_name(GetParam());
  const std::int64_t pages = different_pages(trace);
  for (const double share : kShares) {
    const std::int64_t capacity =
        std::max<std::int64_t>(static_cast<std::int64_t>(static_cast<double>(pages) * share), 8);
    const double lru = hit_rate(trace, "lru", capacity);
    const double hazard = hit_rate(trace, "hazard", capacity);
    std::printf("%-24s %5.1f%% lru %6.2f%% hazard %6.2f%%\n", GetParam(), 100 * share, 100 * lru,
                100 * hazard);
    EXPECT_GT(hazard, lru - kTolerated) << GetParam() << " at " << share;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ReplayHazardWorkload, testing::ValuesIn(kWorkloadNames));

}  // namespace
}  // namespace stemma
