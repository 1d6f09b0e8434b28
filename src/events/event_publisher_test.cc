// Publisher and follower over real sockets: the frames on the wire, a random life of a cache that a
// follower sees through losses of 10%, through a follower that does not read, through queues and
// replay buffers that are too small, and through a publisher that begins anew. Nothing here waits
// by the clock: each wait is a question that the publisher answers, or a batch that comes.
#include "events/event_publisher.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "base/prng.h"
#include "base/temp_directory.h"
#include "events/event_fixture.h"
#include "events/event_follower.h"
#include "events/zmq_frames.h"

namespace stemma {
namespace {

std::map<std::string, std::int64_t> metrics_of(const EventPublisher& publisher) {
  class Collect final : public MetricVisitor {
   public:
    void counter(std::string_view name, std::int64_t value) override {
      values[std::string(name)] = value;
    }
    void gauge(std::string_view name, std::int64_t value) override {
      values[std::string(name)] = value;
    }
    std::map<std::string, std::int64_t> values;
  } collect;
  publisher.visit_metrics(collect);
  return collect.values;
}

// A cache that lives, its publisher, and somebody who follows.
class Published {
 public:
  Published(const FixtureOptions& cache, EventPublisherOptions options, std::uint64_t seed)
      : life(cache, seed), form_(options.wire.hashes) {
    options.resend_interval_us = 0;
    if (options.endpoint == EventPublisherOptions().endpoint) {
      options.endpoint = "tcp://127.0.0.1:*";
    }
    if (options.replay_endpoint.empty()) options.replay_endpoint = "tcp://127.0.0.1:*";
    publisher = EventPublisher::open(options, clock).value();
    follow_anew();
  }

  void follow_anew(int queued_batches_max = 100'000) {
    follower = EventFollower::open({.endpoint = publisher->endpoint(),
                                    .replay_endpoint = publisher->replay_endpoint(),
                                    .topic = "",
                                    .queued_batches_max = queued_batches_max})
                   .value();
    sink = std::make_unique<IndexSink>();
    stream = std::make_unique<EventStream>(*sink, follower.get());
  }

  void pump() {
    publisher->pump([&](PrefixEventSink& to) { life.f.cache->drain_events(to); },
                    [&] { life.f.cache->resend_events(); });
  }

  // Until the publisher has written what it was given: an answer comes between two batches.
  void wait_for_publisher() {
    do {
      ASSERT_TRUE(follower->replay(kSequenceMax, [](const EventMessage&) {}).ok());
    } while (metrics_of(*publisher).at("stemma_event_queued_steps") > 0);
  }

  // Goes on as an idle server would until the index has what the tree finds.
  void expect_equal_in_the_end() {
    std::optional<std::string> difference;
    for (int round = 0; round < 200; ++round) {
      pump();
      wait_for_publisher();
      pump();
      while (follower->follow(*stream, 0).value()) {
      }
      stream->catch_up();
      difference = difference_now();
      if (!difference.has_value() && stream->complete()) break;
    }
    EXPECT_EQ(difference, std::nullopt);
    EXPECT_TRUE(stream->complete());
    EXPECT_EQ(sink->index.contradictions(), 0) << sink->index.first_contradiction();
    EXPECT_EQ(sink->index.pages() > 0, life.f.cache->usage().total_tokens() > 0);
  }

  MonotonicClock clock;
  RandomLife life;
  std::unique_ptr<EventPublisher> publisher;
  std::unique_ptr<EventFollower> follower;
  std::unique_ptr<IndexSink> sink;
  std::unique_ptr<EventStream> stream;

 private:
  // The log is drained first, for real: nothing of it is lost.
  std::optional<std::string> difference_now() {
    EventBuffer left;
    life.f.cache->drain_events(left);
    const EventIndex tree = index_of(*life.f.cache, form_);
    if (!left.empty()) life.f.cache->resend_events();
    return sink->index.difference(tree);
  }

