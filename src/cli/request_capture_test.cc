// Requests of an engine, told on one thread, are in the file in the order in which they came.
#include "cli/request_capture.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/temp_directory.h"
#include "replay/trace_reader.h"

namespace stemma {
namespace {

class RequestCaptureTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kPageTokens = 4;

  static EndedRequest ended(std::int64_t id, std::int64_t prompt_tokens,
                            std::int64_t output_tokens) {
    EndedRequest request;
    request.request = RequestId(id);
    request.finish = FinishReason::kStop;
    request.prompt_tokens = prompt_tokens;
    request.tokens.assign(static_cast<std::size_t>(prompt_tokens + output_tokens), 7);
    return request;
  }
  std::vector<TraceRequest> written() const {
    std::vector<TraceRequest> requests;
    auto reader = TraceReader::open(path_, "capture");
    EXPECT_TRUE(reader.ok()) << to_string(reader.error());
    for (TraceRequest request; reader.ok() && *reader->next(request);) requests.push_back(request);
    return requests;
  }

  TempDirectory directory_;
  const std::string path_ = directory_.file("capture.jsonl");
  RequestCapture capture_{kPageTokens};
};

TEST_F(RequestCaptureTest, HasRequestsAsTheyCameAndTimesSinceTheFirst) {
  ASSERT_TRUE(capture_.open(path_).ok());
  capture_.came(RequestId(1), 2'000'000);
  capture_.came(RequestId(2), 2'000'500);
  capture_.ended(ended(2, 9, 4));
  capture_.ended(ended(1, 5, 1));
  ASSERT_TRUE(capture_.close().ok());
  const std::vector<TraceRequest> requests = written();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].timestamp_ms, 0);
  EXPECT_EQ(requests[0].input_tokens, 5);
  EXPECT_EQ(requests[1].timestamp_ms, 0.5);
  EXPECT_EQ(requests[1].page_hashes.size(), 2u);
  EXPECT_EQ(requests[1].output_page_hashes.size(), 1u);
  EXPECT_EQ(requests[0].page_hashes[0], requests[1].page_hashes[0]);
  EXPECT_EQ(capture_.left_out(), 0);
}

TEST_F(RequestCaptureTest, HasNothingThatCameBeforeItWasOpenNorOfWhatGoesOn) {
  capture_.came(RequestId(1), 0);
  ASSERT_TRUE(capture_.open(path_).ok());
  capture_.ended(ended(1, 5, 1));
  capture_.came(RequestId(2), 0);
  capture_.came(RequestId(3), 0);
  capture_.ended(ended(3, 6, 1));
  ASSERT_TRUE(capture_.close().ok());
  const std::vector<TraceRequest> requests = written();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].input_tokens, 6);
}

// It is there for who looks while the server goes on.
TEST_F(RequestCaptureTest, IsWrittenAsItGoesOn) {
  ASSERT_TRUE(capture_.open(path_).ok());
  capture_.came(RequestId(1), 0);
  capture_.ended(ended(1, 5, 1));
  const auto lines = [&] {
    std::ifstream file(path_);
    std::string line;
    int count = 0;
    while (std::getline(file, line)) ++count;
    return count;
  };
  while (lines() < 2) std::this_thread::yield();
}

TEST_F(RequestCaptureTest, AFileThatCannotBeWrittenCostsTheCapture) {
  EXPECT_EQ(RequestCapture(kPageTokens).open("/nonexistent/capture").error().code,
            ErrorCode::kNotFound);
  ASSERT_TRUE(capture_.open("/dev/full").ok());
  for (const int id : {1, 2}) {
    capture_.came(RequestId(id), 0);
    capture_.ended(ended(id, 5, 1));
  }
  const Status closed = capture_.close();
  EXPECT_EQ(closed.error().code, ErrorCode::kIo);
  EXPECT_NE(closed.error().detail.find("--capture: cannot write /dev/full"), std::string::npos);
}

}  // namespace
}  // namespace stemma
