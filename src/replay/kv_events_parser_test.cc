// Requests told from a server's KV events: chains by parent, runs by time, both forms of events.
#include "replay/kv_events_parser.h"

#include <gtest/gtest.h>

#include <ostream>

namespace stemma {
namespace {

using Hashes = std::vector<std::int64_t>;

// Batches go in line by line; the requests that are complete by then come out.
class KvEvents : public testing::Test {
 protected:
  std::vector<TraceRequest> take(const std::string& line) {
    const Status taken = parser_.take(line, "events:1");
    EXPECT_TRUE(taken.ok()) << taken.error().detail;
    return drain();
  }

  std::vector<TraceRequest> end() {
    parser_.end();
    return drain();
  }

  std::vector<TraceRequest> drain() {
    std::vector<TraceRequest> requests;
    for (TraceRequest request; parser_.try_next(request);) requests.push_back(request);
    return requests;
  }

  KvEventsParser parser_;
};

std::string batch(double seconds, const std::string& events) {
  return R"({"ts": )" + std::to_string(seconds) + R"(, "events": [)" + events + "]}";
}

std::string stored(const std::string& hashes, const std::string& parent) {
  return R"({"type": "BlockStored", "block_hashes": [)" + hashes + R"(], "parent_block_hash": )" +
         parent + R"(, "token_ids": [], "block_size": 16})";
}

std::string removed(const std::string& hashes) {
  return R"({"type": "BlockRemoved", "block_hashes": [)" + hashes + "]}";
}

TEST_F(KvEvents, ARunOfStoresIsARequestWhenItHasEnded) {
  EXPECT_TRUE(take(batch(1, stored("1, 2, 3", "null"))).empty());
  const auto requests = take(batch(7, ""));
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].timestamp_ms, 1000);
  EXPECT_EQ(requests[0].page_hashes, (Hashes{1, 2, 3}));
  EXPECT_EQ(requests[0].input_tokens, 48);
  EXPECT_EQ(requests[0].output_tokens, 0);
  EXPECT_EQ(parser_.page_tokens(), 16);
}

TEST_F(KvEvents, AStoreBehindKnownPagesLookedThemUpToo) {
  take(batch(1, stored("1, 2, 3", "null")));
  take(batch(20, stored("8, 9", "2")));
  const auto requests = end();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].page_hashes, (Hashes{1, 2, 8, 9}));
}

TEST_F(KvEvents, StoresThatContinueEachOtherAreOneRequest) {
  take(batch(1, stored("1, 2", "null")));  // chunks of a prompt,
  take(batch(1.1, stored("3", "2")));
  take(batch(5.9, stored("4", "3")));  // then output, page by page
  const auto requests = end();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].timestamp_ms, 5900);
  EXPECT_EQ(requests[0].page_hashes, (Hashes{1, 2, 3, 4}));
}

TEST_F(KvEvents, ALaterStoreBehindTheSamePageIsAnotherTurn) {
  take(batch(1, stored("1, 2", "null")));
  const auto first = take(batch(6.5, stored("3", "2")));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].page_hashes, (Hashes{1, 2}));
  const auto second = end();
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].page_hashes, (Hashes{1, 2, 3}));
}

TEST_F(KvEvents, RequestsComeInTheOrderOfTheirLastStores) {
  take(batch(1, stored("1", "null") + "," + stored("10", "null")));
  take(batch(2, stored("2", "1")));
  const auto requests = end();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].page_hashes, (Hashes{10}));
  EXPECT_EQ(requests[1].page_hashes, (Hashes{1, 2}));
}

TEST_F(KvEvents, RemovingARunsLastPageEndsIt) {
  take(batch(1, stored("1, 2", "null")));
  const auto requests = take(batch(1, removed("2")));
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].page_hashes, (Hashes{1, 2}));
}

TEST_F(KvEvents, WhatWasRemovedMayBeStoredAgain) {
  take(batch(1, stored("1, 2", "null")));
  take(batch(10, removed("2")));
  take(batch(11, stored("2", "1")));
  const auto requests = end();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].page_hashes, (Hashes{1, 2}));
}

TEST_F(KvEvents, ClearingEndsAllRunsAndForgetsAllPages) {
  take(batch(1, stored("1, 2", "null") + "," + stored("7", "null")));
  EXPECT_EQ(take(batch(2, R"({"type": "AllBlocksCleared"})")).size(), 2u);
  take(batch(3, stored("3", "2")));
  const auto requests = end();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].page_hashes, (Hashes{2, 3}));
}

// As many as there are pages that go: to look at them all for each of the runs would take long.
TEST_F(KvEvents, ARemovalEndsAllRunsUpToTheYoungestThatItNames) {
  constexpr int kRuns = 30'000;
  std::string stores = stored("0", "null");
  std::string removed = "0";
  for (int page = 1; page < kRuns; ++page) {
    stores += "," + stored(std::to_string(page), "null");
    removed += "," + std::to_string(page);
  }
  take(batch(1, stores + "," + stored("90000", "null")));
  const auto requests =
      take(batch(2, R"({"type": "BlockRemoved", "block_hashes": [)" + removed + "]}"));
  ASSERT_EQ(std::ssize(requests), kRuns);
  EXPECT_EQ(requests[7].page_hashes, Hashes{7});
  EXPECT_EQ(end().size(), 1u) << "the youngest run's page is there still";
}

