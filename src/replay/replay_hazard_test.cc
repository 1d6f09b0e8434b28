// The policy "hazard" on whole traces: its victims are those of a plain reference, one by one; and
// what it finds beside lru and Belady, on real traces and on workloads of many kinds.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/prng.h"
#include "prefix/hazard_policy.h"
#include "prefix/prefix_cache_factory.h"
#include "replay/naive_hazard.h"
#include "replay/oracle.h"
#include "replay/replay_workloads.h"
#include "replay/replayer.h"
#include "replay/trace_future.h"
#include "replay/trace_reader.h"

namespace stemma {
namespace {

using Trace = std::vector<TraceRequest>;

std::string conversation_path() {
  return std::string(STEMMA_SOURCE_DIR) + "/../shared/data/traces/conversation_trace.jsonl";
}

Trace conversations(std::size_t requests) {
  TraceReader reader = *TraceReader::open(conversation_path(), "mooncake");
  Trace trace;
  for (TraceRequest request; trace.size() < requests && *reader.next(request);) {
    trace.push_back(request);
  }
  return trace;
}

// A cache under "hazard" and the reference, driven alike, page by page.
class Twins {
 public:
  explicit Twins(std::int64_t pages)
      : allocator_(pages),
        naive_(pages, kReplayPageTokens, pages * HazardPolicy::kGhostsPerPage),
        hash_of_page_(static_cast<std::size_t>(pages), -1) {
    PrefixCacheOptions options{allocator_};
    options.page_size = kReplayPageTokens;
    options.eviction = "hazard";
    options.clock = &clock_;
    cache_ = make_prefix_cache("radix", options).value();
    ns_ = *cache_->try_open_namespace({});
  }

  void serve(const TraceRequest& request) {
    const auto now_us = static_cast<std::int64_t>(request.timestamp_ms * 1000);
    clock_.advance_us(now_us - clock_.now_us());
    std::vector<TokenId> tokens;
    make_replay_tokens(request, tokens);
    PrefixLock lock = cache_->match(ns_, tokens);
    const std::int64_t hit_pages = lock.tokens() / kReplayPageTokens;
    ASSERT_EQ(hit_pages, naive_.resident_pages(request));
    const auto pages = std::ssize(request.page_hashes);
    const std::int64_t tip =
        hit_pages > 0 ? request.page_hashes[static_cast<std::size_t>(hit_pages - 1)] : -1;
    while (allocator_.free_pages() < pages - hit_pages) {
      ASSERT_NO_FATAL_FAILURE(evict_one(tip, now_us));
    }
    std::vector<PageId> ids(static_cast<std::size_t>(pages - hit_pages));
    OwnedPages fresh = *allocator_.try_allocate(pages - hit_pages);
    fresh.copy_to(ids);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      hash_of_page_[ids[i].index()] = request.page_hashes[static_cast<std::size_t>(hit_pages) + i];
    }
    lock = cache_->insert(tokens, std::move(lock), std::move(fresh), {});
    cache_->complete(
        lock, {.prompt_tokens = request.input_tokens, .output_tokens = request.output_tokens});
    naive_.end(request, pages, now_us);
  }

  std::int64_t evictions() const { return evictions_; }

 private:
  void evict_one(std::int64_t tip, std::int64_t now_us) {
    const OwnedPages gone = cache_->evict(1);
    ASSERT_EQ(gone.pages(), 1);
    PageId id;
    gone.copy_to(std::span(&id, 1));
    ASSERT_EQ(hash_of_page_[id.index()], naive_.evict(tip, now_us)) << "victim " << evictions_;
    ++evictions_;
  }

  FakeClock clock_;
  PageAllocator allocator_;
  NaiveHazard naive_;
  std::unique_ptr<PrefixCache> cache_;
  NamespaceId ns_;
  std::vector<std::int64_t> hash_of_page_;
  std::int64_t evictions_ = 0;
};

void expect_same_victims(const Trace& trace, std::int64_t pages) {
  Twins twins(pages);
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
  if (!std::filesystem::exists(conversation_path())) GTEST_SKIP() << "no conversation trace";
  expect_same_victims(conversations(500), 600);
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
  if (!std::filesystem::exists(conversation_path())) GTEST_SKIP() << "no conversation trace";
  const Trace trace = conversations(1'000'000);
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
