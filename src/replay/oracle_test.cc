// Oracle: what goes when the future is known, and that no policy without it does better.
#include "replay/oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>

#include "base/prng.h"
#include "replay/shared_traces.h"

namespace stemma {
namespace {

TraceRequest request(std::vector<std::int64_t> hashes) {
  TraceRequest made;
  made.page_hashes = std::move(hashes);
  return made;
}

TraceFuture future_of(const std::vector<std::vector<std::int64_t>>& requests) {
  TraceFuture future;
  for (const auto& hashes : requests) future.add(request(hashes));
  return future;
}

std::int64_t hits(const TraceFuture& future, OracleKind kind, std::int64_t capacity_pages) {
  return Oracle(future, kind, capacity_pages).run().hit_pages;
}

TEST(TraceFuture, KnowsTheNextUseOfEachPage) {
  const TraceFuture future = future_of({{1, 2}, {3}, {1, 4}});
  EXPECT_EQ(future.next_uses_of(0)[0], 2);
  EXPECT_EQ(future.next_uses_of(0)[1], TraceFuture::kNever);
  EXPECT_EQ(future.next_uses_of(1)[0], TraceFuture::kNever);
}

TEST(TraceFuture, EqualHashesBelowDifferentPrefixesAreDifferentPages) {
  const TraceFuture future = future_of({{1, 9}, {2, 9}});
  EXPECT_EQ(future.nodes(), 4);
  EXPECT_EQ(future.parent(future.pages_of(1)[1]), future.pages_of(1)[0]);
  EXPECT_EQ(future.next_uses_of(0)[1], TraceFuture::kNever);
}

TEST(Oracle, TheLeafUsedLatestGoes) {
  // 3 pushes out 1, which is used later than 2.
  const TraceFuture future = future_of({{1}, {2}, {3}, {2}, {3}, {1}});
  EXPECT_EQ(hits(future, OracleKind::kBeladyForced, 2), 2);
}

TEST(Oracle, APageUsedLaterThanAllIsNotAdmitted) {
  // 3 is never used again: forced, it costs 1 or 2 a hit.
  const TraceFuture future = future_of({{1}, {2}, {3}, {1}, {2}});
  EXPECT_EQ(hits(future, OracleKind::kBelady, 2), 2);
  EXPECT_EQ(hits(future, OracleKind::kBeladyForced, 2), 1);
}

TEST(Oracle, OnlyLeavesGo) {
  //   1 ── 2        2 is used again and 1 is not by itself: 1 stays for it.
  const TraceFuture future = future_of({{1, 2}, {3}, {1, 2}});
  EXPECT_EQ(hits(future, OracleKind::kBelady, 2), 2);
  EXPECT_EQ(hits(future, OracleKind::kBeladyForced, 2), 1);
}

TEST(Oracle, KnowsWhetherKeepsWhatIsUsedAgainHoweverLate) {
  const TraceFuture future = future_of({{1}, {2}, {3}, {3}, {1}});
  EXPECT_EQ(hits(future, OracleKind::kKnowsWhether, 1), 1);  // 1 is kept, 3 is not admitted
  EXPECT_EQ(hits(future, OracleKind::kBelady, 1), 1);
}

TEST(Oracle, KnowsWhetherIsNoBoundForThoseWhoGoByWhen) {
  //   1 comes back, late: 2 is not let in, however often it comes
  const std::vector<std::vector<std::int64_t>> trace = {{1}, {2}, {2}, {2}, {1}};
  const auto lru = *Replayer::open({.policy = "lru", .capacity_pages = 1});
  for (const auto& hashes : trace) lru->feed(request(hashes));
  EXPECT_EQ(lru->report().hit_pages, 2);
  EXPECT_EQ(hits(future_of(trace), OracleKind::kKnowsWhether, 1), 1);
  EXPECT_EQ(hits(future_of(trace), OracleKind::kBelady, 1), 2);
}

TEST(Oracle, WithRoomForAllEachPageMissesOnce) {
  const TraceFuture future = future_of({{1, 2}, {1, 3}, {1, 2, 4}});
  for (const OracleKind kind : kOracleKinds) {
    const ReplayReport report = Oracle(future, kind, 10).run();
    EXPECT_EQ(report.lookup_pages - report.hit_pages, 4) << oracle_name(kind);
    EXPECT_EQ(report.evicted_pages, 0);
  }
}

TEST(Oracle, NoPolicyHitsMoreThanBelady) {
  Prng random(5);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<std::vector<std::int64_t>> trace;
    for (int i = 0; i < 30; ++i) {
      std::vector<std::int64_t> hashes;
      for (std::int64_t n = 1 + random.below(4); n > 0; --n) hashes.push_back(random.below(3));
      trace.push_back(hashes);
    }
    const std::int64_t capacity_pages = 4 + random.below(8);  // at least the longest request
    const std::int64_t bound = hits(future_of(trace), OracleKind::kBelady, capacity_pages);
    EXPECT_GE(bound, hits(future_of(trace), OracleKind::kBeladyForced, capacity_pages));
    for (const char* policy : {"lru", "lfu", "fifo", "mru", "filo", "slru"}) {
      const auto replayer = *Replayer::open({.policy = policy, .capacity_pages = capacity_pages});
      for (const auto& hashes : trace) replayer->feed(request(hashes));
      EXPECT_GE(bound, replayer->report().hit_pages) << policy << ", trial " << trial;
    }
  }
}

// A trace of few different pages, whose outputs come back, and are asked for by later requests.
std::vector<TraceRequest> drawn_trace_with_outputs(Prng& random) {
  std::vector<TraceRequest> trace(30);
  for (TraceRequest& made : trace) {
    for (std::int64_t n = 1 + random.below(3); n > 0; --n) {
      made.page_hashes.push_back(random.below(2));
    }
    for (std::int64_t n = random.below(4); n > 0; --n) {
      made.output_page_hashes.push_back(random.below(2));
    }
  }
  return trace;
}

TEST(Oracle, OutputsArePutInAndNotLookedUp) {
  TraceFuture future;
  future.add({.page_hashes = {1}, .output_page_hashes = {2, 3}});
  future.add({.page_hashes = {1, 2, 3, 4}});
  for (const OracleKind kind : kOracleKinds) {
    const ReplayReport report = Oracle(future, kind, 10).run();
    EXPECT_EQ(report.lookup_pages, 5) << oracle_name(kind);
    EXPECT_EQ(report.hit_pages, 3) << oracle_name(kind);
  }
}

TEST(Oracle, APageThatComesBackAsAnOutputNeedNotBeKept) {
  TraceFuture future;
  future.add({.page_hashes = {1}});
  future.add({.page_hashes = {2}});
  future.add({.page_hashes = {}, .output_page_hashes = {1}});
  future.add({.page_hashes = {1}});
  future.add({.page_hashes = {2}});
  EXPECT_EQ(future.next_uses_of(0)[0], TraceFuture::kNever);
  EXPECT_EQ(future.next_uses_of(2)[0], 3);
  EXPECT_EQ(hits(future, OracleKind::kBelady, 2), 2);
}

TEST(Oracle, BeladyAdmitsAPageInPlaceOfOneThatTheRequestUsedLast) {
  //   1 ── 2 ── 3     room for one page. 2 stays for the second request, as 1 comes back by itself;
  //                   then 1 is worth more than 2, which is read behind it.
  TraceFuture future;
  future.add({.page_hashes = {}, .output_page_hashes = {1, 2}});
  future.add({.page_hashes = {}, .output_page_hashes = {1}});
  future.add({.page_hashes = {1, 2}});
  future.add({.page_hashes = {1}});
  EXPECT_EQ(hits(future, OracleKind::kBelady, 1), 2);
}

// The most that can be hit by who may keep any pages: every choice tried.
std::int64_t most_hits(const TraceFuture& future, int capacity_pages) {
  using Pages = std::uint32_t;  // a bit a node
  std::map<Pages, std::int64_t> best = {{0, 0}};
  for (std::int32_t request = 0; request < future.requests(); ++request) {
    Pages path = 0;
    Pages looked_up = 0;
    for (const TraceFuture::Node node : future.pages_of(request)) {
      path |= Pages{1} << node;
      if (std::popcount(path) <= future.lookups_of(request)) looked_up = path;
    }
    std::map<Pages, std::int64_t> after;
    for (const auto& [resident, hits_before] : best) {
      const std::int64_t hits_now = hits_before + std::popcount(resident & looked_up);
      for (Pages kept = resident | path;; kept = (kept - 1) & (resident | path)) {
        if (std::popcount(kept) <= capacity_pages) {
          after[kept] = std::max(after[kept], hits_now);
        }
        if (kept == 0) break;
      }
    }
    best = std::move(after);
  }
  const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
  return std::max_element(best.begin(), best.end(), fewer)->second;
}

TEST(Oracle, BeladyHitsWhatCanBeHitAndNoMore) {
  Prng random(11);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<TraceRequest> trace = drawn_trace_with_outputs(random);
    trace.resize(8);
    TraceFuture future;
    for (TraceRequest& next : trace) {
      next.page_hashes.resize(static_cast<std::size_t>(random.below(3)), 0);
      next.output_page_hashes.resize(static_cast<std::size_t>(random.below(2)), 0);
      future.add(next);
    }
    for (const int capacity_pages : {1, 2, 3}) {
      EXPECT_EQ(hits(future, OracleKind::kBelady, capacity_pages),
                most_hits(future, capacity_pages))
          << trial;
    }
  }
}

