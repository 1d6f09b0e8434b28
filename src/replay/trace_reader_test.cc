// TraceReader: every request of a file, what must hold between them, and lines that are left out.
#include "replay/trace_reader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "replay/trace_fields.h"

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

TEST_F(Trace, AnIdOfTokensMayStandBehindAnyPrefix) {
  auto reader =
      *TraceReader::open(write(line_of(0, "1, 2, 2, 3") + line_of(1, "2, 3")), "qwen-bailian");
  TraceRequest request;
  EXPECT_TRUE(reader.next(request).ok());
  EXPECT_TRUE(reader.next(request).ok());
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
  EXPECT_EQ(reader.read_bytes(), static_cast<std::int64_t>(text.size()));
}

TEST_F(Trace, ALineThatIsLeftOutIsNotHeldAgainstOthers) {
  //   2 is known behind 1, so the second line is wrong: 6 behind 5 is not what it is believed for
  const std::string text =
      line_of(0, "1, 2") + line_of(1, "5, 6, 2") + line_of(2, "7, 6") + line_of(3, "7, 6");
  auto reader = *TraceReader::open(write(text), "mooncake", /*skip_bad=*/true);
  TraceRequest request;
  for (const int timestamp : {0, 2, 3}) {
    EXPECT_TRUE(*reader.next(request));
    EXPECT_EQ(request.timestamp_ms, timestamp);
  }
  EXPECT_FALSE(*reader.next(request));
  EXPECT_EQ(reader.skipped_lines(), 1);
}

TEST_F(Trace, AMissingFileAndAnUnknownFormatAreErrors) {
  EXPECT_FALSE(TraceReader::open("/nonexistent/trace", "mooncake").ok());
  const Result<TraceReader> reader = TraceReader::open(write(""), "csv");
  ASSERT_FALSE(reader.ok());
  EXPECT_NE(reader.error().detail.find("known: mooncake, qwen-bailian, block-hash, prompts"),
            std::string::npos);
}

}  // namespace
}  // namespace stemma
