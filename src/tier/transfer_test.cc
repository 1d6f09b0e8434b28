// A job's layers are waited for one by one, whether what comes is right or not.
#include "tier/transfer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>
#include <thread>

namespace stemma {
namespace {

TEST(Transfer, ALayerThatHasComeIsRight) {
  Transfer job;
  job.arrive(2);
  EXPECT_TRUE(job.wait_layer(0));
  EXPECT_TRUE(job.wait_layer(1));
  EXPECT_TRUE(job.has_arrived(1));
  EXPECT_FALSE(job.has_arrived(2));
}

TEST(Transfer, OfASpoiltJobNoLayerIsRight) {
  Transfer job;
  job.arrive(1);
  job.spoil();
  job.arrive(2);
  EXPECT_FALSE(job.wait_layer(0));
  EXPECT_FALSE(job.wait_layer(1));
  job.clear();
  job.arrive(1);
  EXPECT_TRUE(job.wait_layer(0)) << "the next job in its place begins anew";
}

// Who reads a layer of a spoilt job, though nothing will come of it, reads no byte that is being
// written: here `page`, which the lane writes after it has found the first layer wrong.
TEST(Transfer, ALayerOfASpoiltJobIsWaitedForToo) {
  Transfer job;
  int page = 0;
  int seen = 0;
  std::binary_semaphore reads(0);
  job.spoil();
  job.arrive(1);
  {
    std::jthread reader([&] {
      EXPECT_FALSE(job.wait_layer(0));
      reads.release();
      EXPECT_FALSE(job.wait_layer(1));
      seen = page;
    });
    reads.acquire();
    page = 7;
    job.arrive(2);
  }
  EXPECT_EQ(seen, 7);
}

TEST(Transfer, CopiesThatAreQueuedAreWaitedForUntilTheLayerHasCome) {
  Transfer job;
  job.queue(2);
  job.wait_queued(1);
  EXPECT_FALSE(job.has_arrived(0));
  job.arrive(3);
  job.wait_queued(2);
}

// The next job in its place: of a copy that is not queued yet a device has nothing to wait for.
TEST(Transfer, WhatWasQueuedOfAnEarlierJobIsNotTakenForThisOnes) {
  Transfer job;
  job.arrive(1);
  job.clear();
  std::atomic<bool> queues = false;
  std::binary_semaphore waits(0);
  {
    std::jthread lane([&] {
      waits.acquire();
      queues = true;
      job.queue(1);
    });
    waits.release();
    job.wait_queued(0);
    EXPECT_TRUE(queues);
  }
}

}  // namespace
}  // namespace stemma
