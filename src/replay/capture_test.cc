// Captures: what is written is read back, gives the same hits, and says nothing of the text.
#include <gtest/gtest.h>

#include <fstream>
#include <ostream>
#include <set>
#include <sstream>

#include "replay/capture_parser.h"
#include "replay/capture_writer.h"
#include "replay/trace_reader.h"

namespace stemma {
namespace {

constexpr std::int64_t kPageSize = 4;
constexpr NamespaceDigest kOne = {{1}};
constexpr NamespaceDigest kOther = {{2}};

CaptureSalt salt_of(std::uint8_t byte) {
  CaptureSalt salt;
  salt.fill(std::byte{byte});
  return salt;
}

std::vector<TokenId> tokens_from(TokenId first, int count) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

class Capture : public testing::Test {
 protected:
  std::string path_ = testing::TempDir() + "stemma_capture_test.jsonl";

  void begin(std::uint8_t salt = 1) {
    writer_.emplace(*CaptureWriter::create(path_, kPageSize, salt_of(salt)));
  }

  void write(const std::vector<TokenId>& prompt, const std::vector<TokenId>& output,
             const NamespaceDigest& digest = kOne,
             const std::optional<SharedPrefix>& shared = std::nullopt) {
    std::vector<TokenId> tokens = prompt;
    tokens.insert(tokens.end(), output.begin(), output.end());
    const Status written = writer_->write({.timestamp_ms = time_ms_++,
                                           .namespace_digest = digest,
                                           .tokens = tokens,
                                           .prompt_tokens = std::ssize(prompt),
                                           .finish_reason = "length",
                                           .priority = -2,
                                           .shared_prefix = shared});
    ASSERT_TRUE(written.ok()) << written.error().detail;
  }

  std::vector<TraceRequest> read() {
    EXPECT_TRUE(writer_->close().ok());
    TraceReader reader = *TraceReader::open(path_, "capture");
    std::vector<TraceRequest> requests;
    for (TraceRequest request; *reader.next(request);) requests.push_back(request);
    EXPECT_EQ(reader.page_tokens(), kPageSize);
    return requests;
  }

  std::optional<CaptureWriter> writer_;
  double time_ms_ = 0;
};

TEST_F(Capture, HoldsTimesAndLengths) {
  begin();
  time_ms_ = 2.5;
  write(tokens_from(1, 9), tokens_from(50, 3));
  const auto requests = read();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].timestamp_ms, 2.5);
  EXPECT_EQ(requests[0].input_tokens, 9);
  EXPECT_EQ(requests[0].output_tokens, 3);
}

TEST_F(Capture, LooksUpAllPagesButOneThatHoldsTheLastTokenOfThePrompt) {
  begin();
  write(tokens_from(1, 8), tokens_from(50, 1));
  write(tokens_from(1, 9), tokens_from(50, 1));
  const auto requests = read();
  EXPECT_EQ(requests[0].page_hashes.size(), 1u);
  EXPECT_EQ(requests[1].page_hashes.size(), 2u);
}

// 6 of the prompt and 7 of the output make 13 tokens, of which 12 are computed: 3 pages.
TEST_F(Capture, HoldsThePagesThatTheOutputFilled) {
  begin();
  write(tokens_from(1, 6), tokens_from(50, 7));
  const auto requests = read();
  EXPECT_EQ(requests[0].page_hashes.size(), 1u);
  EXPECT_EQ(requests[0].output_page_hashes.size(), 2u);
}

TEST_F(Capture, NamesAPageByItsPrefix) {
  begin();
  write(tokens_from(1, 9), {});
  std::vector<TokenId> other = tokens_from(1, 9);
  other[0] = 99;
  write(other, {});
  write(tokens_from(1, 7), {});
  const auto requests = read();
  EXPECT_NE(requests[0].page_hashes[1], requests[1].page_hashes[1]);  // equal tokens
  EXPECT_EQ(requests[0].page_hashes[0], requests[2].page_hashes[0]);
}

TEST_F(Capture, OfTwoNamespacesSharesNothing) {
  begin();
  write(tokens_from(1, 9), {}, kOne);
  write(tokens_from(1, 9), {}, kOther);
  const auto requests = read();
  EXPECT_NE(requests[0].page_hashes, requests[1].page_hashes);
}

// What goes on from it is of each alone.
TEST_F(Capture, OfTwoNamespacesThatGoOnFromAPrefixSharesThat) {
  const SharedPrefix shared = {.digest = {{9}}, .tokens = 2 * kPageSize};
  begin();
  for (const NamespaceDigest& digest : {kOne, kOther}) {
    write(tokens_from(1, 13), {}, digest, shared);
  }
  write(tokens_from(1, 5), {}, shared.digest);
  const auto requests = read();
  const auto& one = requests[0].page_hashes;
  const auto& other = requests[1].page_hashes;
  ASSERT_EQ(one.size(), 3u);
  EXPECT_EQ(one[0], other[0]);
  EXPECT_EQ(one[1], other[1]);
  EXPECT_NE(one[2], other[2]);
  EXPECT_EQ(requests[2].page_hashes[0], one[0]) << "the shared namespace's own";
}

TEST_F(Capture, KnowsPriorities) {
  begin();
  write(tokens_from(1, 5), {});
  EXPECT_EQ(read()[0].priority, -2);
}

