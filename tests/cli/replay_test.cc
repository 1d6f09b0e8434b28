// stemma replay: the keys it prints, its figures on a real trace, its files and plots, and what it
// refuses.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/sanitizers.h"
#include "base/temp_directory.h"
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

std::string conversations() {
  return std::string(STEMMA_SOURCE_DIR) + "/../shared/data/traces/conversation_trace.jsonl";
}

std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<nlohmann::json> lines_of(const std::string& path) {
  ProgramRun run;
  run.out = text_of(path);
  return run.lines();
}

// 10 ms a step and 1 ms a prompt token.
std::string timing() {
  const std::string path = testing::TempDir() + "stemma_replay_timing.json";
  std::ofstream(path) << R"({"step_ms": 10, "prompt_token_ms": 1})";
  return path;
}

std::string timed(const std::string& more) {
  return "replay --mode timed --timing " + timing() + " --trace " + small_trace() + " " + more;
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
  EXPECT_EQ(lines[1]["seconds"], 0.005) << "of the trace";
  EXPECT_EQ(lines[1]["mode"], "blocks");
}

TEST(Replay, ATracesNameMayBeAnyBytes) {
  const std::string path = testing::TempDir() + "stemma_replay_\xff.jsonl";
  std::filesystem::copy_file(small_trace(), path,
                             std::filesystem::copy_options::overwrite_existing);
  for (const char* const mode : {"blocks", "timed"}) {
    const ProgramRun run = run_stemma("replay --json --trace " + path + " --mode " + mode);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(run.lines().at(0)["trace"], testing::TempDir() + "stemma_replay_\uFFFD.jsonl");
  }
}

TEST(Replay, TheSameTraceGivesTheSameBytes) {
  const std::string wanted[] = {
      "replay --trace " + small_trace() + " --capacity-pages 2,unlimited --policy lru,lfu --json",
      timed("--capacity-pages 3,unlimited --schedule-policy random --seed 4 --json")};
  for (const std::string& arguments : wanted) {
    const ProgramRun once = run_stemma(arguments);
    EXPECT_NE(once.out, "") << once.err;
    EXPECT_EQ(once.out, run_stemma(arguments).out);
    EXPECT_EQ(once.err, "") << "nothing of a time that differs, or of progress";
  }
}

TEST(Replay, BoundsStandBesideEveryPolicy) {
  const std::string arguments =
      "replay --trace " + small_trace() + " --capacity-pages 1 --policy fifo";
  const ProgramRun run = run_stemma(arguments + " --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto line = run.lines()[0];
  EXPECT_EQ(line["hit_rate"], 1.0 / 6);
  EXPECT_EQ(line["bounds"], nlohmann::json::parse(
                                R"({"belady": 0.16666666666666666,
                                    "belady_forced": 0.16666666666666666,
                                    "knows_whether": 0.16666666666666666})"));
  EXPECT_NE(run_stemma(arguments).out.find("knows_whether"), std::string::npos);
  for (const char* policies : {"", ",belady"}) {
    const std::string off = arguments + policies + " --bounds off";
    EXPECT_FALSE(run_stemma(off + " --json").lines()[0].contains("bounds")) << off;
    EXPECT_EQ(run_stemma(off).out.find("knows_whether"), std::string::npos) << off;
  }
}

// 0..1210 the first prompt. The second, which arrives at 5, waits for the first's two shared pages,
// is left with 176 tokens and ends at 1396.
TEST(Replay, TimedReportsWhatTheTimelineSays) {
  const ProgramRun run = run_stemma(timed("--capacity-pages unlimited --json"));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto line = run.lines()[0];
  EXPECT_EQ(line["mode"], "timed");
  EXPECT_EQ(line["policy"], "lru");
  EXPECT_EQ(line["page_size"], 512);
  EXPECT_EQ(line["capacity_pages"], "unlimited");
  EXPECT_EQ(line["requests"], 2);
  EXPECT_EQ(line["lookup_pages"], 6);
  EXPECT_EQ(line["hit_pages"], 2);
  EXPECT_EQ(line["seconds"], 1.396);
  EXPECT_EQ(line["hit_tokens"]["device"], 1024);
  EXPECT_EQ(line["computed_tokens"], 1200 + 176);
  EXPECT_EQ(line["saved_ms"], 1024);
  EXPECT_EQ(line["ttft_ms"]["p50"], 1210);
  EXPECT_EQ(line["ttft_ms"]["max"], 1391);
  EXPECT_EQ(line["queue_ms"]["max"], 1205);
  EXPECT_EQ(line["scheduler"]["policy"], "fcfs");
  EXPECT_EQ(line["bounds"]["belady"], 2.0 / 6);
}

// Who ends with the prompt is let in with room for a first output, as everybody.
TEST(Replay, AnUnlimitedCacheLetsAllInAtOnce) {
  const std::string path = testing::TempDir() + "stemma_replay_full_pages.jsonl";
  std::ofstream(path)
      << R"({"timestamp": 0, "input_length": 1024, "output_length": 0, "hash_ids": [1, 2]})"
         "\n"
      << R"({"timestamp": 0, "input_length": 1024, "output_length": 0, "hash_ids": [3, 4]})"
         "\n";
  const ProgramRun run =
      run_stemma("replay --mode timed --json --timing " + timing() + " --trace " + path);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.lines()[0]["queue_ms"]["max"], 0);
  EXPECT_EQ(run.lines()[0]["steps"], 1);
}

