// TraceReader: one request a line, in each format; a wrong line names file, line and field.
#include "replay/trace_reader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace stemma {
namespace {

class Trace : public testing::Test {
 protected:
  std::string write(std::string_view text) {
    const std::string path = testing::TempDir() + "stemma_trace_reader_test.jsonl";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
};

Result<TraceRequest> parse(std::string_view line, std::string_view format = "mooncake") {
  return parse_trace_line(line, *find_trace_format(format), "trace:9");
}

TEST(TraceLine, HoldsTimesLengthsAndHashes) {
  const Result<TraceRequest> request =
      parse(R"({"timestamp": 27, "input_length": 700, "output_length": 3, "hash_ids": [0, 46]})");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->timestamp_ms, 27);
  EXPECT_EQ(request->input_tokens, 700);
  EXPECT_EQ(request->output_tokens, 3);
  EXPECT_EQ(request->page_hashes, (std::vector<std::int64_t>{0, 46}));
}

TEST(TraceLine, OfQwenBailianCountsSecondsAndHasMoreFields) {
  const Result<TraceRequest> request =
      parse(R"({"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.5, "input_length": 17, )"
            R"("output_length": 132, "type": "text", "turn": 1, "hash_ids": [1089, 1090]})",
            "qwen-bailian");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->timestamp_ms, 61'500);
  EXPECT_EQ(request->page_hashes, (std::vector<std::int64_t>{1089, 1090}));
  EXPECT_EQ(find_trace_format("qwen-bailian")->page_tokens, 16);
}

std::string prompt_line(const std::string& input) {
  return R"({"timestamp": 1500, "input": ")" + input + R"(", "output": "abc"})";
}

TEST(TraceLine, OfPromptsIsCutIntoPagesOf64Characters) {
  const std::string page = std::string(62, 'a') + "\u00e4\u20ac";  // 64 characters, 67 bytes
  const auto request = parse(prompt_line(page + page + std::string(63, 'b')), "prompts");
  ASSERT_TRUE(request.ok()) << request.error().detail;
  EXPECT_EQ(request->timestamp_ms, 1.5);
  EXPECT_EQ(request->input_tokens, 2 * 64 + 63);
  EXPECT_EQ(request->output_tokens, 3);
  ASSERT_EQ(request->page_hashes.size(), 2u);
  EXPECT_NE(request->page_hashes[0], request->page_hashes[1]);  // equal text, another prefix
  EXPECT_EQ(parse(prompt_line(page + std::string(64, 'c')), "prompts")->page_hashes[0],
            request->page_hashes[0]);
  EXPECT_EQ(parse(prompt_line(page), "prompts")->page_hashes.size(), 1u);
  EXPECT_TRUE(parse(prompt_line(""), "prompts")->page_hashes.empty());
}

TEST(TraceLine, OfPromptsNeedsItsInput) {
  const auto request = parse(R"({"timestamp": 1, "output": "a"})", "prompts");
  ASSERT_FALSE(request.ok());
  EXPECT_NE(request.error().detail.find("trace:9: input"), std::string::npos);
}

TEST(TraceLine, NamesTheFieldThatIsWrong) {
  const struct {
    std::string_view line;
    std::string_view field;
  } cases[] = {
      {R"({"input_length": 1, "output_length": 1, "hash_ids": []})", "timestamp"},
      {R"({"timestamp": 1, "output_length": 1, "hash_ids": []})", "input_length"},
      {R"({"timestamp": 1, "input_length": -1, "output_length": 1, "hash_ids": []})",
       "input_length"},
      {R"({"timestamp": 1, "input_length": 1, "output_length": "x", "hash_ids": []})",
       "output_length"},
      {R"({"timestamp": 1, "input_length": 1, "output_length": 1})", "hash_ids"},
      {R"({"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [1, 2.5]})",
       "hash_ids[1]"},
  };
  for (const auto& c : cases) {
    const Result<TraceRequest> request = parse(c.line);
    ASSERT_FALSE(request.ok()) << c.line;
    EXPECT_NE(request.error().detail.find("trace:9: " + std::string(c.field)), std::string::npos)
        << request.error().detail;
  }
  EXPECT_FALSE(parse("{").ok());
  EXPECT_FALSE(parse("[]").ok());
}

