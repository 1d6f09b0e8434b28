// Covers who waits, and where a request is: in order whoever leaves, found by id, and without an
// allocation however many come and go between two looks (I10).
#include "sched/waiting_list.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/heap_counter.h"
#include "base/prng.h"
#include "sched/request_index.h"

namespace stemma {
namespace {

std::vector<std::int64_t> ids_of(WaitingList& list) {
  std::vector<std::int64_t> ids;
  for (const Request* request : list.requests()) ids.push_back(request->id.value());
  return ids;
}

class WaitingListTest : public testing::Test {
 protected:
  static constexpr std::size_t kRequests = 8;

  WaitingListTest() : requests(kRequests), list(kRequests) {
    for (std::size_t i = 0; i < kRequests; ++i) {
      requests[i].id = RequestId(static_cast<std::int64_t>(i));
    }
  }

  std::vector<Request> requests;
  WaitingList list;
};

TEST_F(WaitingListTest, WhoeverLeavesTheOthersKeepTheirOrder) {
  for (Request& request : requests) list.push_back(request);
  for (const std::size_t gone : {3u, 0u, 7u}) list.remove(requests[gone]);
  EXPECT_EQ(list.size(), 5);
  list.push_back(requests[3]);
  EXPECT_EQ(ids_of(list), (std::vector<std::int64_t>{1, 2, 4, 5, 6, 3}));
  list.remove(requests[4]);
  list.remove(requests[3]);
  EXPECT_EQ(ids_of(list), (std::vector<std::int64_t>{1, 2, 5, 6}));
}

TEST_F(WaitingListTest, WhoLeavesWhileTheListIsLookedAtIsAGap) {
  for (Request& request : requests) list.push_back(request);
  std::int64_t seen = 0;
  for (Request* const request : list.requests()) {
    ++seen;
    if (request->id.value() % 2 == 0) list.remove(*request);
  }
  EXPECT_EQ(seen, 8);
  EXPECT_EQ(ids_of(list), (std::vector<std::int64_t>{1, 3, 5, 7}));
}

TEST_F(WaitingListTest, AnOrderThatWasGivenStays) {
  for (Request& request : requests) list.push_back(request);
  for (std::size_t place = 0; place < kRequests; ++place) {
    list.put(place, requests[kRequests - 1 - place]);
  }
  list.remove(requests[6]);
  EXPECT_EQ(ids_of(list), (std::vector<std::int64_t>{7, 5, 4, 3, 2, 1, 0}));
}

TEST_F(WaitingListTest, ComingAndGoingAllocatesNothing) {
  const std::int64_t before = heap_allocations.load();
  for (int round = 0; round < 100; ++round) {
    for (Request& request : requests) list.push_back(request);
    for (const Request& request : requests) list.remove(request);
  }
  EXPECT_EQ(heap_allocations.load(), before);
  EXPECT_TRUE(list.empty());
  EXPECT_TRUE(list.requests().empty());
}

TEST_F(WaitingListTest, WhoDoesNotWaitDoesNotLeave) {
  list.push_back(requests[0]);
  list.remove(requests[0]);
  EXPECT_DEATH(list.remove(requests[0]), "only who waits leaves");
}

TEST(RequestIndex, FindsWhoWasAddedAndNotRemoved) {
  RequestIndex index(4);
  EXPECT_EQ(index.find(RequestId(7)), RequestIndex::kNone);
  // Of one chain.
  index.add(RequestId(1), 0);
  index.add(RequestId(9), 1);
  index.add(RequestId(17), 3);
  index.remove(RequestId(9), 1);
  EXPECT_EQ(index.find(RequestId(1)), 0);
  EXPECT_EQ(index.find(RequestId(9)), RequestIndex::kNone);
  EXPECT_EQ(index.find(RequestId(17)), 3);
}

TEST(RequestIndex, IsRightThroughARandomLife) {
  constexpr std::uint64_t kSeed = 20261;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  constexpr std::int64_t kPlaces = 32;
  Prng random(kSeed);
  RequestIndex index(kPlaces);
  std::vector<RequestId> there(kPlaces);
  for (int i = 0; i < 10'000; ++i) {
    const auto place = static_cast<std::size_t>(random.below(kPlaces));
    RequestId& id = there[place];
    if (id.valid()) {
      index.remove(id, static_cast<std::int32_t>(place));
      EXPECT_EQ(index.find(id), RequestIndex::kNone);
      id = RequestId();
    } else {
      id = RequestId(i + random.below(3) * kPlaces * 10'000);
      index.add(id, static_cast<std::int32_t>(place));
    }
    for (std::size_t other = 0; other < there.size(); ++other) {
      if (!there[other].valid()) continue;
      ASSERT_EQ(index.find(there[other]), static_cast<std::int32_t>(other));
    }
  }
}

}  // namespace
}  // namespace stemma
