// stemma replay: what was typed wrong is said of the flag that it was typed behind, and costs no
// file of an earlier run.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/sanitizers.h"
#include "base/temp_directory.h"
#include "cli/program.h"

namespace stemma {
namespace {

using ::testing::HasSubstr;

std::string contents(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Two requests of three pages, and the directory that everything of a test lies in.
class ReplayRefusals : public testing::Test {
 protected:
  ReplayRefusals() {
    std::ofstream(trace_)
        << R"({"timestamp": 0, "input_length": 1200, "output_length": 1, "hash_ids": [1, 2, 3]})"
           "\n"
        << R"({"timestamp": 5, "input_length": 1200, "output_length": 1, "hash_ids": [1, 2, 4]})"
           "\n";
  }

  ProgramRun replay(const std::string& flags, const std::string& launcher = {}) const {
    return run_stemma("replay --trace " + trace_ + " " + flags, launcher);
  }

  const TempDirectory directory_;
  const std::string trace_ = directory_.file("trace.jsonl");
};

TEST_F(ReplayRefusals, CostNoFileOfAnEarlierRun) {
  const std::string requests = directory_.file("requests.jsonl");
  const std::string minutes = directory_.file("minutes.jsonl");
  for (const std::string& file : {requests, minutes}) std::ofstream(file) << "before";
  const std::string files = "--per-request " + requests + " --per-minute " + minutes + " ";
  for (const std::string& flags :
       {std::string("--policy lruu"), std::string("--policy lru,lruu"),
        std::string("--capacity-pages abc"), std::string("--capacity-pages 10,0"),
        std::string("--ghost-rate 0.1"), "--plot " + directory_.path(),
        std::string("--mode timed --timing nope"),
        std::string("--mode timed --schedule-policy nope"),
        std::string("--mode timed --requests-max 0"),
        std::string("--mode timed --host-pages 5 --write-policy nope"),
        std::string("--mode timed --chunk-tokens 0 --capacity-pages 10,20")}) {
    EXPECT_EQ(replay(files + flags).exit_code, 2) << flags;
    EXPECT_EQ(contents(requests), "before") << flags;
    EXPECT_EQ(contents(minutes), "before") << flags;
  }
  const ProgramRun other = replay("--per-request " + requests + " --per-minute /nonexistent/a");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_EQ(contents(requests), "before") << "nor does a file that cannot be written";
}

TEST_F(ReplayRefusals, OfTooMuchMemoryCostNoFileEither) {
  if (kAddressesWatched || kThreadsWatched) GTEST_SKIP() << "sanitizers map more than that";
  const std::string requests = directory_.file("requests.jsonl");
  std::ofstream(requests) << "before";
  for (const char* const mode : {"blocks", "timed"}) {
    const ProgramRun run =
        replay("--capacity-pages 1073741823 --per-request " + requests + " --mode " + mode,
               "prlimit --as=1000000000");
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_EQ(contents(requests), "before") << mode;
  }
}

TEST_F(ReplayRefusals, MakeNoFileForWhatIsNoPolicy) {
  const std::string requests = directory_.file("requests.jsonl");
  EXPECT_EQ(replay("--policy lruu --per-request " + requests).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(requests));
}

// What there is to say of a trace may be nothing: the file of an earlier run says something else.
TEST_F(ReplayRefusals, AreNoneWhereThereIsNothingToWrite) {
  const std::string requests = directory_.file("requests.jsonl");
  std::ofstream(requests) << "before";
  const ProgramRun run = replay("--policy belady --capacity-pages 2 --per-request " + requests);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(contents(requests), "");
}

// Nobody lets it in, so that there need be no room for it.
TEST_F(ReplayRefusals, OfARequestLeaveAnUnlimitedCacheAsLargeAsTheOthersNeed) {
  std::ofstream(trace_, std::ios::app)
      << R"({"timestamp": 6, "input_length": 1099511627776, "output_length": 1, "hash_ids": []})"
      << '\n';
  const ProgramRun run = replay("--mode timed --json --bounds off");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.lines()[0]["finished_requests"], 2);
  EXPECT_EQ(run.lines()[0]["refused_requests"]["exceeds_context"], 1);
}

TEST_F(ReplayRefusals, AreOfTheFlagThatWasTyped) {
  std::ofstream huge(directory_.file("huge.jsonl"));
  for (int i = 0; i < 4'200; ++i) {
    huge << R"({"timestamp":0,"input_length":1048000,"output_length":1,"hash_ids":[]})" << '\n';
  }
  huge.close();
  const std::pair<std::string, std::string> cases[] = {
      {"--capacity-pages 1073741824", "--capacity-pages must be from 1 to 1073741823"},
      {"--capacity-pages 10 --ghost-rate 1e-9", "--ghost-rate must be from "},
      {"--capacity-pages 10 --ghost-rate 1e-300", "--ghost-rate must be from "},
      {"--capacity-pages 10 --ghost-rate 2", "--ghost-rate must be from "},
      {"--capacity-pages 536870912 --ghost-rate 0.00001", "--capacity-pages: "},
      {"--mode timed --page-tokens 4 --trace " + directory_.file("huge.jsonl"),
       "--capacity-pages: the trace needs "}};
  for (const auto& [flags, line] : cases) {
    const ProgramRun run = replay(flags);
    EXPECT_EQ(run.exit_code, 2) << flags;
    EXPECT_THAT(run.err, HasSubstr(": " + line)) << flags;
  }
}

TEST_F(ReplayRefusals, KeepTheTokenizerThatIsRead) {
  const std::string tokenizer = directory_.file("tokenizer.json");
  std::filesystem::copy_file(STEMMA_SOURCE_DIR "/models/scribe-3m/tokenizer.json", tokenizer);
  const auto before = std::filesystem::file_size(tokenizer);
  std::ofstream(directory_.file("prompts.jsonl"))
      << R"({"timestamp": 0, "input": "In the beginning", "output_length": 1})" << '\n';
  const ProgramRun run =
      run_stemma("replay --format prompts --capacity-pages 10 --trace " +
                 directory_.file("prompts.jsonl") + " --tokenizer " + directory_.path() +
                 " --per-request " + directory_.path() + "/./tokenizer.json");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("/./tokenizer.json is the file of --tokenizer"));
  EXPECT_EQ(std::filesystem::file_size(tokenizer), before);
}

}  // namespace
}  // namespace stemma
