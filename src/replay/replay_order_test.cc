// Replayed traces, each eviction order: the victims are those of a plain model that sorts all
// leaves again for each page, one by one.
#include <gtest/gtest.h>

#include "base/prng.h"
#include "prefix/prefix_twins.h"
#include "replay/replayer.h"
#include "replay/shared_traces.h"

namespace stemma {
namespace {

using Trace = std::vector<TraceRequest>;

// Conversations that grow turn by turn, some from a shared beginning, interleaved.
Trace conversations(std::uint64_t seed, int requests) {
  Prng random(seed);
  std::vector<TraceRequest> open;
  std::int64_t next_hash = 100;
  Trace trace;
  for (int i = 0; i < requests; ++i) {
    if (open.size() < 3 || random.below(4) == 0) {
      open.emplace_back().page_hashes = {random.below(3)};
    }
    const auto chosen = static_cast<std::size_t>(random.below(std::ssize(open)));
    TraceRequest& chat = open[chosen];
    for (std::int64_t n = 1 + random.below(5); n > 0; --n) chat.page_hashes.push_back(next_hash++);
    trace.push_back(chat);
    if (chat.page_hashes.size() > 30)
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
  return trace;
}

// Serves a request in both twins, as Replayer::feed does; returns how many pages had to go.
std::int64_t serve(PrefixTwins& twins, const TraceRequest& request, std::int32_t priority) {
  PrefixTwins::Tokens tokens;
  append_hash_tokens(request.page_hashes, tokens);
  twins.match(0, std::move(tokens));
  const auto pages = std::ssize(request.page_hashes);
  const std::int64_t missing = pages - twins.held(0).lock.tokens() / kHashPageTokens;
  const std::int64_t short_pages = std::max<std::int64_t>(0, missing - twins.free_pages());
  if (short_pages > 0) twins.evict(short_pages);
  twins.insert(0, missing, priority);
  twins.unlock(0);
  return short_pages;
}

class ReplayOrder : public testing::TestWithParam<const char*> {
 protected:
  void expect_same_victims(const Trace& trace, std::int64_t capacity_pages) {
    PrefixTwins twins(
        {.page_size = kHashPageTokens, .pages = capacity_pages, .eviction = GetParam()});
    Prng random(3);
    std::int64_t evicted_pages = 0;
    for (std::size_t i = 0; i < trace.size(); ++i) {
      evicted_pages += serve(twins, trace[i], static_cast<std::int32_t>(random.below(3)));
      ASSERT_EQ(twins.failure(), std::nullopt) << GetParam() << ", request " << i;
    }
    EXPECT_GT(evicted_pages, capacity_pages);
  }
};

TEST_P(ReplayOrder, OfConversationsThatGrow) {
  expect_same_victims(conversations(1, 2000), 200);
}

TEST_P(ReplayOrder, OfRealConversations) {
  const auto trace = try_read_conversations(STEMMA_SOURCE_DIR, 6000);
  if (!trace.has_value()) GTEST_SKIP() << "no conversations in ../shared";
  expect_same_victims(*trace, 2000);
}

INSTANTIATE_TEST_SUITE_P(Orders, ReplayOrder,
                         testing::Values("lru", "lfu", "fifo", "mru", "filo", "slru", "priority",
                                         "gdsf"));

}  // namespace
}  // namespace stemma
