// TraceReader: mooncake lines, one request each; a wrong line names file, line and field.
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

TEST(MooncakeLine, HoldsTimesLengthsAndHashes) {
  const Result<TraceRequest> request = parse_mooncake_line(
      R"({"timestamp": 27, "input_length": 700, "output_length": 3, "hash_ids": [0, 46]})", "t:1");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->timestamp_ms, 27);
  EXPECT_EQ(request->input_tokens, 700);
  EXPECT_EQ(request->output_tokens, 3);
  EXPECT_EQ(request->page_hashes, (std::vector<std::int64_t>{0, 46}));
}

TEST(MooncakeLine, NamesTheFieldThatIsWrong) {
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
    const Result<TraceRequest> request = parse_mooncake_line(c.line, "trace:9");
    ASSERT_FALSE(request.ok()) << c.line;
    EXPECT_NE(request.error().detail.find("trace:9: " + std::string(c.field)), std::string::npos)
        << request.error().detail;
  }
  EXPECT_FALSE(parse_mooncake_line("{", "trace:9").ok());
  EXPECT_FALSE(parse_mooncake_line("[]", "trace:9").ok());
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

TEST_F(Trace, AMissingFileAndAnUnknownFormatAreErrors) {
  EXPECT_FALSE(TraceReader::open("/nonexistent/trace", "mooncake").ok());
  const Result<TraceReader> reader = TraceReader::open(write(""), "csv");
  ASSERT_FALSE(reader.ok());
  EXPECT_NE(reader.error().detail.find("known: mooncake"), std::string::npos);
}

}  // namespace
}  // namespace stemma
