// A capture of `stemma generate`, replayed in its own time, finds what the run found, request by
// request: outputs that later prompts go on from, evictions where there is little room, and all.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "cli/program.h"

namespace stemma {
namespace {

using Tokens = std::vector<int>;

constexpr const char* kModel = STEMMA_SOURCE_DIR "/models/scribe-3m";

Tokens text(int first, int count) {
  Tokens tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(first + i * 7 % 300);
  return tokens;
}

// Answers one after the other; the tokens found for each.
std::vector<std::int64_t> run_and_capture(const std::vector<Tokens>& prompts,
                                          const std::string& capture, int pages) {
  const std::string file = testing::TempDir() + "stemma_replayed_prompts.jsonl";
  std::ofstream lines(file);
  for (const Tokens& prompt : prompts) {
    lines << nlohmann::json({{"token_ids", prompt}, {"max_tokens", 20}}).dump() << '\n';
  }
  lines.close();
  constexpr int kPageBytes = 16 * 2 * 5 * 2 * 32 * 2;  // tokens, K and V, layers, heads, dim, bf16
  const ProgramRun run =
      run_stemma(std::string("generate --model ") + kModel + " --prompts " + file +
                 " --json --concurrency 1 --ignore-eos --page-size 16 --context-tokens 160" +
                 " --kv-bytes " + std::to_string(pages * kPageBytes) + " --capture " + capture);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  std::vector<std::int64_t> found;
  for (const auto& line : run.lines()) {
    if (line.contains("cached_tokens")) found.push_back(line["cached_tokens"]);
  }
  return found;
}

std::vector<std::int64_t> replay(const std::string& capture, int pages) {
  const std::string requests = testing::TempDir() + "stemma_replayed_requests.jsonl";
  const ProgramRun run = run_stemma(
      "replay --mode timed --timing scribe-3m-cpu --requests-max 1 --format capture --trace " +
      capture + " --capacity-pages " + std::to_string(pages) + " --per-request " + requests);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  ProgramRun written;
  std::ifstream file(requests);
  written.out.assign(std::istreambuf_iterator<char>(file), {});
  std::vector<std::int64_t> found;
  for (const auto& line : written.lines()) found.push_back(line["hit_tokens"]["device"]);
  return found;
}

TEST(ReplayCapture, FindsWhatTheRunFound) {
  Tokens longer = text(100, 70);
  for (const int token : text(500, 30)) longer.push_back(token);
  const std::vector<Tokens> prompts = {text(100, 70), longer,        text(101, 64), text(101, 64),
                                       text(102, 90), text(100, 70), longer,        text(103, 90),
                                       longer,        text(102, 90)};
  const std::string capture = testing::TempDir() + "stemma_replayed_capture.jsonl";
  for (const int pages : {10, 14, 20, 200}) {
    const auto found = run_and_capture(prompts, capture, pages);
    ASSERT_EQ(found.size(), prompts.size());
    EXPECT_EQ(replay(capture, pages), found) << pages << " pages";
    EXPECT_EQ(found[1], 64) << "the prompt it continues, as far as pages are full";
  }
}

}  // namespace
}  // namespace stemma
