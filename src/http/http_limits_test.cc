// What clients may not do to a server, and what it costs it when they try: slow heads and bodies,
// half-open connections, slow readers, too many of anything (faults 21 and 25). Limits are some
// milliseconds or bytes, so that nothing waits longer than the server does.
#include "http/http_limits.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/long_tests_fixture.h"
#include "base/prng.h"
#include "base/resident_bytes.h"
#include "base/sanitizers.h"
#include "http/http_fixture.h"
#include "http/http_server.h"

namespace stemma {
namespace {

constexpr const char* kGet = "GET /a HTTP/1.1\r\nHost: here\r\n\r\n";

TEST(HttpLimits, AConnectionThatSaysNothingIsClosed) {
  HttpLimits limits;
  limits.header_us = 2000;
  RunningServer running(answer_with_request, limits);
  EXPECT_TRUE(running.client().is_ended());
  EXPECT_EQ(running.metric("stemma_http_timeouts_total"), 1);
}

// One byte at a time does not move the deadline.
TEST(HttpLimits, ASlowHeadIsRefused) {
  HttpLimits limits;
  limits.header_us = 50'000;
  limits.header_bytes_max = 64 << 20;  // more than is sent, however late the server gets a turn
  RunningServer running(answer_with_request, limits);
  RawClient client = running.client();
  const auto start = std::chrono::steady_clock::now();
  client.send("GET /a HTTP/1.1\r\nHost: here\r\nX: ");
  while (client.send("x") && !client.has_received()) {
  }
  EXPECT_EQ(client.read_answer().status, 408);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(40));
  EXPECT_EQ(running.metric("stemma_http_timeouts_total"), 1);
}

TEST(HttpLimits, ASlowBodyIsRefused) {
  HttpLimits limits;
  limits.body_us = 2000;
  RunningServer running(answer_with_request, limits);
  RawClient client = running.client();
  client.send("POST /a HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nhell");
  EXPECT_EQ(client.read_answer().status, 408);
  EXPECT_TRUE(client.is_ended());
  EXPECT_EQ(running.metric("stemma_http_reading_body_bytes"), 0);
}

TEST(HttpLimits, AnIdleConnectionIsClosed) {
  HttpLimits limits;
  limits.keep_alive_us = 2000;
  RunningServer running(answer_with_request, limits);
  RawClient client = running.client();
  client.send(kGet);
  EXPECT_EQ(client.read_answer().status, 200);
  EXPECT_TRUE(client.is_ended());
  EXPECT_EQ(running.metric("stemma_http_timeouts_total"), 0);
}

// An answer may take longer to compute than any of the deadlines.
TEST(HttpLimits, AnAnswerMayTakeItsTime) {
  HttpLimits limits;
  limits.header_us = limits.body_us = limits.keep_alive_us = limits.write_stall_us = 20'000;
  RunningServer running(stay_silent, limits);
  RawClient client = running.client();
  RawClient silent = running.client();
  client.send(kGet);
  const ExchangeId exchange = running.service().begun(0).exchange;
  EXPECT_TRUE(silent.is_ended());  // its deadline was later than the one that the other had
  running.on_io([&] { running.server().respond(exchange, HttpResponse()); });
  EXPECT_EQ(client.read_answer().status, 200);
}

TEST(HttpLimits, ASlowReaderIsCutOff) {
  RunningServer running(stay_silent);
  RawClient reads = running.client();
  reads.send(kGet);
  const ExchangeId read = running.service().begun(0).exchange;
  RawClient sleeps = running.client(4096);
  sleeps.send(kGet);
  const ExchangeId slept = running.service().begun(1).exchange;
  running.on_io([&] {
    running.server().begin_stream(read, HttpResponse());
    running.server().begin_stream(slept, HttpResponse());
  });
  EXPECT_TRUE(reads.read_until("\r\n\r\n"));
  const std::string piece(50'000, 'x');
  const std::int64_t most = HttpLimits().stream_buffer_bytes_max + 100'000;
  int pieces = 0;
  while (running.service().gone_count() == 0 && pieces < 10'000) {
    running.on_io([&] {
      running.server().write(read, piece);
      running.server().write(slept, piece);
      EXPECT_LE(running.server().waiting_bytes(slept), most);
    });
    EXPECT_TRUE(reads.read_piece() == piece);
    ++pieces;
  }
  EXPECT_EQ(running.service().gone_exchange(0, GoneBy::kServer), slept);
  running.on_io([&] { running.server().end_stream(read); });
  EXPECT_EQ(reads.read_piece(), std::nullopt);
  EXPECT_EQ(running.metric("stemma_http_slow_readers_total"), 1);
  EXPECT_EQ(running.service().gone_count(), 1u);
}

TEST(HttpLimits, AStreamThatIsMuchInOneTurnIsNotASlowReader) {
  RunningServer running([](HttpServer& server, ExchangeId exchange, const HttpRequest&) {
    server.begin_stream(exchange, HttpResponse());
    for (int i = 0; i < 10; ++i) server.write(exchange, std::string(100'000, 'x'));
    server.end_stream(exchange);
  });
  RawClient client = running.client(1 << 22);
  client.send(kGet);
  EXPECT_EQ(client.read_answer().body.size(), 1'000'000u);
}

// More than the system takes in one turn, and its reader takes all of it as it comes.
TEST(HttpLimits, NorIsOneThatIsMoreInOneTurnThanTheSystemTakes) {
  RunningServer running([](HttpServer& server, ExchangeId exchange, const HttpRequest&) {
    server.begin_stream(exchange, HttpResponse());
    for (int i = 0; i < 200; ++i) server.write(exchange, std::string(100'000, 'x'));
    server.end_stream(exchange);
  });
  RawClient client = running.client(4096);
  client.send(kGet);
  EXPECT_EQ(client.read_answer().body.size(), 20'000'000u);
  EXPECT_EQ(running.metric("stemma_http_slow_readers_total"), 0);
}

// As streams do that begin with what they were asked: the next tokens come before any network has
// taken that.
TEST(HttpLimits, NorIsOneThatGoesOnWhileMuchOfATurnIsTaken) {
  RunningServer running(stay_silent);
  RawClient client = running.client(4096);
  client.send(kGet);
  const ExchangeId exchange = running.service().begun(0).exchange;
  running.on_io([&] {
    running.server().begin_stream(exchange, HttpResponse());
    running.server().write(exchange, std::string(20'000'000, 'x'));
  });
  for (int i = 0; i < 100; ++i) {
    running.on_io([&] { running.server().write(exchange, std::string(100, 'y')); });
  }
  running.on_io([&] { running.server().end_stream(exchange); });
  EXPECT_EQ(client.read_answer().body.size(), 20'000'000u + 100 * 100);
  EXPECT_EQ(running.metric("stemma_http_slow_readers_total"), 0);
}

TEST(HttpLimits, WhatComesBehindMuchIsBoundedAsEver) {
  RunningServer running(stay_silent);
  RawClient client = running.client(4096);
  client.send(kGet);
  const ExchangeId exchange = running.service().begun(0).exchange;
  running.on_io([&] { running.server().begin_stream(exchange, HttpResponse()); });
  std::int64_t written_bytes = 0;
  for (int i = 0; running.service().gone_count() == 0 && i < 1000; ++i) {
    const std::size_t bytes = i == 0 ? 20'000'000 : 50'000;
    running.on_io([&] { running.server().write(exchange, std::string(bytes, 'x')); });
    written_bytes += static_cast<std::int64_t>(bytes);
  }
  EXPECT_EQ(running.service().gone_count(), 1u);
  // What the system had taken of it makes room for as much.
  EXPECT_LE(written_bytes, 2 * 20'000'000);
}

TEST(HttpLimits, AReaderThatTakesNothingIsCutOff) {
  HttpLimits limits;
  limits.write_stall_us = 2000;
  RunningServer running(
      [](HttpServer& server, ExchangeId exchange, const HttpRequest&) {
        HttpResponse response;
        response.body.assign(32 << 20, 'x');
        server.respond(exchange, std::move(response));
      },
      limits);
  RawClient client = running.client(4096);
  client.send(kGet);
  EXPECT_LT(client.read_after_end(), std::size_t{32 << 20});
  EXPECT_EQ(running.metric("stemma_http_slow_readers_total"), 1);
  EXPECT_EQ(running.service().gone_count(), 0u) << "the service's part was done";
}

// However many there are that take a byte now and then: memory is bounded, and who reads is served.
TEST(HttpLimits, AnswersThatWaitForTheirReadersAreBoundedTogether) {
  constexpr std::size_t kBytes = 32 << 20;
  HttpLimits limits;
  limits.waiting_bytes_total_max = 40 << 20;
  limits.slow_reader_us = 0;
  RunningServer running(
      [](HttpServer& server, ExchangeId exchange, const HttpRequest&) {
        server.respond(exchange, {.body = std::string(kBytes, 'x')});
      },
      limits);
  RawClient sleeps = running.client(4096);
  sleeps.send(kGet);
  running.wait_for_metric("stemma_http_waiting_bytes", [](auto n) { return n > (20 << 20); });
  RawClient reads = running.client(4096);
  reads.send(kGet);
  EXPECT_LT(sleeps.read_after_end(), kBytes);
  EXPECT_EQ(reads.read_answer().body.size(), kBytes);
  EXPECT_EQ(running.metric("stemma_http_slow_readers_total"), 1);
  EXPECT_EQ(running.metric("stemma_http_waiting_bytes"), 0);
}

// As where many long answers end at once, which no network has taken by the next turn.
TEST(HttpLimits, NoReaderIsSlowBeforeItHasHadItsTime) {
  constexpr std::size_t kBytes = 32 << 20;
  HttpLimits limits;
  limits.waiting_bytes_total_max = 1 << 20;
  limits.slow_reader_us = 3'600'000'000;
  RunningServer running(
      [](HttpServer& server, ExchangeId exchange, const HttpRequest&) {
        server.respond(exchange, {.body = std::string(kBytes, 'x')});
      },
      limits);
  RawClient first = running.client(4096);
  RawClient second = running.client(4096);
  first.send(kGet);
  second.send(kGet);
  running.wait_for_metric("stemma_http_waiting_bytes", [](auto n) { return n > (40 << 20); });
  EXPECT_EQ(first.read_answer().body.size(), kBytes);
  EXPECT_EQ(second.read_answer().body.size(), kBytes);
}

TEST(HttpLimits, AnAnswerAloneMayBeLongerThanAllThatMayWait) {
  constexpr std::size_t kBytes = 32 << 20;
  HttpLimits limits;
  limits.waiting_bytes_total_max = 1 << 20;
  RunningServer running(
      [](HttpServer& server, ExchangeId exchange, const HttpRequest&) {
        server.respond(exchange, {.body = std::string(kBytes, 'x')});
      },
      limits);
  RawClient client = running.client(4096);
  client.send(kGet);
  running.wait_for_metric("stemma_http_waiting_bytes", [](auto n) { return n > (20 << 20); });
  EXPECT_EQ(client.read_answer().body.size(), kBytes);
}

TEST(HttpLimits, TooManyInFlightAreTurnedAway) {
  HttpLimits limits;
  limits.in_flight_max = 2;
  RunningServer running(stay_silent, limits);
  RawClient first = running.client();
  RawClient second = running.client();
  RawClient third = running.client();
  first.send(kGet);
  const ExchangeId exchange = running.service().begun(0).exchange;
  second.send(kGet);
  running.service().begun(1);
  third.send(kGet);
  const RawAnswer busy = third.read_answer();
  EXPECT_EQ(busy.status, 503);
  EXPECT_TRUE(busy.has("Retry-After: 1"));
  EXPECT_TRUE(busy.has("X-Path: /a"));
  EXPECT_NE(busy.body.find("\"type\":\"server_error\""), std::string::npos);
  EXPECT_EQ(running.metric("stemma_http_exchanges"), 2);
  EXPECT_EQ(running.metric("stemma_http_turned_away_requests_total"), 1);
  running.on_io([&] { running.server().respond(exchange, HttpResponse()); });
  EXPECT_EQ(first.read_answer().status, 200);
  third.send(kGet);  // on the connection that it kept
  running.service().begun(2);
}

TEST(HttpLimits, BodiesTogetherAreBounded) {
  HttpLimits limits;
  limits.body_bytes_max = 1000;
  limits.body_bytes_total_max = 1500;
  RunningServer running(answer_with_request, limits);
  const std::string half =
      "POST /a HTTP/1.1\r\nHost: here\r\nContent-Length: 1000\r\n\r\n" + std::string(900, 'x');
  RawClient first = running.client();
  first.send(half);
  running.wait_for_metric("stemma_http_reading_body_bytes", [](auto n) { return n == 900; });
  EXPECT_EQ(running.metric("stemma_http_exchanges"), 0) << "it is not whole";
  RawClient second = running.client();
  second.send(half);
  const RawAnswer busy = first.read_answer();
  EXPECT_EQ(busy.status, 503);
  EXPECT_TRUE(busy.has("Retry-After: 1"));
  EXPECT_TRUE(busy.has("X-Path: /a"));
  EXPECT_EQ(running.metric("stemma_http_turned_away_requests_total"), 1);
  second.send(std::string(100, 'x'));
  EXPECT_EQ(second.read_answer().status, 200);
  EXPECT_EQ(running.metric("stemma_http_reading_body_bytes"), 0);
}

// A client that leaves much half sent keeps nobody else from sending.
TEST(HttpLimits, WhoKeepsTheMostBodyForTheLongestGoesFirst) {
  HttpLimits limits;
  limits.body_bytes_total_max = 1500;
  RunningServer running(answer_with_request, limits);
  const auto begin = [](int length, int sent) {
    return "POST /a HTTP/1.1\r\nHost: here\r\nContent-Length: " + std::to_string(length) +
           "\r\n\r\n" + std::string(static_cast<std::size_t>(sent), 'x');
  };
  RawClient large = running.client();
  large.send(begin(1000, 800));
  running.wait_for_metric("stemma_http_reading_body_bytes", [](auto n) { return n == 800; });
  RawClient small = running.client();
  small.send(begin(200, 10));
  running.wait_for_metric("stemma_http_reading_body_bytes", [](auto n) { return n == 810; });
  RawClient late = running.client();
  late.send(begin(1000, 900));
  EXPECT_EQ(large.read_answer().status, 503);
  late.send(std::string(100, 'x'));
  EXPECT_EQ(late.read_answer().status, 200);
  small.send(std::string(190, 'x'));
  EXPECT_EQ(small.read_answer().status, 200);
}

TEST(HttpLimits, TooManyConnectionsAreClosedAtOnce) {
  HttpLimits limits;
  limits.connections_max = 2;
  RunningServer running(answer_with_request, limits);
  RawClient first = running.client();
  RawClient second = running.client();
  RawClient third = running.client();
  EXPECT_TRUE(third.is_ended());
  EXPECT_EQ(running.metric("stemma_http_refused_connections_total"), 1);
  first.close();
  running.wait_for_metric("stemma_http_connections", [](auto n) { return n == 1; });
  RawClient fourth = running.client();
  fourth.send(kGet);
  EXPECT_EQ(fourth.read_answer().status, 200);
}

// Without descriptors the server asks again now and then, and serves when there are some.
TEST(HttpLimits, RunningOutOfDescriptorsDoesNotSpin) {
  if (kUndefinedWatched) GTEST_SKIP() << "the sanitizer needs descriptors of its own";
  RunningServer running(answer_with_request);
  RawClient before = running.client();
  before.send(kGet);
  EXPECT_EQ(before.read_answer().status, 200);
  RawClient client;  // has a descriptor, and no connection yet
  rlimit whole = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &whole), 0);
  const int lowest_free = ::dup(0);
  ::close(lowest_free);
  const rlimit none_left = {static_cast<rlim_t>(lowest_free), whole.rlim_max};
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none_left), 0);
  EXPECT_TRUE(client.connect(running.server().port()));
  running.wait_for_metric("stemma_http_accept_failures_total", [](auto n) { return n >= 3; });
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(100));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &whole), 0);
  client.send(kGet);
  EXPECT_EQ(client.read_answer().status, 200);
}