TEST(Replay, SaysWhereHashesDoNotFitTheTokens) {
  for (const std::string& command : {timed(""), "replay --trace " + small_trace()}) {
    for (const char* page_tokens : {"16", "4096"}) {  // of 512 each are three hashes for 1,200
      const ProgramRun run = run_stemma(command + " --page-tokens " + page_tokens);
      EXPECT_EQ(run.exit_code, 0);
      EXPECT_NE(run.err.find("2 requests have more or fewer tokens"), std::string::npos) << run.err;
    }
    EXPECT_EQ(run_stemma(command).err, "");
  }
}

TEST(Replay, TimedCountsWhatItRefuses) {
  const ProgramRun run = run_stemma(timed("--capacity-pages 2 --json"));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.lines()[0]["refused_requests"]["exceeds_pool"], 2);
  EXPECT_EQ(run.lines()[0]["finished_requests"], 0);
  EXPECT_EQ(run_stemma(timed("--context-tokens 600 --json"))
                .lines()[0]["refused_requests"]["exceeds_context"],
            2);
}

TEST(Replay, TimedPrintsARowForEachPolicyAndCapacity) {
  const ProgramRun run = run_stemma(timed("--capacity-pages 3,unlimited --policy lru,slru"));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  for (const char* text : {"TTFT", "token", "p99", "belady", "slru", "replayed in"}) {
    EXPECT_NE(run.out.find(text), std::string::npos) << text;
  }
}

TEST(Replay, WritesALineForEachRequestAndMinute) {
  const std::string requests = testing::TempDir() + "stemma_replay_requests.jsonl";
  const std::string minutes = testing::TempDir() + "stemma_replay_minutes.jsonl";
  const std::string files = " --per-request " + requests + " --per-minute " + minutes;
  ASSERT_EQ(run_stemma(timed("--policy lru,fifo" + files)).exit_code, 0);
  ASSERT_EQ(lines_of(requests).size(), 4u);
  EXPECT_EQ(lines_of(requests)[1]["policy"], "lru");
  EXPECT_EQ(lines_of(requests)[1]["capacity_pages"], "unlimited");
  EXPECT_EQ(lines_of(requests)[1]["request"], 1);
  EXPECT_EQ(lines_of(requests)[1]["ttft_ms"], 1391);
  ASSERT_EQ(lines_of(minutes).size(), 2u);
  EXPECT_EQ(lines_of(minutes)[1]["policy"], "fifo");
  EXPECT_EQ(lines_of(minutes)[1]["minute"], 0);
  EXPECT_EQ(lines_of(minutes)[1]["finished_requests"], 2);
  ASSERT_EQ(run_stemma("replay --trace " + small_trace() + files).exit_code, 0);
  ASSERT_EQ(lines_of(requests).size(), 2u);
  EXPECT_EQ(lines_of(requests)[1]["hit_pages"], 2);
  ASSERT_EQ(lines_of(minutes).size(), 1u);
  EXPECT_EQ(lines_of(minutes)[0]["hit_pages"], 2);
  EXPECT_EQ(lines_of(minutes)[0]["requests"], 2);
}

