// stemma generate --capture: a capture gives, with nothing evicted, the hits that the run had, and
// none of its text.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "cli/program.h"
#include "replay/trace_reader.h"

namespace stemma {
namespace {

constexpr int kPageTokens = 16;
const std::string kModel = std::string(STEMMA_SOURCE_DIR) + "/models/scribe-3m";

using Tokens = std::vector<int>;

Tokens tokens_of(int first, int count) {
  Tokens tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(first + i * 7 % 300);
  return tokens;
}

struct CapturedRun {
  std::string path;
  std::vector<nlohmann::json> answers;
  std::int64_t hit_pages = 0;  // as the engine counted them
};

// Answers the prompts one after the other.
CapturedRun run_and_capture(const std::vector<Tokens>& prompts) {
  const std::string file = testing::TempDir() + "stemma_capture_prompts.jsonl";
  std::ofstream lines(file);
  for (const Tokens& prompt : prompts) {
    lines << nlohmann::json({{"token_ids", prompt}, {"max_tokens", 20}}).dump() << '\n';
  }
  lines.close();
  CapturedRun captured;
  captured.path = testing::TempDir() + "stemma_capture.jsonl";
  const ProgramRun run = run_stemma("generate --model " + kModel + " --prompts " + file +
                                    " --json --concurrency 1 --ignore-eos --page-size " +
                                    std::to_string(kPageTokens) + " --capture " + captured.path);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  captured.answers = run.lines();
  captured.hit_pages =
      captured.answers.back()["summary"]["cached_tokens"].get<std::int64_t>() / kPageTokens;
  return captured;
}

// The pages of the capture that are found where every page that ever lay in the cache still does.
std::int64_t hits_with_nothing_evicted(const std::string& path) {
  TraceReader reader = *TraceReader::open(path, "capture");
  std::set<std::int64_t> cached;
  std::int64_t hits = 0;
  for (TraceRequest request; *reader.next(request);) {
    for (const std::int64_t page : request.page_hashes) hits += cached.contains(page) ? 1 : 0;
    cached.insert(request.page_hashes.begin(), request.page_hashes.end());
    cached.insert(request.output_page_hashes.begin(), request.output_page_hashes.end());
  }
  return hits;
}

TEST(Capture, HasTheHitsOfTheRun) {
  Tokens alike = tokens_of(100, 70);
  alike.back() = 9;
  const CapturedRun run = run_and_capture(
      {tokens_of(100, 70), alike, tokens_of(100, 64), tokens_of(101, 70), tokens_of(100, 70)});
  EXPECT_EQ(run.hit_pages, 4 + 3 + 4);  // 64 tokens ask for three pages: one token is computed
  EXPECT_EQ(hits_with_nothing_evicted(run.path), run.hit_pages);
}

TEST(Capture, HasTheHitsOfTurnsThatContinueAnOutput) {
  Tokens conversation = tokens_of(200, 40);
  const CapturedRun first = run_and_capture({conversation});
  Tokens next = conversation;
  for (const auto& token : first.answers[0]["token_ids"]) next.push_back(token.get<int>());
  next.insert(next.end(), {5, 6, 7, 8, 9, 10, 11, 12});
  const CapturedRun both = run_and_capture({conversation, next});
  EXPECT_EQ(both.hit_pages, 3);  // 59 of 40 + 20 tokens have keys and values
  EXPECT_EQ(hits_with_nothing_evicted(both.path), both.hit_pages);
  const ProgramRun replay = run_stemma("replay --format capture --json --trace " + both.path);
  ASSERT_EQ(replay.exit_code, 0) << replay.err;
  EXPECT_EQ(replay.lines()[0]["hit_pages"], both.hit_pages);
}

TEST(Capture, IsReplayedWithTheHitsOfTheRun) {
  const CapturedRun run =
      run_and_capture({tokens_of(100, 70), tokens_of(100, 90), tokens_of(150, 70)});
  const ProgramRun replay = run_stemma("replay --format capture --json --trace " + run.path);
  ASSERT_EQ(replay.exit_code, 0) << replay.err;
  EXPECT_EQ(replay.lines()[0]["requests"], 3);
  EXPECT_EQ(replay.lines()[0]["page_size"], kPageTokens);
  EXPECT_EQ(replay.lines()[0]["hit_pages"], run.hit_pages);
}

TEST(Capture, HoldsNoTextAndNoTokens) {
  const CapturedRun run = run_and_capture({tokens_of(100, 40)});
  std::ifstream file(run.path);
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(nlohmann::json::parse(line)["format"], "stemma-capture");
  std::getline(file, line);
  const auto request = nlohmann::json::parse(line);
  std::set<std::string> fields;
  for (const auto& [name, value] : request.items()) fields.insert(name);
  EXPECT_EQ(fields, (std::set<std::string>{"timestamp_ms", "namespace", "input_tokens",
                                           "output_tokens", "page_hashes", "output_page_hashes",
                                           "finish_reason", "priority"}));
  EXPECT_FALSE(std::getline(file, line));
}

TEST(Capture, OfTheSameRunTwiceHasNothingInCommon) {
  const CapturedRun run = run_and_capture({tokens_of(100, 40)});
  std::ifstream first(run.path);
  const std::string before(std::istreambuf_iterator<char>(first), {});
  run_and_capture({tokens_of(100, 40)});
  std::ifstream second(run.path);
  std::string line;
  std::getline(second, line);
  std::getline(second, line);
  const auto page = nlohmann::json::parse(line)["page_hashes"][0].get<std::string>();
  EXPECT_EQ(before.find(page), std::string::npos);
}

TEST(Capture, OfAnEarlierRunOutlivesWhatIsRefused) {
  const std::string path = testing::TempDir() + "stemma_capture_before.jsonl";
  std::ofstream(path) << "before";
  for (const char* const flags : {"--temperature -1", "--top-p 0", "--eviction foo",
                                  "--use-adapter nobody", "--max-tokens 99999", "--regex '('"}) {
    const ProgramRun run =
        run_stemma("generate --model " + kModel + " --prompt a --capture " + path + " " + flags);
    EXPECT_NE(run.exit_code, 0) << flags;
    std::ifstream file(path);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "before") << flags;
  }
}

TEST(Capture, ThatCannotBeWrittenIsRefusedBeforeAnythingIsComputed) {
  const ProgramRun run =
      run_stemma("generate --model " + kModel + " --prompt a --capture /nonexistent/capture");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_NE(run.err.find("--capture: cannot write /nonexistent/capture"), std::string::npos)
      << run.err;
}

}  // namespace
}  // namespace stemma
