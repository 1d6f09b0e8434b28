// TraceMerge: several files as one trace in the order of time.
#include "replay/trace_merge.h"

#include <gtest/gtest.h>

#include <fstream>

#include "replay/shared_traces.h"

namespace stemma {
namespace {

std::string line_of(int timestamp, int id) {
  return R"({"timestamp": )" + std::to_string(timestamp) +
         R"(, "input_length": 1, "output_length": 1, "hash_ids": [)" + std::to_string(id) + "]}\n";
}

class Merge : public testing::Test {
 protected:
  Merge() { options_.format = *find_trace_format("mooncake"); }

  std::string write(const std::string& text) {
    const std::string path =
        testing::TempDir() + "stemma_trace_merge_test_" + std::to_string(paths_.size()) + ".jsonl";
    std::ofstream(path, std::ios::binary) << text;
    paths_.push_back(path);
    return path;
  }

  std::vector<std::int64_t> read_ids() {
    Result<TraceMerge> merge = TraceMerge::open(paths_, options_);
    EXPECT_TRUE(merge.ok());
    std::vector<std::int64_t> ids;
    for (TraceRequest request; *merge->next(request);) ids.push_back(request.page_hashes[0]);
    return ids;
  }

  TraceOptions options_;
  std::vector<std::string> paths_;
};

TEST_F(Merge, GivesTheRequestsOfAllFilesInTheOrderOfTime) {
  write(line_of(1, 10) + line_of(4, 11) + line_of(9, 12));
  write(line_of(2, 20));
  write("");
  write(line_of(3, 30) + line_of(5, 31));
  EXPECT_EQ(read_ids(), (std::vector<std::int64_t>{10, 20, 30, 11, 31, 12}));
}

TEST_F(Merge, GivesRequestsOfOneTimeInTheOrderOfTheFiles) {
  write(line_of(7, 10) + line_of(7, 11));
  write(line_of(7, 20));
  EXPECT_EQ(read_ids(), (std::vector<std::int64_t>{10, 11, 20}));
}

TEST_F(Merge, NamesTheFileWhoseTimeGoesBack) {
  write(line_of(1, 10));
  const std::string wrong = write(line_of(5, 20) + line_of(4, 21));
  auto merge = *TraceMerge::open(paths_, options_);
  TraceRequest request;
  EXPECT_TRUE(*merge.next(request));
  const Result<bool> more = merge.next(request);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().detail.rfind(wrong + ":2: timestamp: earlier", 0), 0u)
      << more.error().detail;
}

TEST_F(Merge, PutsAFileInOrderThatIsALittleOutOfIt) {
  options_.reorder_requests = 2;
  write(line_of(3, 10) + line_of(1, 11) + line_of(5, 12) + line_of(4, 13));
  write(line_of(2, 20));
  EXPECT_EQ(read_ids(), (std::vector<std::int64_t>{11, 20, 10, 13, 12}));
}

TEST_F(Merge, PutsAWholeFileInOrderWhereAnyNumberMayBeOutOfIt) {
  options_.reorder_requests = INT64_MAX;
  write(line_of(3, 10) + line_of(2, 11) + line_of(1, 12));
  EXPECT_EQ(read_ids(), (std::vector<std::int64_t>{12, 11, 10}));
}

TEST_F(Merge, NamesTheRequestThatIsTooFarOutOfOrder) {
  options_.reorder_requests = 2;
  const std::string wrong = write(line_of(3, 10) + line_of(4, 11) + line_of(1, 12));
  auto merge = *TraceMerge::open(paths_, options_);
  TraceRequest request;
  EXPECT_TRUE(*merge.next(request));
  const Result<bool> more = merge.next(request);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().detail.rfind(wrong + ":3: timestamp: earlier", 0), 0u)
      << more.error().detail;
}

TEST_F(Merge, LeavesRequestsOutThatAreTooFarOutOfOrderWhenAsked) {
  options_.reorder_requests = 2;
  options_.skip_bad = true;
  write(line_of(3, 10) + line_of(4, 11) + line_of(1, 12) + line_of(5, 13));
  EXPECT_EQ(read_ids(), (std::vector<std::int64_t>{10, 11, 13}));
}

TEST_F(Merge, CountsTheLinesLeftOutInAllFiles) {
  options_.skip_bad = true;
  write("{\n" + line_of(1, 10));
  write(line_of(2, 20) + "{\n{\n");
  auto merge = *TraceMerge::open(paths_, options_);
  TraceRequest request;
  while (*merge.next(request)) {
  }
  EXPECT_EQ(merge.skipped_lines(), 3);
}

TEST_F(Merge, KnowsTheTokensOfAPage) {
  write(line_of(1, 10));
  auto merge = *TraceMerge::open(paths_, options_);
  EXPECT_EQ(merge.page_tokens(), 512);
}

TEST_F(Merge, WantsFilesThatAreThere) {
  EXPECT_FALSE(TraceMerge::open({}, options_).ok());
  write(line_of(1, 10));
  paths_.push_back("/nonexistent/trace");
  const auto merge = TraceMerge::open(paths_, options_);
  ASSERT_FALSE(merge.ok());
  EXPECT_EQ(merge.error().detail, "cannot open trace /nonexistent/trace");
}

std::string capture_of(int page_size) {
  return R"({"format": "stemma-capture", "version": 1, "page_size": )" + std::to_string(page_size) +
         "}\n"
         R"({"timestamp_ms": 0, "namespace": "n", "input_tokens": 1, "output_tokens": 1, )"
         R"("page_hashes": [], "output_page_hashes": [], "finish_reason": "stop", "priority": 0})";
}

TEST_F(Merge, RefusesFilesOfOtherPages) {
  options_.format = *find_trace_format("capture");
  write(capture_of(16));
  const std::string other = write(capture_of(32));
  const auto merge = TraceMerge::open(paths_, options_);
  ASSERT_FALSE(merge.ok());
  EXPECT_EQ(merge.error().detail, other + ":2: page_size: 32, and in another file 16");
}

// Each agent's run is a file.
TEST_F(Merge, OfAgentsRunsHoldsThePagesThatAreKnown) {
  const TempDirectory folder;
  const std::vector<std::string> paths = unpack_agent_prompts(STEMMA_SOURCE_DIR, folder);
  if (paths.empty()) GTEST_SKIP() << "no agents' prompts in ../shared";
  auto merge = *TraceMerge::open(paths, agent_prompts_options());
  std::int64_t requests = 0;
  std::size_t pages = 0;
  double latest_ms = 0;
  for (TraceRequest request; *merge.next(request); ++requests) {
    EXPECT_GE(request.timestamp_ms, latest_ms);
    latest_ms = request.timestamp_ms;
    pages += request.page_hashes.size();
  }
  EXPECT_EQ(paths.size(), 70u);
  EXPECT_EQ(requests, 1'619);
  EXPECT_EQ(pages, 247'466u);
}

}  // namespace
}  // namespace stemma