  HashForm form_;
};

FixtureOptions small_cache() {
  return {.page_size = 2, .pages = 150, .events_pages_max = 4096};
}

struct LossOptions {
  EventForm form;
  HashForm hashes;
};
class TenPercentLost : public testing::TestWithParam<LossOptions> {};

TEST_P(TenPercentLost, IsMadeGoodByReplay) {
  constexpr std::uint64_t kSeed = 26;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Prng prng(kSeed);
  EventPublisherOptions options;
  options.wire.form = GetParam().form;
  options.wire.hashes = GetParam().hashes;
  options.topic = "kv@here";
  Published p(small_cache(), options, kSeed);
  while (!p.follower->follow(*p.stream, 1000).value()) {  // until it is connected
    p.life.step();
    p.pump();
  }
  // One batch at a time, so that no replay brings what is still on its way.
  std::int64_t dropped = 0;
  std::uint64_t received = 0;
  for (int i = 0; i < 1000; ++i) {
    for (int step = 0; step < 20; ++step) p.life.step();
    p.pump();
    p.wait_for_publisher();
    const auto published = static_cast<std::uint64_t>(p.publisher->published_batches());
    while (received + 1 < published) {
      const auto message = p.follower->receive(1'000'000).value();
      if (!message.has_value()) break;
      received = message->sequence;
      if (prng.below(10) == 0) {
        ++dropped;
      } else {
        p.stream->take(*message);
      }
    }
  }
  p.expect_equal_in_the_end();
  EXPECT_GT(dropped, 70);
  EXPECT_GT(p.stream->counters().gaps, 60);
  EXPECT_EQ(p.stream->counters().losses, 0);
  EXPECT_EQ(p.stream->counters().restarts, 0);
  EXPECT_EQ(p.stream->counters().malformed, 0);
  for (std::size_t i = 0; i < p.sink->sequences.size(); ++i) {
    ASSERT_EQ(p.sink->sequences[i], i);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, TenPercentLost,
                         testing::Values(LossOptions{EventForm::kByPosition, HashForm::kUnsigned},
                                         LossOptions{EventForm::kByName, HashForm::kBytes}));

bool machine_has_ipv6() {
  const int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 local = {};
  local.sin6_family = AF_INET6;
  local.sin6_addr = in6addr_loopback;
  const bool has = bind(probe, reinterpret_cast<const sockaddr*>(&local), sizeof(local)) == 0;
  if (probe >= 0) close(probe);
  return has;
}

TEST(EventPublisher, IsFollowedAtAnAddressOfIpv6) {
  if (!machine_has_ipv6()) GTEST_SKIP() << "this machine has none";
  EventPublisherOptions options;
  options.endpoint = "tcp://[::1]:*";
  options.replay_endpoint = "tcp://[::1]:*";
  const MonotonicClock clock;
  const auto opened = EventPublisher::open(options, clock);
  ASSERT_TRUE(opened.ok()) << to_string(opened.error());
  Published p(small_cache(), options, 15);
  while (!p.follower->follow(*p.stream, 1000).value()) {  // until it is connected
    p.life.step();
    p.pump();
  }
  p.expect_equal_in_the_end();
}

// Behind full buffers everywhere: the socket's, the follower's, the publisher's for it.
TEST(EventPublisher, AFollowerThatDoesNotReadHoldsNobodyUp) {
  constexpr std::uint64_t kSeed = 7;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  const TempDirectory directory;
  EventPublisherOptions options;
  options.endpoint = "ipc://" + directory.file("events");
  options.queued_batches_max = 5;
  Published p({.page_size = 512, .pages = 150, .events_pages_max = 4096}, options, kSeed);
  p.follow_anew(5);
  while (!p.follower->follow(*p.stream, 1000).value()) {  // until it is connected
    p.life.step();
    p.pump();
  }
  const std::int64_t before = p.publisher->published_batches();
  for (int i = 0; i < 4000; ++i) {
    p.life.step();
    p.pump();
    if (i % 32 == 0) p.wait_for_publisher();
  }
  EXPECT_GT(p.publisher->published_batches(), before + 1000);
  while (p.follower->follow(*p.stream, 0).value()) {
  }
  p.expect_equal_in_the_end();
  EXPECT_GT(p.stream->counters().replayed, 100);
}

// The number of the next batch that a subscriber gets, once there is one.
std::uint64_t next_sequence(Published& p, zmq::socket_t& subscriber) {
  zmq::message_t topic;
  zmq::message_t number;
  zmq::message_t batch;
  while (!subscriber.recv(topic).has_value()) {
    p.life.step();
    p.pump();
  }
  EXPECT_TRUE(subscriber.recv(number).has_value() && subscriber.recv(batch).has_value());
  return try_sequence(number).value();
}

// However many batches might: it loses some, and reads on behind them.
TEST(EventPublisher, NoMoreBytesWaitForASubscriberThatDoesNotReadThanMay) {
  const TempDirectory directory;
  EventPublisherOptions options;
  options.endpoint = "ipc://" + directory.file("events");
  options.queued_bytes_max = 1 << 20;
  Published p({.page_size = 512, .pages = 150, .events_pages_max = 4096}, options, 14);
  zmq::context_t context;
  zmq::socket_t subscriber(context, zmq::socket_type::sub);
  subscriber.set(zmq::sockopt::rcvhwm, 1);
  subscriber.set(zmq::sockopt::rcvtimeo, 1);
  subscriber.set(zmq::sockopt::subscribe, "");
  subscriber.connect(p.publisher->endpoint());
  std::uint64_t last = next_sequence(p, subscriber);
  for (int i = 0; i < 4000; ++i) {
    p.life.step();
    p.pump();
    if (i % 32 == 0) p.wait_for_publisher();
  }
  const auto published = static_cast<std::uint64_t>(p.publisher->published_batches());
  std::uint64_t lost = 0;
  while (last + 1 < published) {
    const std::uint64_t sequence = next_sequence(p, subscriber);
    lost += sequence - last - 1;
    last = sequence;
  }
  EXPECT_GT(lost, 100u);
}

TEST(EventPublisher, WhereTheQueueIsFullEverythingIsSaidAnewLater) {
  constexpr std::uint64_t kSeed = 8;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  EventPublisherOptions options;
  options.queue_steps = 1;
  Published p({.page_size = 1, .pages = 150, .events_pages_max = 8}, options, kSeed);
  for (int i = 0; i < 20'000; ++i) {
    p.life.step();
    p.pump();
  }
  p.expect_equal_in_the_end();
  EXPECT_GT(metrics_of(*p.publisher).at("stemma_event_full_steps_total"), 0);
  EXPECT_GT(p.life.f.cache->event_log_or_null()->overflows(), 0);
}

TEST(EventPublisher, WhoLacksWhatIsNotKeptIsToldEverythingAnew) {
  constexpr std::uint64_t kSeed = 9;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  EventPublisherOptions options;
  options.replay_batches_max = 3;
  Published p(small_cache(), options, kSeed);
  for (int i = 0; i < 500; ++i) {
    p.life.step();
    p.pump();
    p.wait_for_publisher();
  }
  p.follow_anew();
  p.expect_equal_in_the_end();
  EXPECT_EQ(p.stream->counters().losses, 1);
  EXPECT_GE(metrics_of(*p.publisher).at("stemma_event_resends_total"), 2);
}

// What was purged is in the batches that were kept: nobody gets these any more.
TEST(EventPublisher, BehindAnEndOfItsHistoryNothingOfItIsReplayed) {
  Published p(small_cache(), {}, 12);
  for (int i = 0; i < 50; ++i) {
    p.life.step();
    p.pump();
  }
  p.publisher->end_history();
  EXPECT_FALSE(p.publisher->has_ended_history()) << "the events that tell of it were not taken";
  p.pump();
  p.wait_for_publisher();
  std::vector<EventMessage> replayed;
  ASSERT_TRUE(p.follower->replay(0, [&](const EventMessage& m) { replayed.push_back(m); }).ok());
  EXPECT_TRUE(p.publisher->has_ended_history());
  ASSERT_EQ(replayed.size(), 1U) << "by the last one it is known to live on";
  EXPECT_TRUE(read_event_batch(replayed[0].bytes).value().events.empty());
  p.follow_anew();
  p.expect_equal_in_the_end();
}

TEST(EventPublisher, WhoFollowsMissesNothingWhereTheHistoryEnds) {
  Published p(small_cache(), {}, 13);
  for (int i = 0; i < 200; ++i) {
    p.life.step();
    if (i % 20 == 0) p.publisher->end_history();
    p.pump();
    while (p.follower->follow(*p.stream, 0).value()) {
    }
  }
  p.expect_equal_in_the_end();
}

TEST(EventPublisher, APublisherThatBeginsAnewIsNoticed) {
  Published p(small_cache(), {}, 10);
  const EventPublisherOptions same = [&] {
    EventPublisherOptions options;
    options.endpoint = p.publisher->endpoint();
    options.replay_endpoint = p.publisher->replay_endpoint();
    return options;
  }();
  for (int i = 0; i < 2000; ++i) {
    p.life.step();
    p.pump();
    static_cast<void>(p.follower->follow(*p.stream, 0).value());
  }
  p.expect_equal_in_the_end();
  p.publisher.reset();
  p.publisher = EventPublisher::open(same, p.clock).value();
  // No number is asked for: the new connection, or a number that was there, gives it away.
  for (int i = 0; i < 100'000 && p.stream->counters().restarts == 0; ++i) {
    p.life.step();
    p.pump();
    static_cast<void>(p.follower->follow(*p.stream, 1000).value());
  }
  EXPECT_EQ(p.stream->counters().restarts, 1);
  p.expect_equal_in_the_end();
  EXPECT_EQ(p.stream->counters().losses, 0);
}

TEST(EventPublisher, EndsThoughNobodyHasFetchedWhatItHas) {
  Published p(small_cache(), {}, 11);
  while (!p.follower->follow(*p.stream, 1000).value()) {
    p.life.step();
    p.pump();
  }
  for (int i = 0; i < 1000; ++i) {
    p.life.step();
    p.pump();
  }
  p.publisher.reset();
  EXPECT_TRUE(p.stream->complete());
}

TEST(EventPublisher, AnEndpointThatIsTakenIsAnErrorThatNamesIt) {
  const MonotonicClock clock;
  EventPublisherOptions options;
  options.endpoint = "tcp://127.0.0.1:*";
  const auto first = EventPublisher::open(options, clock).value();
  options.endpoint = first->endpoint();
  auto second = EventPublisher::open(options, clock);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kIo);
  EXPECT_EQ(second.error().sys_errno, EADDRINUSE);
  EXPECT_NE(second.error().detail.find(first->endpoint()), std::string::npos);
  options.endpoint = "tcp://127.0.0.1:*";
  options.replay_endpoint = first->endpoint();
  EXPECT_FALSE(EventPublisher::open(options, clock).ok());
  options.replay_endpoint = "nowhere";
  EXPECT_EQ(EventPublisher::open(options, clock).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(
      EventFollower::open({.endpoint = "nowhere", .replay_endpoint = "", .topic = ""}).error().code,
      ErrorCode::kInvalidArgument);
}

// The library would listen at, or ask, another one.
TEST(EventPublisher, APortThatIsNoneIsRefused) {
  const MonotonicClock clock;
  const auto publishes = [&](const std::string& endpoint, const std::string& replay_endpoint) {
    EventPublisherOptions options;
    options.endpoint = endpoint;
    options.replay_endpoint = replay_endpoint;
    const auto publisher = EventPublisher::open(options, clock);
    return publisher.ok() ? "" : publisher.error().detail;
  };
  const auto follows = [](const std::string& endpoint, const std::string& replay_endpoint) {
    const auto follower = EventFollower::open(
        {.endpoint = endpoint, .replay_endpoint = replay_endpoint, .topic = ""});
    return follower.ok() ? "" : follower.error().detail;
  };
  for (const char* const port : {"65536", "99999", "80x", "-1", ""}) {
    const std::string wrong = std::string("tcp://127.0.0.1:") + port;
    const std::string refusal = "events: " + wrong + ": its port must be from 0 to 65535";
    EXPECT_EQ(publishes(wrong, ""), refusal);
    EXPECT_EQ(publishes("tcp://127.0.0.1:*", wrong), refusal);
    EXPECT_EQ(follows(wrong, ""), refusal);
    EXPECT_EQ(follows("tcp://127.0.0.1:1", wrong), refusal);
  }
  EXPECT_EQ(publishes("tcp://127.0.0.1:0", "tcp://127.0.0.1:*"), "");
}

TEST(EventPublisher, WhyItCannotListenIsSaidOnce) {
  const MonotonicClock clock;
  const auto publish_at = [&](const std::string& endpoint) {
    EventPublisherOptions options;
    options.endpoint = endpoint;
    return EventPublisher::open(options, clock);
  };
  const auto first = *publish_at("tcp://127.0.0.1:*");
  EXPECT_EQ(to_string(publish_at(first->endpoint()).error()),
            "io: events: cannot listen at " + first->endpoint() + " (Address already in use)");
  EXPECT_EQ(to_string(publish_at("carrier://pigeon").error()),
            "io: events: cannot listen at carrier://pigeon (Protocol not supported)");
  EXPECT_EQ(publish_at("here").error().detail, "events: here: no address such as tcp://HOST:PORT");
}

TEST(EventPublisher, WrongOptionsAreNamed) {
  const MonotonicClock clock;
  EventPublisherOptions options;
  options.queue_steps = 0;
  EXPECT_EQ(EventPublisher::open(options, clock).error().detail,
            "queue_steps must be at least 1 (got 0)");
  options = {};
  options.queued_bytes_max = 0;
  EXPECT_EQ(EventPublisher::open(options, clock).error().detail,
            "queued_bytes_max must be at least 1 (got 0)");
  options = {};
  options.batch_bytes_max = 100;
  EXPECT_EQ(EventPublisher::open(options, clock).error().detail,
            "batch_bytes_max must be from 1024 to 4194304 (got 100)");
}

// With the sockets that others use: SUB, and REQ, which takes one answer.
TEST(EventPublisher, TheFramesAreThoseOfTheWire) {
  EventPublisherOptions options;
  options.topic = "kv";
  Published p(small_cache(), options, 12);
  zmq::context_t context;
  zmq::socket_t subscribe(context, zmq::socket_type::sub);
  subscribe.set(zmq::sockopt::subscribe, "kv");
  subscribe.connect(p.publisher->endpoint());
  zmq::message_t topic;
  subscribe.set(zmq::sockopt::rcvtimeo, 1);
  while (!subscribe.recv(topic).has_value()) {
    p.life.step();
    p.pump();
  }
  EXPECT_EQ(topic.to_string(), "kv");
  zmq::message_t number;
  zmq::message_t batch;
  ASSERT_TRUE(subscribe.recv(number).has_value() && number.more());
  ASSERT_TRUE(subscribe.recv(batch).has_value() && !batch.more());
  ASSERT_EQ(number.size(), 8u);
  const std::uint64_t sequence = *try_sequence(number);

  zmq::socket_t request(context, ZMQ_REQ);
  request.connect(p.publisher->replay_endpoint());
  const SequenceFrame frame = sequence_frame(sequence);
  request.send(zmq::buffer(frame), zmq::send_flags::none);
  zmq::message_t number_again;
  zmq::message_t batch_again;
  ASSERT_TRUE(request.recv(number_again).has_value() && number_again.more());
  ASSERT_TRUE(request.recv(batch_again).has_value() && !batch_again.more());
  EXPECT_EQ(number_again, number);
  EXPECT_EQ(batch_again, batch);
}

TEST(EventPublisher, AReplayEndsWithMinusOneAndWrongRequestsArePassedOver) {
  Published p(small_cache(), {}, 13);
  p.life.f.add({1, 2});
  p.pump();
  p.wait_for_publisher();
  zmq::context_t context;
  zmq::socket_t dealer(context, zmq::socket_type::dealer);
  dealer.connect(p.publisher->replay_endpoint());
  dealer.send(zmq::str_buffer("12345678"), zmq::send_flags::none);  // no empty frame
  dealer.send(zmq::message_t(), zmq::send_flags::sndmore);
  dealer.send(zmq::str_buffer("1234567"), zmq::send_flags::none);  // 7 bytes
  dealer.send(zmq::message_t(), zmq::send_flags::sndmore);
  const SequenceFrame first = sequence_frame(1);
  dealer.send(zmq::buffer(first), zmq::send_flags::none);  // behind the only one
  std::vector<std::string> frames;
  zmq::message_t received;
  do {
    ASSERT_TRUE(dealer.recv(received).has_value());
    frames.push_back(received.to_string());
  } while (received.more());
  EXPECT_EQ(frames, (std::vector<std::string>{"", std::string(8, '\xFF'), ""}));
  EXPECT_EQ(metrics_of(*p.publisher).at("stemma_event_wrong_requests_total"), 2);
}

}  // namespace
}  // namespace stemma
