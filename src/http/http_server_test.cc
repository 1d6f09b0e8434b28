// HttpServer over real sockets: exchanges drawn as bytes, streams, clients that go, the end.
//
//   client                       server                    service
//   "GET /a HTTP/1.1 …" ───────► begin(exchange, request) ─► respond, or begin_stream, write, …
//   "HTTP/1.1 200 OK …" ◄───────
#include "http/http_server.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "http/http_fixture.h"

namespace stemma {
namespace {

using std::chrono::microseconds;

HttpResponse stream_head(std::string first_piece = "") {
  HttpResponse head;
  head.content_type = "text/event-stream";
  head.body = std::move(first_piece);
  return head;
}

TEST(HttpServer, AnswersARequest) {
  RunningServer running(answer_with_request);
  RawClient client = running.client();
  client.send("GET /v1/models HTTP/1.1\r\nHost: here\r\n\r\n");
  const RawAnswer answer = client.read_answer();
  EXPECT_EQ(answer.head,
            "HTTP/1.1 200 OK\r\nServer: stemma\r\n"
            "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: text/plain\r\n"
            "Content-Length: 14\r\n\r\n");
  EXPECT_EQ(answer.body, "GET /v1/models");
}

TEST(HttpServer, TellsTheServiceWhatWasAsked) {
  RunningServer running(answer_with_request);
  RawClient client = running.client();
  client.send(
      "POST /a%20b?c=%20d HTTP/1.1\r\nHost: here\r\nX-Two: \t1 2\t \r\nContent-Length: 5\r\n\r\n"
      "hel");
  client.send("lo");
  const HttpRequest request = running.service().begun(0).request;
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/a b");
  EXPECT_EQ(request.query, "c=%20d");
  EXPECT_EQ(request.body, "hello");
  EXPECT_EQ(request.peer, "127.0.0.1");
  ASSERT_NE(request.header_or_null("x-two"), nullptr);
  EXPECT_EQ(*request.header_or_null("x-two"), "1 2");
  EXPECT_EQ(request.header_or_null("x-three"), nullptr);
}

TEST(HttpServer, StreamsPieces) {
  RunningServer running([](HttpServer& server, ExchangeId exchange, const HttpRequest&) {
    server.begin_stream(exchange, stream_head("one"));
    server.write(exchange, "");
    server.write(exchange, "two");
    server.end_stream(exchange);
  });
  RawClient client = running.client();
  client.send("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
  EXPECT_EQ(client.read_until("0\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nServer: stemma\r\n"
            "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: text/event-stream\r\n"
            "Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n");
}

TEST(HttpServer, StreamsOverManyTurns) {
  RunningServer running(stay_silent);
  RawClient client = running.client();
  client.send("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
  const ExchangeId exchange = running.service().begun(0).exchange;
  running.on_io([&] { running.server().begin_stream(exchange, stream_head()); });
  EXPECT_TRUE(client.read_until("\r\n\r\n"));
  for (int i = 0; i < 20; ++i) {
    const std::string piece = "data: " + std::to_string(i) + "\n\n";
    running.on_io([&] { running.server().write(exchange, piece); });
    EXPECT_EQ(client.read_piece(), piece);
  }
  running.on_io([&] { running.server().end_stream(exchange); });
  EXPECT_EQ(client.read_piece(), std::nullopt);
  client.send("GET /next HTTP/1.1\r\nHost: here\r\n\r\n");
  EXPECT_EQ(running.service().begun(1).request.path, "/next");
}

TEST(HttpServer, NoticesAClientThatGoesWhileItsAnswerIsComputed) {
  RunningServer running(stay_silent);
  RawClient ends = running.client();
  ends.send("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
  const ExchangeId first = running.service().begun(0).exchange;
  ends.close();
  EXPECT_EQ(running.service().gone_exchange(0), first);

  RawClient resets = running.client();
  resets.send("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
  const ExchangeId second = running.service().begun(1).exchange;
  resets.reset();
  EXPECT_EQ(running.service().gone_exchange(1), second);
  EXPECT_LT(first, second);
  // What comes too late is dropped.
  running.on_io([&] {
    running.server().respond(first, HttpResponse());
    running.server().begin_stream(second, HttpResponse());
    running.server().write(second, "late");
    running.server().end_stream(second);
    EXPECT_EQ(running.server().waiting_bytes(second), 0);
  });
  EXPECT_EQ(running.metric("stemma_http_gone_requests_total"), 2);
  EXPECT_EQ(running.metric("stemma_http_connections"), 0);
}

TEST(HttpServer, DrainLetsAnOpenAnswerEnd) {
  RunningServer running(stay_silent);
  RawClient idle = running.client();
  RawClient client = running.client();
  client.send("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
  const ExchangeId exchange = running.service().begun(0).exchange;
  running.server().drain(std::chrono::hours(1));
  EXPECT_TRUE(idle.is_ended());
  EXPECT_FALSE(RawClient().connect(running.server().port()));
  running.on_io([&] { running.server().respond(exchange, HttpResponse()); });
  EXPECT_TRUE(client.read_answer().has("Connection: close"));
  EXPECT_TRUE(client.is_ended());
  client.close();
  EXPECT_TRUE(running.run_returns());
  running.server().post([] { FAIL() << "nothing runs behind run"; });
}

TEST(HttpServer, DrainCutsOffWhatTakesTooLong) {
  RunningServer running(stay_silent);
  RawClient client = running.client();
  client.send("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
  const ExchangeId exchange = running.service().begun(0).exchange;
  running.server().drain(std::chrono::hours(1));
  running.server().drain(microseconds(1000));
  EXPECT_EQ(running.service().gone_exchange(0, GoneBy::kServer), exchange);
  EXPECT_TRUE(running.run_returns());
  EXPECT_TRUE(client.is_ended());
}

// Clients in every state that a connection has: silent, in a head, in a body, waiting, reading a
// stream too slowly.
std::vector<RawClient> clients_in_every_state(RunningServer& running) {
  std::vector<RawClient> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(running.client(4096));
  clients[1].send("GET /");
  clients[2].send("POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\nhalf");
  clients[3].send("GET / HTTP/1.1\r\nHost: here\r\n\r\nGET /ahead");
  running.service().begun(0);
  clients[4].send("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
  const ExchangeId streamed = running.service().begun(1).exchange;
  running.on_io([&] {
    running.server().begin_stream(streamed, HttpResponse());
    while (running.server().waiting_bytes(streamed) < 200'000) {
      running.server().write(streamed, std::string(10'000, 'x'));
    }
  });
  running.on_io([] {});  // what the system takes has left
  EXPECT_EQ(running.metric("stemma_http_connections"), 5);
  return clients;
}

TEST(HttpServer, StopsInTheMiddle) {
  RunningServer running(stay_silent);
  const std::vector<RawClient> clients = clients_in_every_state(running);
  running.server().drain(microseconds(0));
  EXPECT_TRUE(running.run_returns());
  EXPECT_EQ(running.service().gone_count(), 2u);
}

// Work that does not return properly leaves every coroutine where it waits.
TEST(HttpServer, EndsCleanlyWhereRunWasLeft) {
  RunningServer running(stay_silent);
  const std::vector<RawClient> clients = clients_in_every_state(running);
  running.server().post([] { std::vector<int>().at(0) = 1; });
  EXPECT_TRUE(running.run_returns());
  EXPECT_EQ(running.service().gone_count(), 0u);
}

TEST(HttpServer, EndsCleanlyWithoutHavingRun) {
  ScriptedService service(stay_silent);
  HttpServerOptions options;
  options.port = 0;
  const auto server = HttpServer::open(options, service);
  ASSERT_TRUE(server.ok());
  RawClient client;
  EXPECT_TRUE(client.connect((*server)->port()));
  (*server)->post([] { FAIL() << "nobody runs it"; });
  (*server)->drain(microseconds(0));
}

TEST(HttpServer, ListensOnLocalhostAndOnIpv6) {
  ScriptedService service(stay_silent);
  HttpServerOptions options;
  options.port = 0;
  options.address = "localhost";
  EXPECT_TRUE(HttpServer::open(options, service).ok());
  options.address = "::1";
  const auto server = HttpServer::open(options, service);
  if (!server.ok()) GTEST_SKIP() << "no IPv6 here: " << server.error().detail;
  options.port = (*server)->port();
  EXPECT_TRUE(HttpServer::open(options, service).error().detail.find("[::1]:") !=
              std::string::npos);
}

TEST(HttpServer, SaysWhichAddressCannotBeHad) {
  ScriptedService service(stay_silent);
  HttpServerOptions options;
  options.port = 0;
  const auto first = HttpServer::open(options, service);
  ASSERT_TRUE(first.ok());
  options.port = (*first)->port();
  const auto second = HttpServer::open(options, service);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kIo);
  EXPECT_EQ(second.error().sys_errno, EADDRINUSE);
  EXPECT_EQ(second.error().detail, "cannot listen on 127.0.0.1:" + std::to_string(options.port));
  const std::string line = to_string(second.error());
  EXPECT_EQ(line.find("in use"), line.rfind("in use")) << "it is said once: " << line;
  options.address = "nowhere";
  EXPECT_EQ(HttpServer::open(options, service).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace stemma
