// What is kept for replay: the newest batches, as many as both limits allow, and always the last.
// And buffers of events that go round without growing.
#include "events/replay_buffer.h"

#include <gtest/gtest.h>

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

TEST(EventBuffer, KeepsItsRoomWhenItIsCleared) {
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
  const std::size_t before = buffer.capacity_bytes();
  EXPECT_GE(before, buffer.bytes());
  for (int i = 0; i < 10; ++i) {
    buffer.clear();
    EXPECT_EQ(buffer.bytes(), 0u);
    fill();
  }
  EXPECT_EQ(buffer.capacity_bytes(), before);
}

}  // namespace
}  // namespace stemma
