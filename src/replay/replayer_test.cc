// Replayer: what hits, what is evicted, and what a request too long for the cache leaves behind.
#include "replay/replayer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "replay/shared_traces.h"

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

TEST(Replayer, OutputsThatTheTraceKnowsAreFoundByWhoGoesOn) {
  const auto r = replayer(8);
  TraceRequest first = request({1, 2});
  first.output_page_hashes = {3};
  r->feed(first);
  EXPECT_EQ(r->report().lookup_pages, 2);
  r->feed(request({1, 2, 3, 4}));
  EXPECT_EQ(r->report().lookup_pages, 6);
  EXPECT_EQ(r->report().hit_pages, 3);
}

// What is found again for somebody more important has his priority from then on.
TEST(Replayer, PrioritiesThatTheTraceKnowsDecideWhatGoes) {
  for (const bool important : {false, true}) {
    const auto r = replayer(4, "priority");
    r->feed(request({1, 2}));
    TraceRequest again = request({1, 2});
    again.priority = important ? 1 : 0;
    r->feed(again);
    r->feed(request({3, 4}));
    r->feed(request({5}));  // one page is short: 2 goes, or 4
    r->feed(request({1, 2}));
    EXPECT_EQ(r->report().hit_pages, 2 + (important ? 2 : 1));
  }
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

// The table of ../shared/data/traces/README.md: shares of the 182,790 different pages.
TEST(Replayer, LruOnAnHourOfConversations) {
  const auto trace = try_read_conversations(STEMMA_SOURCE_DIR);
  if (!trace.has_value()) GTEST_SKIP() << "no conversations in ../shared";
  const std::pair<std::int64_t, double> table[] = {{914, .044},   {1828, .053},   {3656, .079},
                                                   {9140, .196},  {18279, .279},  {36558, .345},
                                                   {54837, .358}, {288500, .3664}};
  std::vector<std::unique_ptr<Replayer>> replayers;
  for (const auto& [capacity_pages, hit_rate] : table)
    replayers.push_back(replayer(capacity_pages));
  for (const TraceRequest& request : *trace) {
    for (const auto& r : replayers) r->feed(request);
  }
  for (std::size_t i = 0; i < replayers.size(); ++i) {
    EXPECT_NEAR(replayers[i]->report().hit_rate(), table[i].second, .003) << table[i].first;
  }
}

TEST(Replayer, AgentsPromptsHoldThePagesThatAreKnown) {
  const auto trace = try_read_agent_prompts(STEMMA_SOURCE_DIR);
  if (!trace.has_value()) GTEST_SKIP() << "no agents' prompts in ../shared";
  const auto r = replayer(247'466);
  for (const TraceRequest& request : *trace) r->feed(request);
  EXPECT_EQ(r->report().requests, 1'619);
  EXPECT_EQ(r->report().lookup_pages, 247'466);
  EXPECT_EQ(r->report().lookup_pages - r->report().hit_pages, 24'751);
}

}  // namespace
}  // namespace stemma
