// What a follower does where nothing comes; what it follows is covered with the publisher.
#include "events/event_follower.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/interruptions_fixture.h"
#include "events/event_publisher.h"

namespace stemma {
namespace {

TEST(EventFollower, SignalsWhileItWaitsAreNoErrors) {
  const MonotonicClock clock;
  EventPublisherOptions options;
  options.endpoint = "tcp://127.0.0.1:*";
  const auto publisher = EventPublisher::open(options, clock).value();
  const auto follower = EventFollower::open({.endpoint = publisher->endpoint(),
                                             .replay_endpoint = publisher->endpoint(),
                                             .topic = "",
                                             .replay_wait_us = 20'000});
  ASSERT_TRUE(follower.ok());
  const Interruptions interruptions;
  const std::int64_t began_us = clock.now_us();
  const auto received = (*follower)->receive(20'000);
  EXPECT_GE(clock.now_us() - began_us, 20'000);
  ASSERT_TRUE(received.ok()) << to_string(received.error());
  EXPECT_FALSE(received->has_value());
  const Status replayed = (*follower)->replay(0, [](const EventMessage&) {});
  ASSERT_FALSE(replayed.ok());
  EXPECT_EQ(replayed.error().code, ErrorCode::kDeadline) << "nobody there answers";
}

}  // namespace
}  // namespace stemma
