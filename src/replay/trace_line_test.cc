// Lines of the formats in which a line is a request: what is read of them, and that a wrong one is
// refused with file, line and field.
#include <gtest/gtest.h>

#include <ostream>

#include "replay/trace_reader.h"

namespace stemma {
namespace {

Result<TraceRequest> parse(std::string_view line, TraceOptions options) {
  const auto parser = make_trace_parser(options);
  if (!parser.ok()) return parser.error();
  STEMMA_RETURN_IF_ERROR((*parser)->take(line, "trace:9"));
  TraceRequest request;
  EXPECT_TRUE((*parser)->try_next(request));
  return request;
}

Result<TraceRequest> parse(std::string_view line, std::string_view format = "mooncake") {
  TraceOptions options;
  options.format = *find_trace_format(format);
  if (format == "block-hash") options.page_tokens = 16;
  return parse(line, options);
}

TEST(TraceLine, HoldsTimesLengthsAndHashes) {
  const Result<TraceRequest> request =
      parse(R"({"timestamp": 27, "input_length": 700, "output_length": 3, "hash_ids": [0, 46]})");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->timestamp_ms, 27);
  EXPECT_EQ(request->input_tokens, 700);
  EXPECT_EQ(request->output_tokens, 3);
  EXPECT_EQ(request->page_hashes, (std::vector<std::int64_t>{0, 46}));
  EXPECT_TRUE(request->output_page_hashes.empty());
}

TEST(TraceLine, OfQwenBailianCountsSecondsAndHasMoreFields) {
  const Result<TraceRequest> request =
      parse(R"({"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.5, "input_length": 17, )"
            R"("output_length": 132, "type": "text", "turn": 1, "hash_ids": [1089, 1090]})",
            "qwen-bailian");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->timestamp_ms, 61'500);
  EXPECT_EQ(request->page_hashes.size(), 2u);
  EXPECT_EQ(find_trace_format("qwen-bailian")->page_tokens, 16);
}

std::string bailian_line(int seconds, const std::string& ids) {
  return R"({"timestamp": )" + std::to_string(seconds) +
         R"(, "input_length": 64, "output_length": 1, "hash_ids": [)" + ids + "]}";
}

TEST(TraceLine, OfQwenBailianNamesPagesByTheirTokensAndNotByTheirPrefix) {
  const auto first = *parse(bailian_line(0, "1, 2, 2, 3"), "qwen-bailian");
  const auto second = *parse(bailian_line(1, "1, 2, 2, 4"), "qwen-bailian");
  const auto third = *parse(bailian_line(2, "2, 2, 2, 4"), "qwen-bailian");
  EXPECT_NE(first.page_hashes[1], first.page_hashes[2]);  // equal tokens, another prefix
  for (std::size_t page = 0; page < 3; ++page) {
    EXPECT_EQ(first.page_hashes[page], second.page_hashes[page]);
    EXPECT_NE(first.page_hashes[page], third.page_hashes[page]);
  }
  EXPECT_NE(first.page_hashes[3], second.page_hashes[3]);
  EXPECT_NE(second.page_hashes[3], third.page_hashes[3]);
}