TEST_F(KvEvents, ChainsBeginWhereTheStreamBegins) {
  take(batch(1, stored("6", "5")));
  EXPECT_EQ(end()[0].page_hashes, (Hashes{5, 6}));
}

TEST_F(KvEvents, AreReadByPositionToo) {
  take(R"([1.5, [["BlockStored", [1, 18446744073709551615], null, [], 32, null, "GPU"]], 0])");
  take(R"([9.0, [["BlockRemoved", [-1]], ["AllBlocksCleared"]]])");
  take(R"([9.5, [["BlockStored", ["cafe"], null, [], 32, null]]])");
  const auto requests = end();
  ASSERT_EQ(requests.size(), 1u);  // the first came out before
  EXPECT_EQ(requests[0].timestamp_ms, 9500);
  EXPECT_EQ(parser_.page_tokens(), 32);
}

TEST_F(KvEvents, OfOtherMediaAndGroupsAndOfUnknownKindsArePassedOver) {
  take(batch(1, R"({"type": "BlockStored", "block_hashes": [1], "block_size": 16,)"
                R"( "medium": "CPU"},)"
                R"({"type": "BlockStored", "block_hashes": [1], "block_size": 16,)"
                R"( "group_idx": 1}, {"type": "BlockMoved"},)"
                R"({"type": "BlockStored", "block_hashes": [], "block_size": 16})"));
  EXPECT_TRUE(end().empty());
}

TEST_F(KvEvents, AChainInACircleEnds) {
  take(batch(1, stored("1", "2") + "," + stored("2", "1")));
  EXPECT_FALSE(end().empty());
}

TEST_F(KvEvents, ABatchThatIsWrongChangesNothing) {
  EXPECT_FALSE(parser_.take(batch(1, stored("1", "null") + ", 7"), "events:1").ok());
  EXPECT_TRUE(end().empty());
  EXPECT_EQ(parser_.page_tokens(), 0);
}

struct BadBatch {
  std::string_view line;
  std::string_view error;  // begins so, after "events:4: "
};

std::ostream& operator<<(std::ostream& out, const BadBatch& bad) {
  return out << bad.line;
}

class BadKvEvents : public testing::TestWithParam<BadBatch> {};

TEST_P(BadKvEvents, AreRefusedWithTheFieldThatIsWrong) {
  KvEventsParser parser;
  ASSERT_TRUE(parser.take(R"([2, [["BlockStored", [1], null, [], 16]]])", "events:1").ok());
  const Status taken = parser.take(GetParam().line, "events:4");
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().detail.rfind("events:4: " + std::string(GetParam().error), 0), 0u)
      << taken.error().detail;
}

constexpr BadBatch kBadBatches[] = {
    {"{\"ts\": 3, \"eve", "not valid JSON"},
    {"7", "batch: an object or an array is wanted"},
    {"[]", "ts: a number is wanted"},
    {R"({"events": []})", "ts: a number is wanted"},
    {R"({"ts": -1, "events": []})", "ts: must not be negative"},
    {R"({"ts": 1, "events": []})", "ts: earlier than the batch before it"},
    {R"({"ts": 3})", "events: an array is wanted"},
    {R"({"ts": 3, "events": {}})", "events: an array is wanted"},
    {R"({"ts": 3, "events": [1]})", "events[0]: an object or an array is wanted"},
    {R"({"ts": 3, "events": [{}]})", "events[0].type: the event's name is wanted"},
    {R"([3, [["AllBlocksCleared"], [5]]])", "events[1].type: the event's name is wanted"},
    {R"([3, [["BlockStored", 5, null, [], 16]]])",
     "events[0].block_hashes: an array of hashes is wanted"},
    {R"([3, [["BlockStored", [5, 1.5], null, [], 16]]])",
     "events[0].block_hashes[1]: neither an integer nor a text"},
    {R"([3, [["BlockRemoved"]]])", "events[0].block_hashes: an array of hashes is wanted"},
    {R"([3, [["BlockStored", [5], [], [], 16]]])",
     "events[0].parent_block_hash: neither an integer nor a text"},
    {R"([3, [["BlockStored", [5], 1, [], 0]]])",
     "events[0].block_size: a number of tokens is wanted"},
    {R"([3, [["BlockStored", [5], 1, []]]])", "events[0].block_size: a number of tokens is wanted"},
    {R"([3, [["BlockStored", [5], 1, [], 32]]])", "events[0].block_size: 32 after 16"},
    {R"([3, [["BlockStored", [5], 1, [7, 7], 16]]])",
     "events[0].token_ids: 2 tokens for 16 places"},
    {R"([3, [["BlockStored", [5], 1, "text", 16]]])", "events[0].token_ids: an array is wanted"},
};
INSTANTIATE_TEST_SUITE_P(Lines, BadKvEvents, testing::ValuesIn(kBadBatches));

}  // namespace
}  // namespace stemma
