// TimedReplay beside Replayer: with requests so far apart that none meets another, both find the
// same pages.
//
// Two things differ by design. A prompt's last page is found by Replayer and not by TimedReplay,
// for which one token is always computed: here every prompt goes on one token behind its last
// page, and every output is one token. And a request in flight holds that token's page until it
// ends: TimedReplay gets one page more.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/long_tests_fixture.h"
#include "base/prng.h"
#include "base/sanitizers.h"
#include "replay/replayer.h"
#include "replay/shared_traces.h"
#include "replay/timed_replay.h"
#include "replay/timed_replay_fixture.h"

namespace stemma {
namespace {

// Gives request after request, each far behind the one before it.
using Trace = std::vector<std::vector<std::int64_t>>;

struct Hits {
  std::vector<std::int64_t> pages;  // [requests]
  std::int64_t evicted_pages = 0;
  bool operator==(const Hits&) const = default;
};

Hits hits_of_replayer(const Trace& trace, const std::string& policy, std::int64_t capacity_pages) {
  const auto replayer = *Replayer::open({.policy = policy, .capacity_pages = capacity_pages});
  Hits hits;
  for (const auto& hashes : trace) {
    const std::int64_t before = replayer->report().hit_pages;
    TraceRequest request;
    request.page_hashes = hashes;
    replayer->feed(request);
    hits.pages.push_back(replayer->report().hit_pages - before);
  }
  hits.evicted_pages = replayer->report().evicted_pages;
  return hits;
}

Hits hits_of_timed_replay(const Trace& trace, const std::string& policy,
                          std::int64_t capacity_pages, std::int64_t page_size,
                          double apart_ms = 1000) {
  TimedReplayOptions options;
  options.engine.kv.page_size = page_size;
  options.engine.kv.pages = capacity_pages + 1;
  options.engine.kv.context_tokens_max = 1 << 20;
  options.engine.kv.eviction = policy;
  options.engine.scheduler.step_tokens_max = 1 << 20;
  options.engine.scheduler.chunk_tokens_max = 1 << 20;
  options.timing.step_ms = 1;
  const auto replay = *TimedReplay::open(options);
  std::size_t given = 0;
  const auto source = [&](TraceRequest& request) -> Result<bool> {
    if (given == trace.size()) return false;
    const auto pages = static_cast<std::int64_t>(trace[given].size());
    request = trace_request(apart_ms * static_cast<double>(given), pages * page_size + 1, 1,
                            trace[given]);
    ++given;
    return true;
  };
  Hits hits;
  for (bool more = true; more;) {
    more = *replay->step(source);
    for (const RequestReport& report : replay->ended()) {
      EXPECT_EQ(report.outcome, RequestOutcome::kFinished);
      hits.pages.push_back(report.hit_tokens.device / page_size);
    }
  }
  hits.evicted_pages = replay->total().evicted_pages;
  return hits;
}

Trace growing_conversations(std::uint64_t seed) {
  Prng prng(seed);
  Trace open_conversations(30);
  Trace trace;
  std::int64_t next_hash = 0;
  for (int i = 0; i < 2'000; ++i) {
    auto& hashes = open_conversations[prng() % open_conversations.size()];
    if (hashes.size() > 12) hashes.resize(prng() % 4);
    for (std::uint64_t n = 1 + prng() % 3; n > 0; --n) hashes.push_back(next_hash++);
    trace.push_back(hashes);
  }
  return trace;
}

TEST(TimedAgreement, EveryRequestHitsWhatItHitsOneAfterAnother) {
  for (const char* policy : {"lru", "lfu", "fifo", "mru", "filo", "slru"}) {
    for (const std::int64_t capacity_pages : {20, 60, 150, 10'000}) {
      const Trace trace = growing_conversations(11);
      EXPECT_EQ(hits_of_timed_replay(trace, policy, capacity_pages, 4),
                hits_of_replayer(trace, policy, capacity_pages))
          << policy << ", " << capacity_pages << " pages";
    }
  }
}

// By the machine's clock all requests would be of nearly the same age, and it would be all one how
// far apart they arrive.
TEST(TimedAgreement, APolicyThatKnowsAgesTakesThemFromTheReplay) {
  const Trace trace = growing_conversations(11);
  const Hits near = hits_of_timed_replay(trace, "hazard", 60, 4, /*apart_ms=*/2);
  const Hits far = hits_of_timed_replay(trace, "hazard", 60, 4, /*apart_ms=*/60'000);
  EXPECT_NE(near, far);
  EXPECT_EQ(hits_of_timed_replay(trace, "hazard", 60, 4, /*apart_ms=*/60'000), far);
  EXPECT_EQ(hits_of_timed_replay(trace, "lru", 60, 4, /*apart_ms=*/2),
            hits_of_timed_replay(trace, "lru", 60, 4, /*apart_ms=*/60'000));
}

TEST(TimedAgreement, OnAnHourOfConversations) {
  const auto requests = try_read_conversations(STEMMA_SOURCE_DIR);
  if (!requests.has_value()) GTEST_SKIP() << "no conversations in ../shared";
  Trace trace;
  for (const TraceRequest& request : *requests) trace.push_back(request.page_hashes);
  for (const std::int64_t capacity_pages : {3'656, 18'279}) {
    const Hits alone = hits_of_replayer(trace, "lru", capacity_pages);
    EXPECT_EQ(hits_of_timed_replay(trace, "lru", capacity_pages, 16), alone) << capacity_pages;
  }
}

// Bytes of memory that the program holds now.
std::int64_t resident_bytes() {
  std::int64_t size_pages = 0;
  std::int64_t resident_pages = 0;
  std::ifstream("/proc/self/statm") >> size_pages >> resident_pages;
  return resident_pages * 4096;
}

// A leak of 50 bytes a request would show. STEMMA_LONG_TESTS makes it a million requests.
TEST(TimedMemory, DoesNotGrowWithTheTrace) {
  if (kAddressesWatched || kThreadsWatched) {
    GTEST_SKIP() << "sanitizers keep memory that was given back for a while";
  }
  const std::int64_t requests = long_tests() ? 1'000'000 : 200'000;
  TimedReplayOptions options;
  options.engine.kv.pages = 1'000;
  options.timing = {.step_ms = 5, .prompt_token_ms = 0.01};
  const auto replay = *TimedReplay::open(options);
  std::int64_t given = 0;
  const auto source = [&](TraceRequest& request) -> Result<bool> {
    if (given == requests) return false;
    const std::int64_t conversation = given % 100;
    request =
        trace_request(2.0 * static_cast<double>(given), 40, 2, {conversation, 1'000 + given, 0});
    ++given;
    return true;
  };
  std::int64_t warm_bytes = 0;
  std::int64_t ended = 0;
  for (bool more = true; more;) {
    more = *replay->step(source);
    ended += static_cast<std::int64_t>(replay->ended().size());
    if (warm_bytes == 0 && ended > requests / 5) warm_bytes = resident_bytes();
  }
  EXPECT_EQ(ended, requests);
  EXPECT_LT(resident_bytes() - warm_bytes, requests * 4 / 5 * 50);
}

}  // namespace
}  // namespace stemma