// Many clients in a process of their own, which has its own descriptors. It is forked before there
// is a thread, and lives until it is told to end.
class HalfOpenClients {
 public:
  explicit HalfOpenClients(std::size_t connections) {
    STEMMA_CHECK(::pipe(orders_) == 0 && ::pipe(reports_) == 0, "a test has pipes");
    child_ = ::fork();
    STEMMA_CHECK(child_ >= 0, "a test may fork");
    if (child_ == 0) {
      ::close(orders_[1]);
      hold(connections);
    }
    ::close(orders_[0]);
    ::close(reports_[1]);
  }
  ~HalfOpenClients() {
    ::close(orders_[1]);
    ::close(reports_[0]);
    ::waitpid(child_, nullptr, 0);
  }
  HalfOpenClients(const HalfOpenClients&) = delete;
  HalfOpenClients& operator=(const HalfOpenClients&) = delete;

  // Returns when all are connected, every other one in the middle of its head. Whether they are.
  bool connect(std::uint16_t port) {
    char done = 0;
    return ::write(orders_[1], &port, sizeof(port)) == sizeof(port) &&
           ::read(reports_[0], &done, 1) == 1;
  }

 private:
  [[noreturn]] void hold(std::size_t connections) {
    rlimit limit = {};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    std::uint16_t port = 0;
    if (::read(orders_[0], &port, sizeof(port)) != sizeof(port)) ::_exit(1);
    std::vector<RawClient> clients(connections);
    for (std::size_t i = 0; i < connections; ++i) {
      if (!clients[i].connect(port)) ::_exit(1);
      if (i % 2 == 1) clients[i].send("POST /v1/completions HTTP/1.1\r\nHost: he");
    }
    char end = 0;
    const bool told = ::write(reports_[1], &end, 1) == 1 && ::read(orders_[0], &end, 1) == 0;
    ::_exit(told ? 0 : 1);
  }