TEST(Replay, TiersBelowTheDeviceBringBackWhatWasEvicted) {
  if (!std::filesystem::exists(conversations())) GTEST_SKIP() << "no " << conversations();
  const std::string command =
      "replay --mode timed --time-scale 8 --requests-max 64 --capacity-pages 3000 --bounds off "
      "--json --trace " +
      conversations();
  const auto hits = [](const ProgramRun& run) { return run.lines()[0]["hit_tokens"]; };
  const auto plain = hits(run_stemma(command));
  EXPECT_EQ(plain["host"], 0);
  const ProgramRun run = run_stemma(
      command + " --host-pages 6000 --disk-pages 20000 --write-policy write-back --disk-gb-s 50");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto tiered = hits(run);
  EXPECT_GT(tiered["host"].get<std::int64_t>(), plain["device"].get<std::int64_t>() / 2);
  EXPECT_GT(tiered["disk"].get<std::int64_t>(), plain["device"].get<std::int64_t>() / 2);
  EXPECT_EQ(run.lines()[0]["tiers"]["disk_pages"], 20000);
}

TEST(Replay, WrongTiersAreRefusedWithOneLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"--disk-pages 5", "--disk-pages needs --host-pages"},
      {"--host-pages -1", "--host-pages must be from 0 to 1073741823"},
      {"--host-pages 4000000000", "--host-pages must be from 0 to 1073741823"},
      {"--host-pages 5 --disk-pages 9223372036854775807", "--disk-pages must be from 0 to "},
      {"--host-pages 5 --link-gb-s 0", "--link-gb-s must be from 0.001 to 1000000"},
      {"--host-pages 5 --link-gb-s 1e-300", "--link-gb-s must be from 0.001 to 1000000"},
      {"--host-pages 5 --disk-pages 5 --disk-gb-s 1e300",
       "--disk-gb-s must be from 0.001 to 1000000"},
      {"--link-gb-s 5", "--link-gb-s needs --host-pages"},
      {"--write-policy write-through", "--write-policy needs --host-pages"},
      {"--host-policy lru", "--host-policy needs --host-pages"},
      {"--host-pages 5 --disk-gb-s 5", "--disk-gb-s needs --disk-pages"},
      {"--host-pages 5 --write-policy never", "--write-policy: "},
      {"--host-pages 5", "says no kv_token_bytes"}};
  for (const auto& [flags, line] : cases) {
    const ProgramRun run = run_stemma(timed(flags));
    EXPECT_EQ(run.exit_code, 2) << flags;
    EXPECT_NE(run.err.find(line), std::string::npos) << run.err;
  }
  const ProgramRun policy = run_stemma("replay --mode timed --trace " + small_trace() +
                                       " --host-pages 5 --host-policy never");
  EXPECT_NE(policy.err.find("never"), std::string::npos) << policy.err;
  const ProgramRun blocks = run_stemma("replay --trace " + small_trace() + " --host-pages 5");
  EXPECT_NE(blocks.err.find("--host-pages is for --mode timed"), std::string::npos) << blocks.err;
}

