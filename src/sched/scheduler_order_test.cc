// The order of the queue beside one that looks everything up anew and sorts everybody, over lives
// in which requests come, give up, compute and are preempted while pages come and go.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "base/prng.h"
#include "sched/scheduler.h"

namespace stemma {
namespace {

class RandomQueue : public ::testing::TestWithParam<SchedulePolicy> {
 protected:
  static constexpr std::uint64_t kSeed = 12;
  static constexpr std::int64_t kPageSize = 4;

  void SetUp() override {
    options.kv.page_size = kPageSize;
    options.kv.pages = 40;
    options.kv.requests_max = 3;
    options.kv.context_tokens_max = 128;
    options.scheduler.policy = GetParam();
    options.scheduler.step_tokens_max = 24;
    options.scheduler.chunk_tokens_max = 12;
    options.scheduler.waiting_max = 64;
    kv = KvCache::open(options.kv).value();
    scheduler = std::make_unique<Scheduler>(*kv, options.scheduler);
    for (std::uint8_t tenant = 0; tenant < 2; ++tenant) {
      NamespaceDigest digest;
      digest.bytes[0] = tenant;
      spaces.push_back(*kv->try_open_namespace(digest));
    }
  }

  void submit() STEMMA_REQUIRES_ROLE(engine_thread) {
    std::vector<TokenId> prompt;
    for (std::int64_t page = prng.below(12); page >= 0; --page) {
      prompt.insert(prompt.end(), kPageSize - 1, 7);
      prompt.push_back(static_cast<TokenId>(prng.below(2)));
    }
    prompt.reserve(128);
    scheduler->try_submit_or_null({.id = RequestId(next_id++),
                                   .ns = spaces[static_cast<std::size_t>(prng.below(2))],
                                   .prompt = std::move(prompt),
                                   .output_tokens_max = 1 + prng.below(30),
                                   .priority = static_cast<std::int32_t>(prng.below(3))});
  }

  void give_up() STEMMA_REQUIRES_ROLE(engine_thread) {
    const auto waiting = scheduler->waiting_requests();
    if (waiting.empty()) return;
    scheduler->cancel(*waiting[static_cast<std::size_t>(prng.below(std::ssize(waiting)))]);
  }

  void complete() STEMMA_REQUIRES_ROLE(engine_thread) {
    scheduler->complete_step();
    for (const StepOutput& output : scheduler->outputs()) {
      Request& request = *output.request_or_null;
      request.tokens.push_back(static_cast<TokenId>(prng.below(2)));
      if (request.generated_tokens() == request.output_tokens_max) scheduler->finish(request);
    }
  }

  // Those that wait, as they stand now.
  std::vector<RequestId> sorted_anew() STEMMA_REQUIRES_ROLE(engine_thread) {
    std::vector<QueueEntry> entries;
    for (Request* request : scheduler->waiting_requests()) {
      const std::int64_t matched =
          looks_at_cache(GetParam()) ? kv->probe(request->ns, request->findable()) : 0;
      entries.push_back(
          {.arrival = request->arrival,
           .priority = request->priority,
           .output_tokens_max = request->output_tokens_max,
           .matched = std::span<const TokenId>(request->tokens).first(std::size_t(matched)),
           .uncached_tokens = request->total_tokens() - matched,
           .waited_tokens = scheduler->totals().computed_tokens - request->processed_at_arrival,
           .deferred = request->deferred(),
           .slot = static_cast<std::int32_t>(request->id.value())});
    }
    QueueOrder({.policy = GetParam(), .page_size = kPageSize}, std::ssize(entries)).sort(entries);
    std::vector<RequestId> ids;
    for (const QueueEntry& entry : entries) ids.emplace_back(entry.slot);
    return ids;
  }

  EngineOptions options;
  Prng prng{kSeed};
  std::unique_ptr<KvCache> kv;
  std::unique_ptr<Scheduler> scheduler;
  std::vector<NamespaceId> spaces;
  std::int64_t next_id = 0;
};

// Compared where the plan let nobody in, took nothing from the cache and gave nobody up: the queue
// is then as it was put into order.
TEST_P(RandomQueue, IsInTheOrderOfLookingEverythingUpAnew) {
  assume_role(engine_thread);
  SCOPED_TRACE(kSeed);
  int compared = 0;
  for (int step = 0; step < 6000; ++step) {
    for (std::int64_t left = prng.below(3); left > 0; --left) submit();
    if (prng.below(3) == 0) give_up();
    const std::uint64_t epoch = kv->epoch();
    const std::int64_t waited = scheduler->waiting();
    const std::int64_t preempted = scheduler->totals().preemptions;
    scheduler->plan_step();
    if (kv->epoch() == epoch && scheduler->waiting() == waited &&
        scheduler->totals().preemptions == preempted && kv->free_rows() == 0) {
      std::vector<RequestId> ids;
      for (const Request* request : scheduler->waiting_requests()) ids.push_back(request->id);
      ASSERT_EQ(ids, sorted_anew()) << "step " << step;
      ++compared;
    }
    complete();
    ASSERT_EQ(scheduler->audit(), std::nullopt);
  }
  EXPECT_GT(compared, 500);
}

// Not dfs-weight: whoever leaves changes weights, by which the queue is sorted only when somebody
// comes or the cache has changed.
INSTANTIATE_TEST_SUITE_P(Policies, RandomQueue,
                         ::testing::Values(SchedulePolicy::kFcfs, SchedulePolicy::kLof,
                                           SchedulePolicy::kPriority, SchedulePolicy::kLpm,
                                           SchedulePolicy::kShortestUncachedFirst,
                                           SchedulePolicy::kHrrn));

}  // namespace
}  // namespace stemma