  int orders_[2] = {};   // to the child: the port, then the end
  int reports_[2] = {};  // from the child: a byte when it is connected
  pid_t child_ = -1;
};

// 1,000 connections (10,000 with STEMMA_LONG_TESTS) of which half say nothing and half begin a
// request, while another is served.
TEST(HttpLimits, HalfOpenConnectionsCostLittle) {
  const std::int64_t connections = long_tests() ? 10'000 : 1'000;
  HalfOpenClients clients(static_cast<std::size_t>(connections));
  HttpLimits limits;
  limits.header_us = 3'600'000'000;  // they shall stay
  RunningServer running(answer_with_request, limits);
  RawClient served = running.client();
  served.send(kGet);
  EXPECT_EQ(served.read_answer().status, 200);
  ::malloc_trim(0);
  const std::int64_t resident_before = resident_bytes().value();
  ASSERT_TRUE(clients.connect(running.server().port()));
  running.wait_for_metric("stemma_http_connections",
                          [&](auto open) { return open == connections + 1; });
  const std::int64_t each_bytes = (resident_bytes().value() - resident_before) / connections;
  RecordProperty("bytes_a_connection", static_cast<int>(each_bytes));
#if !defined(STEMMA_DEBUG_CHECKS)  // sanitizers surround every allocation with more of their own
  EXPECT_LT(each_bytes, 4 << 10);
#endif
  for (int i = 0; i < 100; ++i) {
    served.send(kGet);
    EXPECT_EQ(served.read_answer().status, 200);
  }
}