// The last page of an equal prompt is computed again, and two requests may compute one page.
TEST(Replay, TimedConversationsHitAlmostWhatTheyHitOneAfterAnother) {
  if (!std::filesystem::exists(conversations())) GTEST_SKIP() << "no " << conversations();
  const ProgramRun run =
      run_stemma("replay --mode timed --time-scale 8 --requests-max 64 --trace " + conversations() +
                 " --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto line = run.lines()[0];
  EXPECT_EQ(line["finished_requests"], 12031);
  EXPECT_EQ(line["output_tokens"], 4122048) << "every token of the trace";
  EXPECT_EQ(line["hit_tokens"]["device"].get<std::int64_t>() +
                line["computed_tokens"].get<std::int64_t>(),
            144793823);
  EXPECT_LT(line["hit_rate"], 0.3664);
  EXPECT_GT(line["hit_rate"], 0.3650);
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
  if (!std::filesystem::exists(conversations())) GTEST_SKIP() << "no " << conversations();
  const ProgramRun run =
      run_stemma("replay --trace " + conversations() + " --capacity-pages unlimited,10000 --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto lines = run.lines();
  EXPECT_NEAR(lines[0]["hit_rate"].get<double>(), 0.3664, 0.00005);
  EXPECT_NEAR(lines[1]["hit_rate"].get<double>(), 0.212, 0.003);
}

TEST(Replay, SeveralTracesAreReadAsOneByTime) {
  const std::string later = testing::TempDir() + "stemma_replay_later.jsonl";
  std::ofstream(later)
      << R"({"timestamp": 7, "input_length": 512, "output_length": 1, "hash_ids": [1]})"
         "\n";
  const ProgramRun run = run_stemma("replay --trace " + later + "," + small_trace() + " --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.lines()[0]["requests"], 3);
  EXPECT_EQ(run.lines()[0]["hit_pages"], 3);
  EXPECT_EQ(run.lines()[0]["trace"], later + "," + small_trace());
}

// Ghosts that watch every use are exact.
TEST(Replay, GhostsSayTheirHitRateAndHowFarItIsOff) {
  const ProgramRun run = run_stemma("replay --trace " + small_trace() +
                                    " --capacity-pages 2,unlimited --policy lru,belady "
                                    "--ghost-rate 1 --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto lines = run.lines();
  EXPECT_NEAR(lines[0]["ghost_hit_rate"].get<double>(), lines[0]["hit_rate"].get<double>(), 1e-9);
  EXPECT_NEAR(lines[0]["ghost_points_off"].get<double>(), 0, 1e-7);
  for (std::size_t i = 1; i < lines.size(); ++i) EXPECT_FALSE(lines[i].contains("ghost_hit_rate"));
}

TEST(Replay, GhostsOfPoliciesThatLearnAreToldHowRequestsEnd) {
  if (!std::filesystem::exists(conversations())) GTEST_SKIP() << "no conversations in ../shared";
  const ProgramRun run = run_stemma("replay --trace " + conversations() +
                                    " --capacity-pages 3656 --policy hazard,tlru,s3fifo "
                                    "--ghost-rate 1 --bounds off --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  for (const auto& line : run.lines()) {
    EXPECT_NEAR(line["ghost_points_off"].get<double>(), 0, 1e-7) << line["policy"];
  }
}

TEST(Replay, LeavesWrongLinesOutWhenAsked) {
  const std::string path = testing::TempDir() + "stemma_replay_bad.jsonl";
  std::ofstream(path) << "not a request\n" << std::ifstream(small_trace()).rdbuf();
  const ProgramRun run = run_stemma("replay --trace " + path + " --skip-bad --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.lines()[0]["requests"], 2);
  EXPECT_NE(run.err.find("1 wrong lines left out"), std::string::npos) << run.err;
}

std::string piped(const std::string& trace) {
  return "cat " + trace + " |";
}

TEST(Replay, ReadsAPipeOnce) {
  const std::string pipe = piped(small_trace());
  for (const std::string& mode : {std::string(), " --mode timed --timing " + timing()}) {
    SCOPED_TRACE(mode);
    const ProgramRun run =
        run_stemma("replay --trace /dev/stdin --capacity-pages 8 --skip-bad --json" + mode, pipe);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(run.lines()[0]["requests"], 2);
    EXPECT_EQ(run.lines()[0]["hit_pages"], 2);
    EXPECT_EQ(run.lines()[0]["bounds"]["belady"], 2.0 / 6);
    EXPECT_EQ(run.err, "");
  }
}

TEST(Replay, RefusesAPipeThatWouldBeReadTwice) {
  const std::string pipe = piped(small_trace());
  const std::string replay = "replay --trace /dev/stdin --skip-bad ";
  for (const std::string& twice :
       {std::string("--capacity-pages unlimited"),
        "--capacity-pages 8,9 --mode timed --timing " + timing(),
        "--capacity-pages 8 --policy lru,slru --mode timed --timing " + timing()}) {
    const ProgramRun run = run_stemma(replay + twice, pipe);
    EXPECT_EQ(run.exit_code, 2) << twice;
    EXPECT_NE(run.err.find("--trace: /dev/stdin is no regular file"), std::string::npos) << run.err;
  }
}

TEST(Replay, GhostsTakeAPageThatARequestNamesTwiceForOne) {
  const std::string path = testing::TempDir() + "stemma_replay_twice.jsonl";
  std::ofstream(path)
      << R"({"format": "stemma-capture", "version": 1, "page_size": 16})"
         "\n"
      << R"({"timestamp_ms": 1, "namespace": "x", "input_tokens": 64, "output_tokens": 1, )"
      << R"("finish_reason": "stop", "priority": 0, )"
      << R"("page_hashes": ["0000000000000001", "0000000000000002"], )"
      << R"("output_page_hashes": ["0000000000000001"]})"
         "\n";
  const ProgramRun run = run_stemma("replay --format capture --trace " + path +
                                    " --capacity-pages 4 --ghost-rate 1 --policy lru --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.lines()[0]["requests"], 1);
}

// Two answers of three pages each, of which the first is then a part of a prompt.
TEST(Replay, OutputsOfACaptureTakeRoomAndAreFoundByBoundsToo) {
  const std::string path = testing::TempDir() + "stemma_replay_outputs.jsonl";
  const auto line = [](int ms, const std::string& pages, const std::string& outputs) {
    return R"({"timestamp_ms": )" + std::to_string(ms) +
           R"(, "namespace": "x", "input_tokens": 64, "output_tokens": 48, )"
           R"("finish_reason": "stop", "priority": 0, "page_hashes": [)" +
           pages + R"(], "output_page_hashes": [)" + outputs + "]}\n";
  };
  const auto page = [](char name) { return '"' + std::string(16, name) + '"'; };
  std::ofstream(path) << R"({"format": "stemma-capture", "version": 1, "page_size": 16})"
                      << "\n"
                      << line(1, page('1'), page('2') + "," + page('3') + "," + page('4'))
                      << line(2, page('5'), page('6') + "," + page('7') + "," + page('8'))
                      << line(3, page('1') + "," + page('2') + "," + page('3'), "");
  const ProgramRun run = run_stemma("replay --format capture --json --capacity-pages unlimited" +
                                    (" --trace " + path));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto report = run.lines()[0];
  EXPECT_EQ(report["evicted_pages"], 0);
  EXPECT_EQ(report["hit_rate"], 3.0 / 5);
  EXPECT_EQ(report["bounds"]["belady"], 3.0 / 5);
}

TEST(Replay, BoundsHaveTheTiersBelowTheDeviceToo) {
  const std::string timing = testing::TempDir() + "stemma_replay_tiers_timing.json";
  std::ofstream(timing) << R"({"step_ms": 10, "prompt_token_ms": 1, "kv_token_bytes": 1000})";
  const std::string path = testing::TempDir() + "stemma_replay_tiers.jsonl";
  std::ofstream trace(path);
  for (int i = 0; i < 4; ++i) {
    trace << R"({"timestamp": )" << 10'000 * i
          << R"(, "input_length": 1540, "output_length": 1, "hash_ids": )"
          << (i % 2 == 0 ? "[0, 1, 2, 7]" : "[3, 4, 5, 8]") << "}\n";
  }
  trace.close();
  const std::string replay = "replay --mode timed --json --capacity-pages 5 --timing " + timing +
                             " --trace " + path + " --host-pages ";
  EXPECT_EQ(run_stemma(replay + "0").lines()[0]["bounds"]["belady"], 5.0 / 16);
  const auto report = run_stemma(replay + "20").lines()[0];
  EXPECT_EQ(report["bounds"]["belady"], 8.0 / 16);
  EXPECT_LE(report["hit_rate"], report["bounds"]["belady"]);
}

TEST(Replay, LeavesBoundsOutWhereTheQueueReorders) {
  const ProgramRun run = run_stemma(timed("--schedule-policy lpm --bounds on --json"));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_FALSE(run.lines()[0].contains("bounds"));
  EXPECT_NE(run.err.find("no bounds beside the policies: --schedule-policy lpm"), std::string::npos)
      << run.err;
}

TEST(Replay, PlotsACurveForEachPolicyWithBeladyAndHitsOverTime) {
  const std::string plot = testing::TempDir() + "stemma's replay.svg";
  std::filesystem::remove(plot);
  const ProgramRun run = run_stemma("replay --trace " + small_trace() +
                                    " --capacity-pages 1,2,3 --policy lru --plot \"" + plot + "\"");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::string svg = text_of(plot);
  EXPECT_NE(svg.find("<svg"), std::string::npos);
  for (const char* text : {"lru", "belady", "capacity, pages", "hit rate", "lru, 2 pages",
                           "minutes since the first request"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
}

TEST(Replay, PlotsTimedReplaysToo) {
  const std::string plot = testing::TempDir() + "stemma_timed_replay.svg";
  std::filesystem::remove(plot);
  const ProgramRun run = run_stemma(timed("--capacity-pages 3,unlimited --plot " + plot));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::string svg = text_of(plot);
  for (const char* text : {"capacity, pages", "belady", "lru, 3 pages", "lru, unlimited"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
}

// As on a full disk: no file may have more than 1 KiB.
TEST(Replay, APlotThatIsNotWholeIsNotLeftInPlaceOfAnother) {
  const TempDirectory directory;
  const std::string plot = directory.file("a.svg");
  std::ofstream(plot) << "before";
  const ProgramRun run =
      run_stemma("replay --trace " + small_trace() + " --capacity-pages 1,2 --plot " + plot,
                 "trap '' XFSZ; ulimit -f 2;");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_NE(run.err.find("--plot: gnuplot could not write " + plot), std::string::npos) << run.err;
  EXPECT_EQ(text_of(plot), "before");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(Replay, APlotTakesThePlaceOfAFileAndOfNothingElse) {
  const TempDirectory directory;
  const std::string link = directory.file("link.svg");
  std::ofstream(directory.file("a.svg")) << "before";
  std::filesystem::permissions(directory.file("a.svg"), std::filesystem::perms::owner_read |
                                                            std::filesystem::perms::owner_write);
  std::filesystem::create_symlink(directory.file("a.svg"), link);
  const std::string command = "replay --trace " + small_trace() + " --capacity-pages 1,2 --plot ";
  EXPECT_EQ(run_stemma(command + link).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_NE(text_of(directory.file("a.svg")).find("<svg"), std::string::npos);
  EXPECT_EQ(std::filesystem::status(directory.file("a.svg")).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const std::string dangling = directory.file("dangling.svg");
  std::filesystem::create_symlink("b.svg", dangling);
  EXPECT_EQ(run_stemma(command + dangling).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(dangling));
  EXPECT_TRUE(std::filesystem::is_regular_file(directory.file("b.svg"))) << "what it names";
  const ProgramRun refused = run_stemma(command + directory.path());
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("is no regular file"), std::string::npos) << refused.err;
}

TEST(Replay, MoreThanThereIsMemoryForIsSaidOfItsFlag) {
  if (kAddressesWatched || kThreadsWatched) GTEST_SKIP() << "sanitizers map more than that";
  const std::string trace = " --trace " + small_trace() + " --capacity-pages 1073741823";
  for (const std::string& command : {"replay" + trace, timed("--capacity-pages 1073741823")}) {
    const ProgramRun run = run_stemma(command, "prlimit --as=1000000000");
    EXPECT_EQ(run.exit_code, 2) << command;
    EXPECT_NE(run.err.find("out_of_memory: --capacity-pages"), std::string::npos) << run.err;
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
      {"replay --trace " + small_trace() + " --mode fast", 2, "--mode"},
      {"replay --trace " + small_trace() + " --ghost-rate 2", 2, "--ghost-rate"},
      {"replay --trace " + small_trace() + " --ghost-rate 0.1", 2,
       "--ghost-rate: wants capacities"},
      {"replay --trace " + small_trace() + " --ghost-rate 0.1 --mode timed", 2, "--mode blocks"},
      {"replay --trace " + small_trace() + " --tokenizer /nonexistent", 1, "tokenizer"},
      {"replay --trace " + small_trace() + " --bounds maybe", 2, "--bounds"},
      {"replay --trace " + small_trace() + " --timing llama-8b-h200", 2,
       "--timing is for --mode timed"},
      {"replay --trace " + small_trace() + " --per-minute /nonexistent/a", 2,
       "--per-minute: cannot write /nonexistent/a"},
      {"replay --trace " + small_trace() + " --per-request here --per-minute ./here", 2,
       "--per-minute: ./here is the file of --per-request"},
      {"replay --trace " + small_trace() + " --per-request here --plot here", 2,
       "--plot: here is the file of --per-request"},
      {"replay --trace " + small_trace() + " --per-request " + small_trace(), 2,
       " is the file of --trace"},
      {timed("--host-pages 5 --host-policy never"), 2, "--host-policy: eviction: unknown order"},
      {timed("--policy lru,belady"), 2, "--policy: belady knows the trace"},
      {timed("--policy oracle"), 2, "oracle"},
      {timed("--time-scale 0"), 2, "--time-scale must be"},
      {timed("--requests-max 0"), 2, "requests_max must be at least 1"},
      {timed("--waiting-max 9223372036854775807"), 2, "waiting_max must be at most 16777216"},
      {timed("--schedule-policy best"), 2, "--schedule-policy: "},
      {"replay --mode timed --timing h100 --trace " + small_trace(), 2, "known: llama-8b-h200"},
      {"replay --mode timed --timing /nonexistent/t.json --trace " + small_trace(), 1,
       "/nonexistent/t.json"},
      {"replay --trace " + small_trace() + " --capacity-pages 2 --plot /nonexistent/a.svg", 1,
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
