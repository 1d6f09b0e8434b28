// CudaGraphs: which steps share a graph, that the third one is replayed, and that a failure while
// something is recorded leaves the stream as it was.
#include "cuda/cuda_graphs.h"
#include "device/cuda_fixture.h"

namespace stemma {
namespace {

class CudaGraphsTest : public CudaFixture {};

TEST_F(CudaGraphsTest, BucketsGrowByTwoAndThenByEight) {
  const CudaGraphs graphs(512);
  const std::int64_t expected[][2] = {{1, 1},  {2, 2},   {3, 4},     {5, 8},     {8, 8},
                                      {9, 16}, {17, 24}, {200, 200}, {249, 256}, {256, 256}};
  for (const auto& [rows, bucket] : expected) EXPECT_EQ(graphs.bucket_of(rows), bucket) << rows;
  EXPECT_EQ(graphs.bucket_of(257), 0);
  EXPECT_EQ(graphs.bucket_of(0), 0);
}

TEST_F(CudaGraphsTest, TheLargestBucketIsTheLargestStep) {
  const CudaGraphs graphs(11);
  EXPECT_EQ(graphs.bucket_of(8), 8);
  EXPECT_EQ(graphs.bucket_of(9), 11);
  EXPECT_EQ(graphs.bucket_of(12), 0);
  EXPECT_EQ(CudaGraphs(0).bucket_of(1), 0);
}

TEST_F(CudaGraphsTest, AStepIsQueuedThenRecordedThenReplayed) {
  const CudaMemory from = upload(std::vector<std::int32_t>{1});
  const CudaMemory to = upload(std::vector<std::int32_t>(5, 0));
  CudaGraphs graphs(4);
  int asked = 0;
  for (std::int32_t round = 0; round < 5; ++round) {
    const Status run = graphs.run(stream(), 4, [&] {
      ++asked;
      return stream().copy(to.bytes(), from.bytes(), sizeof(std::int32_t));
    });
    ASSERT_TRUE(run.ok());
    ASSERT_TRUE(stream().copy(to.bytes() + sizeof(std::int32_t), to.bytes(), 4).ok());
    EXPECT_EQ(download<std::int32_t>(to.bytes(), 2), (std::vector<std::int32_t>{1, 1}));
    ASSERT_TRUE(stream().fill(to.bytes(), 0, to.size_bytes()).ok());
  }
  EXPECT_EQ(asked, 2);
  graphs.clear();
  ASSERT_TRUE(graphs.run(stream(), 4, [&] { return ++asked, Status(); }).ok());
  EXPECT_EQ(asked, 3);
}

TEST_F(CudaGraphsTest, WhatFailsWhileItIsRecordedIsRecordedAgain) {
  CudaGraphs graphs(1);
  int asked = 0;
  const auto step = [&]() -> Status {
    if (++asked == 2) return Error{ErrorCode::kInternal, "not this time"};
    return {};
  };
  EXPECT_TRUE(graphs.run(stream(), 1, step).ok());
  EXPECT_EQ(graphs.run(stream(), 1, step).error().detail, "not this time");
  EXPECT_TRUE(stream().synchronize().ok());
  EXPECT_TRUE(graphs.run(stream(), 1, step).ok());
  EXPECT_TRUE(graphs.run(stream(), 1, step).ok());
  EXPECT_EQ(asked, 3);
}

#ifdef STEMMA_SIMT
TEST_F(CudaGraphsTest, AStepWithoutMemoryForItsGraphIsQueuedAsItIs) {
  const CudaMemory counted = upload(std::vector<std::int32_t>(1, 0));
  CudaGraphs graphs(2);
  int asked = 0;
  const auto run = [&](std::int64_t bucket) {
    const Status ran = graphs.run(stream(), bucket, [&] {
      ++asked;
      return stream().fill(counted.bytes(), static_cast<std::uint8_t>(bucket), 4);
    });
    ASSERT_TRUE(ran.ok()) << ran.error().detail;
    ASSERT_EQ(download<std::int32_t>(counted.bytes(), 1)[0], 0x01010101 * bucket);
  };
  for (int round = 0; round < 3; ++round) run(1);
  EXPECT_EQ(asked, 2);
  run(2);
  machine().fail_allocations(1);
  asked = 0;
  run(2);
  EXPECT_EQ(asked, 2) << "recorded, and queued";
  run(2);
  EXPECT_EQ(asked, 3) << "nobody tries in every step";
  run(1);
  EXPECT_EQ(asked, 3) << "the graphs that there are remain";
  graphs.clear();
  for (int round = 0; round < 3; ++round) run(2);
  EXPECT_EQ(asked, 5);
}
#endif

}  // namespace
}  // namespace stemma
