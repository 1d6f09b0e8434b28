// Replayer: what hits, what is evicted, and what a request too long for the cache leaves behind.
#include "replay/replayer.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <sstream>

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
  const std::string path =
      std::string(STEMMA_SOURCE_DIR) + "/../shared/data/traces/conversation_trace.jsonl";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent";
  const std::pair<std::int64_t, double> table[] = {{914, .044},   {1828, .053},   {3656, .079},
                                                   {9140, .196},  {18279, .279},  {36558, .345},
                                                   {54837, .358}, {288500, .3664}};
  std::vector<std::unique_ptr<Replayer>> replayers;
  for (const auto& [capacity_pages, hit_rate] : table)
    replayers.push_back(replayer(capacity_pages));
  TraceReader reader = *TraceReader::open(path, "mooncake");
  for (TraceRequest request; *reader.next(request);) {
    for (const auto& r : replayers) r->feed(request);
  }
  for (std::size_t i = 0; i < replayers.size(); ++i) {
    EXPECT_NEAR(replayers[i]->report().hit_rate(), table[i].second, .003) << table[i].first;
  }
}

// The lines of every file in an archive of traces, by time.
std::vector<std::string> lines_by_time(const std::string& archive) {
  const std::string command = "zstd -dc '" + archive + "' | tar -xO --wildcards '*.jsonl'";
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  std::array<char, 1 << 16> piece;
  for (std::size_t got = 0; (got = fread(piece.data(), 1, piece.size(), pipe.get())) > 0;) {
    text.append(piece.data(), got);
  }
  std::multimap<std::int64_t, std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t number = line.find_first_of("0123456789");  // timestamp comes first
    if (number != std::string::npos) lines.emplace(std::stoll(line.substr(number)), line);
  }
  std::vector<std::string> sorted;
  for (auto& [time, line] : lines) sorted.push_back(std::move(line));
  return sorted;
}

TEST(Replayer, AgentsPromptsHoldThePagesThatAreKnown) {
  const std::string archive =
      std::string(STEMMA_SOURCE_DIR) + "/../shared/data/traces/agent_prompts.tar.zst";
  if (!std::filesystem::exists(archive)) GTEST_SKIP() << archive << " is absent";
  const auto r = replayer(247'466);
  for (const std::string& line : lines_by_time(archive)) {
    r->feed(*parse_trace_line(line, *find_trace_format("prompts"), "agents"));
  }
  EXPECT_EQ(r->report().requests, 1'619);
  EXPECT_EQ(r->report().lookup_pages, 247'466);
  EXPECT_EQ(r->report().lookup_pages - r->report().hit_pages, 24'751);
}

}  // namespace
}  // namespace stemma
