// What a server may still carry out of what was given up: how much that is, and when it is over.
#include "store/redis_given_up.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/clock.h"
#include "store/fake_redis.h"
#include "store/redis_connection.h"

namespace stemma {
namespace {

const RedisEndpoint kServer = {"a", 1};
const RedisEndpoint kOther = {"b", 1};

TEST(RedisGivenUp, WhatIsGivenUpLaterTakesNothingOff) {
  RedisGivenUp given_up;
  EXPECT_EQ(given_up.rounds_left(kServer), 0);
  given_up.add(kServer, 1 << 20);
  const std::int64_t rounds = given_up.rounds_left(kServer);
  EXPECT_GT(rounds, 0);
  given_up.add(kServer, 1);
  EXPECT_EQ(given_up.rounds_left(kServer), rounds);
  EXPECT_EQ(given_up.rounds_left(kOther), 0);
}

TEST(RedisGivenUp, RoundsPassAndNoneIsOwed) {
  RedisGivenUp given_up;
  given_up.note_round(kServer);
  given_up.add(kServer, 1);
  const std::int64_t rounds = given_up.rounds_left(kServer);
  for (std::int64_t i = 0; i < rounds; ++i) given_up.note_round(kServer);
  EXPECT_EQ(given_up.rounds_left(kServer), 0);
  given_up.add(kServer, 1);
  EXPECT_EQ(given_up.rounds_left(kServer), rounds);
}

TEST(RedisGivenUp, WhatOthersLeftIsCountedOnceAServer) {
  RedisGivenUp given_up;
  given_up.add_of_before(kServer);
  while (given_up.rounds_left(kServer) > 0) given_up.note_round(kServer);
  given_up.add_of_before(kServer);
  EXPECT_EQ(given_up.rounds_left(kServer), 0);
  given_up.add_of_before(kOther);
  EXPECT_GT(given_up.rounds_left(kOther), 0);
}

// A value, with what stands behind it, of which no answer came.
TEST(RedisGivenUp, IsWhatAConnectionSentAtMost) {
  FakeRedis server([](const FakeRedis::Words&) { return FakeRedis::Answer(); });
  const MonotonicClock clock;
  HostLookup lookup;
  auto connection = RedisConnection::open({"127.0.0.1", server.port()}, {}, lookup, clock,
                                          clock.now_us() + 20'000'000);
  ASSERT_TRUE(connection.ok());
  const std::vector<std::byte> value(1 << 20);
  const std::vector<std::byte> tail(2 << 20);
  RedisCommand set;
  set.words = {"SET", "name"};
  set.words_used = 2;
  set.value = value;
  set.value_tail = tail;
  RedisCommand* const commands[] = {&set};
  EXPECT_FALSE((*connection)->exchange(commands, clock.now_us() + 20'000).ok());
  EXPECT_GE((*connection)->unanswered_bytes_max(), value.size() + tail.size());
}

}  // namespace
}  // namespace stemma