TEST(TraceLine, OfShortNamesHoldsIntegersOfAnySignAndTexts) {
  const auto request =
      parse(R"({"ts": 2.5, "il": 80, "ol": 7, "bh": [-3, 18446744073709551615, 5, "b1", "b2"]})",
            "block-hash");
  ASSERT_TRUE(request.ok()) << request.error().detail;
  EXPECT_EQ(request->timestamp_ms, 2500);
  EXPECT_EQ(request->input_tokens, 80);
  EXPECT_EQ(request->output_tokens, 7);
  ASSERT_EQ(request->page_hashes.size(), 5u);
  EXPECT_EQ(request->page_hashes[0], -3);
  EXPECT_EQ(request->page_hashes[1], -1);  // the same 64 bits
  EXPECT_EQ(request->page_hashes[2], 5);
  EXPECT_NE(request->page_hashes[3], request->page_hashes[4]);
  const auto again = parse(R"({"ts": 3, "il": 16, "ol": 1, "bh": ["b1"]})", "block-hash");
  EXPECT_EQ(again->page_hashes[0], request->page_hashes[3]);
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

TEST(TraceLine, OfPromptsIsCutIntoPagesOfAnotherSize) {
  TraceOptions options;
  options.format = *find_trace_format("prompts");
  options.page_tokens = 10;
  EXPECT_EQ(parse(prompt_line(std::string(35, 'a')), options)->page_hashes.size(), 3u);
}

TEST(TraceLine, MustHoldARequestToBeReadAlone) {
  const auto request =
      parse_trace_line(R"({"format": "stemma-capture", "version": 1, "page_size": 4})",
                       *find_trace_format("capture"), "trace:1");
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(request.error().detail, "trace:1: line: holds no request");
}

struct BadLine {
  std::string_view format;
  std::string_view line;
  std::string_view error;  // begins so, after "trace:9: "
};

std::ostream& operator<<(std::ostream& out, const BadLine& bad) {
  return out << bad.format << ": " << bad.line;
}

class BadTraceLine : public testing::TestWithParam<BadLine> {};

TEST_P(BadTraceLine, IsRefusedWithTheFieldThatIsWrong) {
  const Result<TraceRequest> request = parse(GetParam().line, GetParam().format);
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(request.error().detail.rfind("trace:9: " + std::string(GetParam().error), 0), 0u)
      << request.error().detail;
  EXPECT_EQ(request.error().detail.find('\n'), std::string::npos);
}

constexpr BadLine kBadHashIdLines[] = {
    {"mooncake", "{", "not valid JSON at byte 2"},
    {"mooncake", R"({"timestamp": 1, "input_length": 1, "output_len)", "not valid JSON at byte 48"},
    {"mooncake", "[]", "must be a JSON object"},
    {"mooncake", R"({"timestamp": 1, "timestamp": 2})", "key 'timestamp' appears twice"},
    {"mooncake", R"({"input_length": 1, "output_length": 1, "hash_ids": []})",
     "timestamp: a number is wanted"},
    {"mooncake", R"({"timestamp": "1", "input_length": 1, "output_length": 1, "hash_ids": []})",
     "timestamp: a number is wanted"},
    {"mooncake", R"({"timestamp": -1, "input_length": 1, "output_length": 1, "hash_ids": []})",
     "timestamp: must not be negative"},
    {"mooncake", R"({"timestamp": 1e300, "input_length": 1, "output_length": 1, "hash_ids": []})",
     "timestamp: lies too far ahead"},
    {"mooncake", R"({"timestamp": 2e16, "input_length": 1, "output_length": 1, "hash_ids": []})",
     "timestamp: lies too far ahead"},  // 64 bits do not hold it in microseconds
    {"block-hash", R"({"ts": 1e13, "il": 1, "ol": 1, "bh": []})",
     "ts: lies too far ahead"},  // seconds
    {"mooncake", R"({"timestamp": 1, "output_length": 1, "hash_ids": []})",
     "input_length: missing"},
    {"mooncake", R"({"timestamp": 1, "input_length": -1, "output_length": 1, "hash_ids": []})",
     "input_length: must be an integer from 0"},
    {"mooncake", R"({"timestamp": 1, "input_length": 1, "output_length": "x", "hash_ids": []})",
     "output_length: must be an integer from 0"},
    {"mooncake", R"({"timestamp": 1, "input_length": 1, "output_length": 1})",
     "hash_ids: an array of integers is wanted"},
    {"mooncake", R"({"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": 7})",
     "hash_ids: an array of integers is wanted"},
    {"mooncake", R"({"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [1, 2.5]})",
     "hash_ids[1]: not an integer"},
    {"mooncake", R"({"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": ["a"]})",
     "hash_ids[0]: not an integer"},
    {"qwen-bailian",
     R"({"timestamp": null, "input_length": 1, "output_length": 1, "hash_ids": []})",
     "timestamp: a number is wanted"},
    {"qwen-bailian", R"({"timestamp": 1, "input_length": 1.5, "output_length": 1, "hash_ids": []})",
     "input_length: must be an integer from 0"},
};
INSTANTIATE_TEST_SUITE_P(HashIds, BadTraceLine, testing::ValuesIn(kBadHashIdLines));

constexpr BadLine kBadShortNameLines[] = {
    {"block-hash", R"({"il": 1, "ol": 1, "bh": []})", "ts: a number is wanted"},
    {"block-hash", R"({"ts": -0.5, "il": 1, "ol": 1, "bh": []})", "ts: must not be negative"},
    {"block-hash", R"({"ts": 1, "ol": 1, "bh": []})", "il: missing"},
    {"block-hash", R"({"ts": 1, "il": 1, "ol": -4, "bh": []})", "ol: must be an integer from 0"},
    {"block-hash", R"({"ts": 1, "il": 1, "ol": 4})", "bh: an array of hashes is wanted"},
    {"block-hash", R"({"ts": 1, "il": 1, "ol": 4, "bh": [1, null]})",
     "bh[1]: neither an integer nor a text"},
    {"block-hash", R"({"ts": 1, "il": 1, "ol": 4, "bh": [0.5]})",
     "bh[0]: neither an integer nor a text"},
};
INSTANTIATE_TEST_SUITE_P(ShortNames, BadTraceLine, testing::ValuesIn(kBadShortNameLines));

constexpr BadLine kBadPromptLines[] = {
    {"prompts", R"({"input": "a"})", "timestamp: a number is wanted"},
    {"prompts", R"({"timestamp": 1, "output": "a"})", "input: missing"},
    {"prompts", R"({"timestamp": 1, "input": ["a"]})", "input: must be a string"},
    {"prompts", R"({"timestamp": 1, "input": "a", "output": 5})", "output: must be a string"},
};
INSTANTIATE_TEST_SUITE_P(Prompts, BadTraceLine, testing::ValuesIn(kBadPromptLines));

struct BadOptions {
  std::string_view format;
  std::int64_t page_tokens;
  std::string_view error;
};

TEST(TraceOptions, SayWhatTheFormatLeavesOpenAndNothingElse) {
  const BadOptions cases[] = {
      {"block-hash", 0, "--page-tokens: wanted for format block-hash"},
      {"capture", 16, "--page-tokens: a trace of format capture says it itself"},
      {"kv-events", 16, "--page-tokens: a trace of format kv-events says it itself"},
      {"mooncake", -1, "--page-tokens must be from 1 to 1048576 (got -1)"},
  };
  for (const BadOptions& c : cases) {
    TraceOptions options;
    options.format = *find_trace_format(c.format);
    options.page_tokens = c.page_tokens;
    const auto parser = make_trace_parser(options);
    ASSERT_FALSE(parser.ok()) << c.format;
    EXPECT_EQ(parser.error().detail.rfind(c.error, 0), 0u) << parser.error().detail;
  }
}

TEST(TraceOptions, ReorderAtLeastOneRequest) {
  TraceOptions options;
  options.format = *find_trace_format("mooncake");
  options.reorder_requests = 0;
  EXPECT_EQ(make_trace_parser(options).error().detail,
            "--reorder-requests must be at least 1 (got 0)");
}

}  // namespace
}  // namespace stemma