TEST_F(Trace, ReadsToTheEndAndSkipsEmptyLines) {
  const std::string line =
      R"({"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [7]})";
  Result<TraceReader> reader = TraceReader::open(write(line + "\n\n" + line), "mooncake");
  ASSERT_TRUE(reader.ok());
  TraceRequest request;
  EXPECT_TRUE(*reader->next(request));
  EXPECT_TRUE(*reader->next(request));
  EXPECT_EQ(request.page_hashes.front(), 7);
  EXPECT_FALSE(*reader->next(request));
}

TEST_F(Trace, ALineWithoutEndIsRefusedInBoundedMemory) {
  Result<TraceReader> reader =
      TraceReader::open(write(std::string(kTraceLineBytesMax + 1, ' ')), "mooncake");
  TraceRequest request;
  const Result<bool> more = reader->next(request);
  ASSERT_FALSE(more.ok());
  EXPECT_NE(more.error().detail.find("longer than"), std::string::npos);
}

std::string line_of(int timestamp, std::string_view ids) {
  return R"({"timestamp": )" + std::to_string(timestamp) +
         R"(, "input_length": 1, "output_length": 1, "hash_ids": [)" + std::string(ids) + "]}\n";
}

TEST_F(Trace, TimeDoesNotGoBack) {
  auto reader = *TraceReader::open(write(line_of(5, "1") + line_of(4, "1")), "mooncake");
  TraceRequest request;
  EXPECT_TRUE(*reader.next(request));
  const Result<bool> more = reader.next(request);
  ASSERT_FALSE(more.ok());
  EXPECT_NE(more.error().detail.find(":2: timestamp: earlier"), std::string::npos);
}

TEST_F(Trace, AnIdHasOnePrefix) {
  //   1 ── 2 ── 3        then 3 behind 1: ids no longer say what the prefix is
  auto reader = *TraceReader::open(write(line_of(0, "1, 2, 3") + line_of(1, "1, 3")), "mooncake");
  TraceRequest request;
  EXPECT_TRUE(*reader.next(request));
  const Result<bool> more = reader.next(request);
  ASSERT_FALSE(more.ok());
  EXPECT_NE(more.error().detail.find(":2: hash_ids[1]: the id 3"), std::string::npos);
}

TEST_F(Trace, WrongLinesCanBeLeftOutAndAreCounted) {
  const std::string text = "{\n" + line_of(7, "1") + line_of(3, "1") +
                           std::string(kTraceLineBytesMax + 5, 'x') + "\n" + line_of(8, "1");
  auto reader = *TraceReader::open(write(text), "mooncake", /*skip_bad=*/true);
  TraceRequest request;
  EXPECT_TRUE(*reader.next(request));
  EXPECT_EQ(request.timestamp_ms, 7);
  EXPECT_TRUE(*reader.next(request));
  EXPECT_EQ(request.timestamp_ms, 8);
  EXPECT_FALSE(*reader.next(request));
  EXPECT_EQ(reader.skipped_lines(), 3);
}

TEST_F(Trace, AMissingFileAndAnUnknownFormatAreErrors) {
  EXPECT_FALSE(TraceReader::open("/nonexistent/trace", "mooncake").ok());
  const Result<TraceReader> reader = TraceReader::open(write(""), "csv");
  ASSERT_FALSE(reader.ok());
  EXPECT_NE(reader.error().detail.find("known: mooncake, qwen-bailian, prompts"),
            std::string::npos);
}

}  // namespace
}  // namespace stemma