TEST(Oracle, NoPolicyHitsMoreThanBeladyWhereOutputsComeBack) {
  Prng random(7);
  for (int trial = 0; trial < 300; ++trial) {
    const std::vector<TraceRequest> trace = drawn_trace_with_outputs(random);
    TraceFuture future;
    for (const TraceRequest& next : trace) future.add(next);
    const std::int64_t capacity_pages = 6 + random.below(8);  // at least the longest request
    const std::int64_t bound = hits(future, OracleKind::kBelady, capacity_pages);
    EXPECT_GE(bound, hits(future, OracleKind::kBeladyForced, capacity_pages)) << trial;
    EXPECT_GE(bound, hits(future, OracleKind::kKnowsWhether, capacity_pages)) << trial;
    for (const char* policy : {"lru", "lfu", "fifo", "mru", "slru"}) {
      const auto replayer = *Replayer::open({.policy = policy, .capacity_pages = capacity_pages});
      for (const TraceRequest& next : trace) replayer->feed(next);
      EXPECT_GE(bound, replayer->report().hit_pages) << policy << ", trial " << trial;
    }
  }
}

// The table of ../shared/data/traces/README.md.
TEST(Oracle, BeladyOnAnHourOfConversations) {
  const auto trace = try_read_conversations(STEMMA_SOURCE_DIR);
  if (!trace.has_value()) GTEST_SKIP() << "no conversations in ../shared";
  TraceFuture future;
  for (const TraceRequest& next : *trace) future.add(next);
  ASSERT_EQ(future.nodes(), 182'790);
  const std::pair<double, double> table[] = {{.005, .183}, {.01, .246}, {.02, .314}, {.05, .366}};
  for (const auto& [share, hit_rate] : table) {
    const auto capacity_pages = static_cast<std::int64_t>(share * future.nodes());
    EXPECT_NEAR(Oracle(future, OracleKind::kBelady, capacity_pages).run().hit_rate(), hit_rate,
                .001);
  }
}

}  // namespace
}  // namespace stemma
