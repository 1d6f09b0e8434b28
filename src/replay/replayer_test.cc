// Replayer: what hits, what is evicted, and what a request too long for the cache leaves behind.
#include "replay/replayer.h"

#include <gtest/gtest.h>

namespace stemma {
namespace {

std::unique_ptr<Replayer> replayer(std::int64_t capacity_pages, std::string policy = "lru") {
  return *Replayer::open({.policy = std::move(policy), .capacity_pages = capacity_pages});
}

TraceRequest request(std::vector<std::int64_t> hashes) {
  TraceRequest made;
  made.page_hashes = std::move(hashes);
  return made;
}

TEST(Replayer, ASecondEqualRequestHitsEveryPage) {
  const auto r = replayer(8);
  r->feed(request({1, 2, 3}));
  r->feed(request({1, 2, 3}));
  EXPECT_EQ(r->report().lookup_pages, 6);
  EXPECT_EQ(r->report().hit_pages, 3);
  EXPECT_EQ(r->report().hit_rate(), 0.5);
}

TEST(Replayer, HitsEndWhereRequestsPart) {
  const auto r = replayer(8);
  r->feed(request({1, 2, 3}));
  r->feed(request({1, 2, 4, 3}));
  EXPECT_EQ(r->report().hit_pages, 2);
}

TEST(Replayer, EvictsExactlyWhatIsShort) {
  const auto r = replayer(4);
  r->feed(request({1, 2, 3}));
  r->feed(request({4, 5}));  // one page is short: 3 goes
  EXPECT_EQ(r->report().evicted_pages, 1);
  r->feed(request({1, 2}));
  EXPECT_EQ(r->report().hit_pages, 2);
}

TEST(Replayer, ARequestLongerThanTheCacheKeepsThePrefixThatFits) {
  const auto r = replayer(2);
  r->feed(request({1, 2, 3}));
  r->feed(request({1, 2, 3}));
  EXPECT_EQ(r->report().hit_pages, 2);
}

TEST(Replayer, HashesThatDifferAboveBit32AreDifferentPages) {
  const auto r = replayer(8);
  r->feed(request({1}));
  r->feed(request({1 + (std::int64_t{1} << 32)}));
  EXPECT_EQ(r->report().hit_pages, 0);
}

TEST(Replayer, RefusesAnUnknownPolicyAndAnEmptyCache) {
  EXPECT_FALSE(Replayer::open({.policy = "oracle", .capacity_pages = 4}).ok());
  EXPECT_FALSE(Replayer::open({.policy = "lru", .capacity_pages = 0}).ok());
}

}  // namespace
}  // namespace stemma