// 500 answers, one piece of each a turn, some of whose clients go in the middle.
TEST(HttpLimits, StreamsManyAnswersAtOnce) {
  constexpr std::size_t kStreams = 500;
  constexpr int kTurns = 40;
  RunningServer running(stay_silent);
  std::vector<RawClient> clients;
  std::vector<ExchangeId> exchanges;
  for (std::size_t i = 0; i < kStreams; ++i) {
    clients.push_back(running.client());
    clients.back().send(kGet);
    exchanges.push_back(running.service().begun(i).exchange);
  }
  running.on_io([&] {
    for (const ExchangeId exchange : exchanges) {
      running.server().begin_stream(exchange, HttpResponse());
    }
  });
  for (int turn = 0; turn < kTurns; ++turn) {
    if (turn == kTurns / 2) {
      for (std::size_t i = 0; i < kStreams; i += 10) clients[i].close();
    }
    running.on_io([&] {
      for (const ExchangeId exchange : exchanges) {
        running.server().write(exchange, std::to_string(exchange.value() * 1000 + turn) + ";");
      }
    });
  }
  running.service().gone_exchange(kStreams / 10 - 1);
  running.on_io([&] {
    for (const ExchangeId exchange : exchanges) running.server().end_stream(exchange);
  });
  for (std::size_t i = 0; i < kStreams; ++i) {
    if (i % 10 == 0) continue;
    std::string expected;
    for (int turn = 0; turn < kTurns; ++turn) {
      expected += std::to_string(exchanges[i].value() * 1000 + turn) + ";";
    }
    EXPECT_EQ(clients[i].read_answer().body, expected);
  }
  EXPECT_EQ(running.service().gone_count(), kStreams / 10);
}

// Noise on many connections: the server answers 4xx or closes, and goes on.
TEST(HttpLimits, SurvivesRandomBytes) {
  constexpr std::uint64_t kSeed = 7'021'911;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Prng prng(kSeed);
  RunningServer running(answer_with_request);
  for (int round = 0; round < 300; ++round) {
    RawClient client = running.client();
    std::string bytes = prng.below(2) == 0 ? "" : "POST / HTTP/1.1\r\nHost: a\r\n";
    const std::int64_t noise = prng.below(200);
    for (std::int64_t i = 0; i < noise; ++i) {
      bytes += prng.below(6) == 0 ? "\r\n" : std::string(1, static_cast<char>(prng.below(256)));
    }
    client.send(bytes);
    if (prng.below(3) == 0) {
      client.reset();
      continue;
    }
    client.end_sending();
    const std::string answer = client.read_to_end();
    EXPECT_TRUE(answer.empty() || answer.starts_with("HTTP/1.1 ")) << answer;
  }
  RawClient client = running.client();
  client.send(kGet);
  EXPECT_EQ(client.read_answer().status, 200);
}

}  // namespace
}  // namespace stemma
