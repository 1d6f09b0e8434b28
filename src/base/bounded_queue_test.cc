// Covers BoundedQueue: order, the bound, closing, and many producers with many consumers.
#include "base/bounded_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace stemma {
namespace {

TEST(BoundedQueue, KeepsOrderAndSaysWhenItIsFull) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.try_push(1));
  EXPECT_TRUE(queue.try_push(2));
  EXPECT_FALSE(queue.try_push(3));
  EXPECT_EQ(queue.try_pop(), 1);
  EXPECT_TRUE(queue.try_push(4));
  EXPECT_EQ(queue.try_pop(), 2);
  EXPECT_EQ(queue.try_pop(), 4);
  EXPECT_EQ(queue.try_pop(), std::nullopt);
}

TEST(BoundedQueue, WhatIsPushedOverComesInItsOrderHoweverFullItIs) {
  BoundedQueue<int> queue(2);
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(queue.try_push(0));
    for (int item = 1; item < 7; ++item) queue.push_over(int(item));
    EXPECT_FALSE(queue.try_push(7)) << "nobody else has more room";
    EXPECT_EQ(queue.items_max(), 2);
    for (int item = 0; item < 6; ++item) EXPECT_EQ(queue.try_pop(), item);
    EXPECT_EQ(queue.pop(), 6);
  }
}

TEST(BoundedQueue, ARefusedValueStaysWithItsOwner) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  ASSERT_TRUE(queue.try_push(std::make_unique<int>(1)));
  auto refused = std::make_unique<int>(2);
  EXPECT_FALSE(queue.try_push(std::move(refused)));
  EXPECT_NE(refused, nullptr);
}

TEST(BoundedQueue, AClosedQueueTakesNothingInButCanBeEmptied) {
  BoundedQueue<int> queue(2);
  ASSERT_TRUE(queue.try_push(1));
  queue.close();
  EXPECT_FALSE(queue.try_push(2));
  EXPECT_FALSE(queue.push(2));
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.pop(), std::nullopt);
  EXPECT_FALSE(queue.wait_for_item(std::chrono::microseconds(1)));
}

TEST(BoundedQueue, ClosingWakesSleepers) {
  BoundedQueue<int> queue(1);
  std::jthread consumer([&] { EXPECT_EQ(queue.pop(), std::nullopt); });
  queue.close();
}

TEST(BoundedQueue, EveryValueArrivesOnceUnderContention) {
  constexpr int kProducers = 3;
  constexpr int kEach = 5'000;
  BoundedQueue<int> queue(8);
  std::atomic<std::int64_t> sum = 0;
  std::atomic<int> received = 0;
  {
    std::vector<std::jthread> consumers;
    for (int c = 0; c < 2; ++c) {
      consumers.emplace_back([&] {
        while (const auto item = queue.pop()) {
          sum += *item;
          ++received;
        }
      });
    }
    {
      std::vector<std::jthread> producers;
      for (int p = 0; p < kProducers; ++p) {
        producers.emplace_back([&] {
          for (int i = 1; i <= kEach; ++i) {
            EXPECT_TRUE(queue.push(int{i}));
          }
        });
      }
    }
    queue.close();
  }
  EXPECT_EQ(received, kProducers * kEach);
  EXPECT_EQ(sum, std::int64_t{kProducers} * kEach * (kEach + 1) / 2);
}

}  // namespace
}  // namespace stemma
