// stemma inspect: what more room, less room and other policies would be worth on a trace.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/sanitizers.h"
#include "program.h"

namespace stemma {
namespace {

// Four pages by turns, three times: lru with room for three finds none of them again.
std::string loop_of_four() {
  const std::string path = testing::TempDir() + "stemma_inspect_loop.jsonl";
  std::ofstream file(path);
  for (int i = 0; i < 12; ++i) {
    file << R"({"timestamp": )" << i
         << R"(, "input_length": 512, "output_length": 1, "hash_ids": [)" << i % 4 << "]}\n";
  }
  return path;
}

TEST(Inspect, SaysWhatRoomAndPoliciesAreWorth) {
  const ProgramRun run = run_stemma(
      "inspect --capacity-pages 3 --page-bytes 1MiB --ghost-rate 1 "
      "--other-policies mru --trace " +
      loop_of_four());
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out,
            "12 requests, 3 pages of 1 MiB, lru: 0.0% of pages hit\n"
            "device -2 MiB: +0.0 points\n"
            "device +3 MiB: +66.7 points\n"
            "device +9 MiB: +66.7 points\n"
            "policy mru: +50.0 points\n");
}

// A long answer, two other texts, and the first one again.
std::string long_answer() {
  const std::string path = testing::TempDir() + "stemma_inspect_ends.jsonl";
  std::ofstream file(path);
  const auto add = [&](int first_page, int pages, int output_tokens) {
    file << R"({"timestamp": 0, "input_length": )" << 512 * pages << R"(, "output_length": )"
         << output_tokens << R"(, "hash_ids": [)" << first_page;
    for (int page = 1; page < pages; ++page) file << ", " << first_page + page;
    file << "]}\n";
  };
  add(0, 12, 10'000);
  add(20, 6, 1);
  add(30, 12, 1);
  add(0, 12, 1);
  return path;
}

// Tlru drops the end of the first text before its beginning: it has to be told how requests end.
TEST(Inspect, KnowsPoliciesThatGoByHowRequestsEnd) {
  const ProgramRun run = run_stemma(
      "inspect --capacity-pages 20 --page-bytes 1 --ghost-rate 1 --policy lru "
      "--other-policies tlru --json --trace " +
      long_answer());
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NEAR(run.lines()[0]["hit_rate"].get<double>(), 2. / 42, 1e-9);
  EXPECT_NEAR(run.lines()[0]["policies"]["tlru"].get<double>(), 7. / 42, 1e-9);
}

TEST(Inspect, SaysItToMachines) {
  const ProgramRun run = run_stemma(
      "inspect --json --capacity-pages 3 --page-bytes 1 --ghost-rate 1 --trace " + loop_of_four());
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto line = run.lines()[0];
  EXPECT_EQ(line["lookup_pages"], 12);
  EXPECT_EQ(line["hit_rate"], 0.0);
  EXPECT_EQ(line["lru"][1]["capacity_pages"], 6);
  EXPECT_NEAR(line["lru"][1]["hit_rate"].get<double>(), 8.0 / 12, 1e-9);
  EXPECT_TRUE(line["policies"].contains("slru"));
}

TEST(Inspect, MoreThanThereIsMemoryForIsSaidOfItsFlag) {
  if (kAddressesWatched || kThreadsWatched) GTEST_SKIP() << "sanitizers map more than that";
  const ProgramRun run = run_stemma(
      "inspect --capacity-pages 130000000 --page-bytes 1 --ghost-rate 1 --trace " + loop_of_four(),
      "prlimit --as=1000000000");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, testing::HasSubstr("out_of_memory: --capacity-pages: "));
}

TEST(Inspect, RefusesWithOneLine) {
  const std::string trace = " --trace " + loop_of_four();
  const struct {
    std::string arguments;
    int exit_code;
    std::string error;
  } cases[] = {
      {"inspect" + trace, 2, "--capacity-pages is required"},
      {"inspect --capacity-pages 0 --page-bytes 1" + trace, 2, "--capacity-pages must be"},
      {"inspect --capacity-pages 3 --page-bytes 2GB" + trace, 2, "--page-bytes wants"},
      {"inspect --capacity-pages 3 --page-bytes 0" + trace, 2, "--page-bytes must be"},
      {"inspect --capacity-pages 100000000 --page-bytes 1TiB" + trace, 2, "more than 2^63 bytes"},
      {"inspect --capacity-pages 3 --page-bytes 1 --ghost-rate 0" + trace, 2, "--ghost-rate must"},
      {"inspect --capacity-pages 3 --page-bytes 1 --ghost-rate 1e-9" + trace, 2, "--ghost-rate m"},
      {"inspect --capacity-pages 3 --page-bytes 1 --policy best" + trace, 2, "--policy: "},
      {"inspect --capacity-pages 3 --page-bytes 1 --other-policies lfu,best" + trace, 2,
       "--other-policies: "},
      {"inspect --capacity-pages 500000000 --page-bytes 1" + trace, 2,
       "--capacity-pages must be from 1 to 134217727 (got 500000000)"},
      {"inspect --capacity-pages 3 --page-bytes 1 --trace /nonexistent", 1, "/nonexistent"},
      {"inspect a_directory" + trace, 2, "--trace is for a trace, and a directory is named"},
  };
  for (const auto& wrong : cases) {
    const ProgramRun run = run_stemma(wrong.arguments);
    EXPECT_EQ(run.exit_code, wrong.exit_code) << wrong.arguments;
    EXPECT_THAT(run.err, testing::HasSubstr(wrong.error)) << wrong.arguments;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

}  // namespace
}  // namespace stemma
