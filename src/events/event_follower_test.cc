// What a follower does where nothing comes; what it follows is covered with the publisher.
#include "events/event_follower.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <map>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/interruptions_fixture.h"
#include "base/prng.h"
#include "events/event_fixture.h"
#include "events/event_publisher.h"

namespace stemma {
namespace {

// While one lives, half of the looks of the library at what its sockets are to do end as if a
// signal had come in them; it looks between the frames of a message too.
class InterruptedLooks {
 public:
  InterruptedLooks() { some_ = true; }
  ~InterruptedLooks() { some_ = false; }
  InterruptedLooks(const InterruptedLooks&) = delete;
  InterruptedLooks& operator=(const InterruptedLooks&) = delete;

  static bool is_next() { return some_ && mix64(++looks_) % 2 == 0; }
  static std::uint64_t looks() { return looks_; }

 private:
  static inline std::atomic<bool> some_ = false;
  static inline std::atomic<std::uint64_t> looks_ = 0;
};

}  // namespace
}  // namespace stemma

// The library's calls come here: this program's own is found before that of the system's library.
extern "C" int poll(pollfd* files, nfds_t count, int wait_ms) {
  if (wait_ms == 0 && stemma::InterruptedLooks::is_next()) {
    errno = EINTR;
    return -1;
  }
  const timespec time = {.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1'000'000L};
  return ppoll(files, count, wait_ms < 0 ? nullptr : &time, nullptr);
}

namespace stemma {
namespace {

class Counted final : public MetricVisitor {
 public:
  explicit Counted(const EventPublisher& publisher) { publisher.visit_metrics(*this); }
  void counter(std::string_view name, std::int64_t value) override {
    of[std::string(name)] = value;
  }
  void gauge(std::string_view, std::int64_t) override {}
  std::map<std::string, std::int64_t> of;
};

// One page more, told in a batch of its own.
void publish_page(EventPublisher& publisher, int number) {
  const PageKey key = key_of(number % 250);
  const Tokens tokens = {static_cast<TokenId>(number)};
  const auto drain = [&](PrefixEventSink& sink) {
    sink.take({.kind = PrefixEvent::Kind::kStored,
               .keys = std::span(&key, 1),
               .digest = {},
               .parent = {},
               .tokens = tokens});
  };
  publisher.pump(drain, [] {});
}

TEST(EventFollower, SignalsInTheMiddleOfAMessageDoNotEndIt) {
  const MonotonicClock clock;
  EventPublisherOptions options;
  options.endpoint = "tcp://127.0.0.1:*";
  options.replay_endpoint = "tcp://127.0.0.1:*";
  options.topic = "kv";
  const auto publisher = EventPublisher::open(options, clock).value();
  const auto follower = EventFollower::open({.endpoint = publisher->endpoint(),
                                             .replay_endpoint = publisher->replay_endpoint(),
                                             .topic = "kv",
                                             .replay_wait_us = 300'000})
                            .value();
  IndexSink sink;
  EventStream stream(sink, follower.get());
  std::set<std::string> errors;
  {
    const InterruptedLooks interrupted;
    for (int page = 0; page < 3000; ++page) {
      publish_page(*publisher, page);
      const auto followed = follower->follow(stream, 0);
      if (!followed.ok()) errors.insert(to_string(followed.error()));
      if (page % 10 != 0) continue;
      const Status replayed = follower->replay(stream.next_sequence(), [](const EventMessage&) {});
      if (!replayed.ok()) errors.insert(to_string(replayed.error()));
    }
  }
  EXPECT_EQ(errors, std::set<std::string>());
  EXPECT_GT(InterruptedLooks::looks(), 1000u);
  EXPECT_EQ(follower->malformed_messages(), 0);
  EXPECT_EQ(stream.counters().malformed, 0);
  EXPECT_EQ(stream.counters().losses, 0);
  EXPECT_EQ(stream.counters().restarts, 0);
  EXPECT_EQ(Counted(*publisher).of.at("stemma_event_wrong_requests_total"), 0);
  EXPECT_EQ(Counted(*publisher).of.at("stemma_event_failed_sends_total"), 0);
}

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