TEST_F(Capture, OfAnotherSaltHasOtherNames) {
  begin(1);
  write(tokens_from(1, 9), {});
  const auto left = read();
  begin(2);
  write(tokens_from(1, 9), {});
  EXPECT_NE(read()[0].page_hashes, left[0].page_hashes);
}

TEST_F(Capture, NamesNamespacesBySaltToo) {
  const std::string name = CaptureHashes(salt_of(1), kPageSize).name_namespace(kOne);
  EXPECT_EQ(name.size(), 12u);
  EXPECT_NE(name, CaptureHashes(salt_of(2), kPageSize).name_namespace(kOne));
  EXPECT_NE(name, CaptureHashes(salt_of(1), kPageSize).name_namespace(kOther));
}

TEST_F(Capture, OfTheSameRequestsAndSaltIsTheSameFile) {
  std::string files[2];
  for (std::string& file : files) {
    begin();
    time_ms_ = 0;
    write(tokens_from(1, 9), tokens_from(70, 5));
    read();
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    file = text.str();
  }
  EXPECT_EQ(files[0], files[1]);
}

TEST(CaptureSalt, IsAnotherOneEachTime) {
  EXPECT_NE(*make_capture_salt(), *make_capture_salt());
}

TEST(CaptureWriter, SaysThatAFileCannotBeWritten) {
  const auto writer = CaptureWriter::create("/nonexistent/capture", kPageSize, salt_of(1));
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().detail, "--capture: cannot write /nonexistent/capture");
}

constexpr std::string_view kHeader =
    R"({"format": "stemma-capture", "version": 1, "page_size": 4})";

struct BadCapture {
  bool behind_header;
  std::string_view line;
  std::string_view error;  // begins so, after "capture:2: "
};

std::ostream& operator<<(std::ostream& out, const BadCapture& bad) {
  return out << bad.line;
}

class BadCaptureLine : public testing::TestWithParam<BadCapture> {};

TEST_P(BadCaptureLine, IsRefusedWithTheFieldThatIsWrong) {
  CaptureParser parser;
  if (GetParam().behind_header) {
    ASSERT_TRUE(parser.take(kHeader, "capture:1").ok());
  }
  const Status taken = parser.take(GetParam().line, "capture:2");
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().detail.rfind("capture:2: " + std::string(GetParam().error), 0), 0u)
      << taken.error().detail;
}

constexpr BadCapture kBadHeaders[] = {
    {false, R"({"version": 1, "page_size": 4})", "format: a capture's first line says"},
    {false, R"({"format": "other", "version": 1, "page_size": 4})",
     "format: a capture's first line says"},
    {false, R"({"format": "stemma-capture", "page_size": 4})", "version: missing"},
    {false, R"({"format": "stemma-capture", "version": 2, "page_size": 4})",
     "version: 2 is not known, only 1"},
    {false, R"({"format": "stemma-capture", "version": 1, "page_size": 0})",
     "page_size: must be an integer from 1"},
};
INSTANTIATE_TEST_SUITE_P(Headers, BadCaptureLine, testing::ValuesIn(kBadHeaders));

constexpr BadCapture kBadRequests[] = {
    {true, R"({"timestamp_ms": "now"})", "timestamp_ms: a number is wanted"},
    {true, R"({"timestamp_ms": 1, "output_tokens": 1})", "input_tokens: missing"},
    {true, R"({"timestamp_ms": 1, "input_tokens": 1, "output_tokens": -1})",
     "output_tokens: must be an integer from 0"},
    {true, R"({"timestamp_ms": 1, "input_tokens": 1, "output_tokens": 1})", "namespace: missing"},
    {true, R"({"timestamp_ms": 1, "input_tokens": 1, "output_tokens": 1, "namespace": "n"})",
     "finish_reason: missing"},
    {true,
     R"({"timestamp_ms": 1, "input_tokens": 1, "output_tokens": 1, "namespace": "n", )"
     R"("finish_reason": "stop", "priority": 0.5})",
     "priority: must be an integer from"},
    {true,
     R"({"timestamp_ms": 1, "input_tokens": 1, "output_tokens": 1, "namespace": "n", )"
     R"("finish_reason": "tired", "priority": 0})",
     "finish_reason: stop, length, cancelled or failed is wanted"},
    {true,
     R"({"timestamp_ms": 1, "input_tokens": 1, "output_tokens": 1, "namespace": "n", )"
     R"("finish_reason": "stop", "priority": 0})",
     "page_hashes: an array of hashes is wanted"},
    {true,
     R"({"timestamp_ms": 1, "input_tokens": 1, "output_tokens": 1, "namespace": "n", )"
     R"("finish_reason": "stop", "priority": 0, )"
     R"("page_hashes": ["0123456789abcdef", "0123456789abcdeg"]})",
     "page_hashes[1]: 16 hexadecimal digits are wanted"},
    {true,
     R"({"timestamp_ms": 1, "input_tokens": 1, "output_tokens": 1, "namespace": "n", )"
     R"("finish_reason": "stop", "priority": 0, "page_hashes": [], "output_page_hashes": [7]})",
     "output_page_hashes[0]: 16 hexadecimal digits are wanted"},
};
INSTANTIATE_TEST_SUITE_P(Requests, BadCaptureLine, testing::ValuesIn(kBadRequests));

}  // namespace
}  // namespace stemma
