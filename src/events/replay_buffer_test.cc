// What is kept for replay: the newest batches, as many as both limits allow, and always the last.
// And buffers of events that go round without taking anything from the heap.
#include "events/replay_buffer.h"

#include <gtest/gtest.h>

#include "base/heap_counter.h"
#include "events/event_fixture.h"

namespace stemma {
namespace {

zmq::message_t batch_of(std::size_t bytes) {
  return zmq::message_t(bytes);
}

TEST(ReplayBuffer, KeepsTheNewestBatches) {
  ReplayBuffer buffer(3, 1000);
  EXPECT_EQ(buffer.next_sequence(), 0u);
  for (std::size_t i = 0; i < 5; ++i) buffer.add(batch_of(10 + i));
  EXPECT_EQ(buffer.first_sequence(), 2u);
  EXPECT_EQ(buffer.next_sequence(), 5u);
  EXPECT_EQ(buffer.batch(2).size(), 12u);
  EXPECT_EQ(buffer.bytes(), 12 + 13 + 14);
}

TEST(ReplayBuffer, KeepsNoMoreBytesThanAllowedButTheLastBatch) {
  ReplayBuffer buffer(100, 50);
  for (int i = 0; i < 5; ++i) buffer.add(batch_of(20));
  EXPECT_EQ(buffer.batches(), 2);
  buffer.add(batch_of(500));
  EXPECT_EQ(buffer.batches(), 1);
  EXPECT_EQ(buffer.first_sequence(), 5u);
}

TEST(EventBuffer, TakesNothingFromTheHeapOnceItIsLargeEnough) {
  EventBuffer buffer;
  const std::vector<PageKey> keys(8);
  const Tokens tokens(128);
  const auto fill = [&] {
    for (int i = 0; i < 20; ++i) {
      buffer.take({.kind = PrefixEvent::Kind::kStored,
                   .keys = keys,
                   .digest = {},
                   .parent = {},
                   .tokens = tokens});
    }
  };
  fill();
  const std::int64_t before = heap_allocations;
  for (int i = 0; i < 10; ++i) {
    buffer.clear();
    fill();
  }
  EXPECT_EQ(heap_allocations - before, 0);
}

}  // namespace
}  // namespace stemma
