// The flags that name traces: several files, a tokenizer, and what is refused.
#include "cli/trace_flags.h"

#include <gtest/gtest.h>

#include <fstream>

namespace stemma {
namespace {

const std::string kModel = std::string(STEMMA_SOURCE_DIR) + "/models/scribe-3m";

std::string write(const std::string& name, const std::string& text) {
  std::string path = testing::TempDir() + "stemma_trace_flags_" + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::string line_of(int timestamp) {
  return R"({"timestamp": )" + std::to_string(timestamp) +
         R"(, "input_length": 1, "output_length": 1, "hash_ids": [1]})" + "\n";
}

Result<TraceFlags> parse(std::vector<const char*> words) {
  CommandLine line({.name = "reader"});
  TraceFlags flags;
  add_trace_flags(line.flags(), flags);
  words.insert(words.begin(), "reader");
  const Result<bool> typed = line.parse(words);
  if (!typed.ok()) return typed.error();
  return flags;
}

TEST(TraceFlags, NameSeveralTraces) {
  EXPECT_EQ(parse({"--trace", "a,b", "--trace", "c"})->traces,
            (std::vector<std::string>{"a", "b", "c"}));
}

TEST(TraceFlags, WantATrace) {
  EXPECT_EQ(parse({"--format", "mooncake"}).error().detail, "--trace is required");
}

TEST(TraceFlags, SayHowTracesAreRead) {
  const TraceFlags flags = *parse({"--trace", "a", "--format", "block-hash", "--page-tokens", "32",
                                   "--tokenizer", "dir", "--reorder-requests", "5", "--skip-bad"});
  EXPECT_EQ(flags.format, "block-hash");
  EXPECT_EQ(flags.page_tokens, 32);
  EXPECT_EQ(flags.tokenizer, "dir");
  EXPECT_EQ(flags.reorder_requests, 5);
  EXPECT_TRUE(flags.skip_bad);
}

TEST(TraceSource, ReadsAllTracesAsOneAsOftenAsWanted) {
  TraceFlags flags;
  flags.traces = {write("one", line_of(1) + line_of(3)), write("two", line_of(2))};
  const TraceSource source = *TraceSource::open(flags);
  for (int reading = 0; reading < 2; ++reading) {
    TraceMerge merge = *source.read();
    std::vector<double> times;
    for (TraceRequest request; *merge.next(request);) times.push_back(request.timestamp_ms);
    EXPECT_EQ(times, (std::vector<double>{1, 2, 3}));
  }
}

TEST(TraceSource, CutsPromptsIntoTokens) {
  TraceFlags flags;
  flags.traces = {write("prompts", R"({"timestamp": 1, "input": "And it came to pass"})")};
  flags.format = "prompts";
  flags.tokenizer = kModel;
  flags.page_tokens = 2;
  const TraceSource source = *TraceSource::open(flags);
  TraceMerge merge = *source.read();
  TraceRequest request;
  ASSERT_TRUE(*merge.next(request));
  EXPECT_LT(request.input_tokens, 19);  // characters
  EXPECT_EQ(static_cast<std::int64_t>(request.page_hashes.size()), request.input_tokens / 2);
}

TEST(TraceSource, NamesWhatIsWrong) {
  const std::string trace = write("right", line_of(1));
  const struct {
    std::string format;
    std::string tokenizer;
    std::string error;
  } cases[] = {
      {"csv", "", "--format: unknown trace format 'csv'"},
      {"prompts", "/nonexistent", "/nonexistent/tokenizer.json"},
      {"mooncake", kModel, "--tokenizer: a trace of format mooncake holds no text"},
      {"block-hash", "", "--page-tokens: wanted for format block-hash"},
  };
  for (const auto& c : cases) {
    TraceFlags flags;
    flags.traces = {trace};
    flags.format = c.format;
    flags.tokenizer = c.tokenizer;
    const Result<TraceSource> source = TraceSource::open(flags);
    const std::string error = source.ok() ? source->read().error().detail : source.error().detail;
    EXPECT_NE(error.find(c.error), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace stemma
