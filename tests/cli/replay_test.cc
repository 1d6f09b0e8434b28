// stemma replay: the keys it prints, its figures on a real trace, and what it refuses.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/program.h"

namespace stemma {
namespace {

std::string small_trace() {
  const std::string path = testing::TempDir() + "stemma_replay_small.jsonl";
  std::ofstream(path)
      << R"({"timestamp": 0, "input_length": 1200, "output_length": 1, "hash_ids": [1, 2, 3]})"
         "\n"
      << R"({"timestamp": 5, "input_length": 1200, "output_length": 1, "hash_ids": [1, 2, 4]})"
         "\n";
  return path;
}

TEST(Replay, PrintsALineForEachPolicyAndCapacity) {
  const ProgramRun run = run_stemma("replay --trace " + small_trace() +
                                    " --capacity-pages 2,unlimited --policy lru,slru --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto lines = run.lines();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0]["capacity_pages"], 2);
  EXPECT_EQ(lines[1]["capacity_pages"], "unlimited");
  EXPECT_EQ(lines[1]["policy"], "lru");
  EXPECT_EQ(lines[1]["page_size"], 512);
  EXPECT_EQ(lines[1]["requests"], 2);
  EXPECT_EQ(lines[1]["lookup_pages"], 6);
  EXPECT_EQ(lines[1]["hit_pages"], 2);
  EXPECT_EQ(lines[1]["evicted_pages"], 0);
  EXPECT_TRUE(lines[1].contains("seconds"));
}

TEST(Replay, BoundsAreLinesLikePolicies) {
  const ProgramRun run = run_stemma(
      "replay --trace " + small_trace() +
      " --capacity-pages 2,unlimited --policy lru,belady,belady_forced,knows_whether --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto lines = run.lines();
  ASSERT_EQ(lines.size(), 8u);
  EXPECT_EQ(lines[2]["policy"], "belady");
  EXPECT_EQ(lines[2]["capacity_pages"], 2);
  EXPECT_EQ(lines[2]["hit_pages"], 2);
  EXPECT_EQ(lines[7]["policy"], "knows_whether");
  EXPECT_EQ(lines[7]["capacity_pages"], "unlimited");
  EXPECT_EQ(lines[7]["requests"], 2);
}

TEST(Replay, RealConversationsHitAsKnown) {
  const std::string trace =
      std::string(STEMMA_SOURCE_DIR) + "/../shared/data/traces/conversation_trace.jsonl";
  if (!std::filesystem::exists(trace)) GTEST_SKIP() << "no trace at " << trace;
  const ProgramRun run =
      run_stemma("replay --trace " + trace + " --capacity-pages unlimited,10000 --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto lines = run.lines();
  EXPECT_NEAR(lines[0]["hit_rate"].get<double>(), 0.3664, 0.00005);
  EXPECT_NEAR(lines[1]["hit_rate"].get<double>(), 0.212, 0.003);
}

TEST(Replay, LeavesWrongLinesOutWhenAsked) {
  const std::string path = testing::TempDir() + "stemma_replay_bad.jsonl";
  std::ofstream(path) << "not a request\n" << std::ifstream(small_trace()).rdbuf();
  const ProgramRun run = run_stemma("replay --trace " + path + " --skip-bad --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.lines()[0]["requests"], 2);
  EXPECT_NE(run.err.find("1 wrong lines left out"), std::string::npos) << run.err;
}

TEST(Replay, PlotsACurveForEachPolicy) {
  const std::string plot = testing::TempDir() + "stemma's replay.svg";
  std::filesystem::remove(plot);
  const ProgramRun run =
      run_stemma("replay --trace " + small_trace() +
                 " --capacity-pages 1,2,3 --policy lru,belady --plot \"" + plot + "\"");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::stringstream svg;
  svg << std::ifstream(plot).rdbuf();
  EXPECT_NE(svg.str().find("<svg"), std::string::npos);
  for (const char* text : {"lru", "belady", "capacity, pages", "hit rate"}) {
    EXPECT_NE(svg.str().find(text), std::string::npos) << text;
  }
}

TEST(Replay, RefusesWithOneLine) {
  const struct {
    std::string arguments;
    int exit_code;
    std::string error;
  } cases[] = {
      {"replay", 2, "--trace is required"},
      {"replay --trace /nonexistent", 1, "cannot open trace /nonexistent"},
      {"replay --trace " + small_trace() + " --capacity-pages 0", 2, "--capacity-pages must be"},
      {"replay --trace " + small_trace() + " --capacity-pages many", 2, "--capacity-pages wants"},
      {"replay --trace " + small_trace() + " --policy oracle", 2, "oracle"},
      {"replay --trace " + small_trace() + " --plot a.svg", 2, "--plot: wants capacities"},
      {"replay --trace " + small_trace() + " --capacity-pages 2 --plot /nonexistent/a.svg", 2,
       "--plot: gnuplot could not write /nonexistent/a.svg"},
      {"replay --trace " + small_trace() + " --format csv", 2, "known: mooncake"},
      {"replay --trace " + std::string(STEMMA_SOURCE_DIR) + "/LICENSE", 1, "LICENSE:"},
  };
  for (const auto& c : cases) {
    const ProgramRun run = run_stemma(c.arguments);
    EXPECT_EQ(run.exit_code, c.exit_code) << c.arguments << run.err;
    EXPECT_NE(run.err.find(c.error), std::string::npos) << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    EXPECT_EQ(run.out, "");
  }
}

}  // namespace
}  // namespace stemma
