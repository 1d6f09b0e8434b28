// Exchanges on one connection: kept or closed, sent ahead, HTTP/1.0, HEAD, Expect, and what is
// refused over the wire. Which requests are malformed is request_reader_test's.
#include <gtest/gtest.h>

#include <string>

#include "http/http_fixture.h"
#include "http/http_server.h"

namespace stemma {
namespace {

constexpr const char* kGet = "GET /a HTTP/1.1\r\nHost: here\r\n\r\n";

void stream_two_pieces(HttpServer& server, ExchangeId exchange, const HttpRequest&) {
  HttpResponse head;
  head.body = "one";
  server.begin_stream(exchange, std::move(head));
  server.write(exchange, "two");
  server.end_stream(exchange);
}

TEST(HttpExchange, AConnectionServesManyRequests) {
  RunningServer running(answer_with_request);
  RawClient client = running.client();
  for (int i = 0; i < 100; ++i) {
    const std::string body(static_cast<std::size_t>(i * 7), 'x');
    client.send("POST /" + std::to_string(i) + " HTTP/1.1\r\nHost: here\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
    const RawAnswer answer = client.read_answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "POST /" + std::to_string(i) + (body.empty() ? "" : " " + body));
  }
  EXPECT_EQ(running.metric("stemma_http_connections_total"), 1);
  EXPECT_EQ(running.metric("stemma_http_requests_total"), 100);
  EXPECT_EQ(running.metric("stemma_http_2xx_responses_total"), 100);
  EXPECT_EQ(running.metric("stemma_http_sends_total"), 100);
}

TEST(HttpExchange, ConnectionCloseIsHonoured) {
  RunningServer running(answer_with_request);
  RawClient client = running.client();
  client.send("GET /a HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
  const RawAnswer answer = client.read_answer();
  EXPECT_TRUE(answer.has("Connection: close"));
  EXPECT_EQ(answer.body, "GET /a");
  EXPECT_TRUE(client.is_ended());
}

TEST(HttpExchange, Http10ClosesUnlessItAsks) {
  RunningServer running(answer_with_request);
  RawClient client = running.client();
  client.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_TRUE(client.read_answer().has("Connection: keep-alive"));
  client.send("GET /a HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(client.read_answer().has("Connection: close"));
  EXPECT_TRUE(client.is_ended());
}

TEST(HttpExchange, Http10StreamsUntilTheConnectionEnds) {
  RunningServer running(stream_two_pieces);
  RawClient client = running.client();
  client.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const RawAnswer answer = client.read_answer();
  EXPECT_TRUE(answer.has("Connection: close"));
  EXPECT_FALSE(answer.has("Transfer-Encoding: chunked"));
  EXPECT_EQ(answer.body, "onetwo");
}

TEST(HttpExchange, AHeadIsAnsweredWithoutABody) {
  RunningServer running(answer_with_request);
  RawClient client = running.client();
  client.send("HEAD /a HTTP/1.1\r\nHost: here\r\n\r\n");
  EXPECT_TRUE(client.read_answer(true).has("Content-Length: 7"));
  client.send("OPTIONS /a HTTP/1.1\r\nHost: here\r\n\r\n");
  EXPECT_EQ(client.read_answer().body, "OPTIONS /a");

  RunningServer streaming(stream_two_pieces);
  RawClient second = streaming.client();
  second.send("HEAD /a HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(second.read_answer(true).has("Transfer-Encoding: chunked"));
  EXPECT_TRUE(second.is_ended());
}

TEST(HttpExchange, ExpectIsAnsweredBeforeTheBody) {
  RunningServer running(answer_with_request);
  RawClient client = running.client();
  const std::string head =
      "POST /a HTTP/1.1\r\nHost: here\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
  client.send(head);
  EXPECT_EQ(client.read_answer().head, "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("hi");
  EXPECT_EQ(client.read_answer().body, "POST /a hi");
  client.send(head + "hi");  // a body that comes unasked needs no leave
  EXPECT_EQ(client.read_answer().body, "POST /a hi");
}

TEST(HttpExchange, RequestsSentAheadAreAnsweredInTheirOrder) {
  RunningServer running(answer_with_request);
  RawClient client = running.client();
  std::string requests;
  for (int i = 0; i < 50; ++i) {
    requests += "POST /" + std::to_string(i) +
                " HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
  }
  client.send(requests);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(client.read_answer().body, "POST /" + std::to_string(i) + " ab");
  }
}

// More is sent ahead than is kept: the server stops reading, and goes on when there is room.
TEST(HttpExchange, WhatIsSentAheadIsBounded) {
  HttpLimits limits;
  limits.header_bytes_max = 1 << 10;
  RunningServer running(stay_silent, limits);
  RawClient client = running.client();
  client.send(kGet);
  const ExchangeId first = running.service().begun(0).exchange;
  const std::string body(100'000, 'x');
  client.send("POST /b HTTP/1.1\r\nHost: here\r\nContent-Length: 100000\r\n\r\n" + body);
  client.send(kGet);
  EXPECT_LE(running.metric("stemma_http_received_bytes_total"), 1 << 11);
  running.on_io([&] { running.server().respond(first, HttpResponse()); });
  const ScriptedService::Begun second = running.service().begun(1);
  EXPECT_EQ(second.request.body, body);
  running.on_io([&] { running.server().respond(second.exchange, HttpResponse()); });
  EXPECT_EQ(running.service().begun(2).request.path, "/a");
}

// As above, and the client breaks off while nothing of it is read.
TEST(HttpExchange, NoticesAResetThoughNothingIsRead) {
  HttpLimits limits;
  limits.header_bytes_max = 1 << 10;
  RunningServer running(stay_silent, limits);
  RawClient client = running.client();
  client.send(kGet);
  const ExchangeId first = running.service().begun(0).exchange;
  client.send(std::string(100'000, 'x'));
  client.reset();
  EXPECT_EQ(running.service().gone_exchange(0), first);
}

TEST(HttpExchange, AClientMayEndItsStreamBehindARequestThatIsAnswered) {
  RunningServer running(answer_with_request);
  for (int i = 0; i < 20; ++i) {
    RawClient client = running.client();
    client.send("GET /a HTTP/1.1\r\nHost: here\r\n\r\n");
    client.end_sending();
    EXPECT_EQ(client.read_to_end().substr(0, 15), "HTTP/1.1 200 OK");
  }
}

TEST(HttpExchange, AMalformedRequestIsAnsweredAndTheConnectionClosed) {
  RunningServer running(answer_with_request);
  RawClient client = running.client();
  client.send("GET /a HTTP/1.1\r\nHost: here\r\nX: a\nY: b\r\n\r\n" + std::string(kGet));
  const RawAnswer answer = client.read_answer();
  EXPECT_EQ(answer.status, 400);
  EXPECT_TRUE(answer.has("Connection: close"));
  EXPECT_EQ(answer.body,
            "{\"error\":{\"message\":\"a line does not end in CR LF\",\"type\":"
            "\"invalid_request_error\",\"param\":null,\"code\":null}}");
  EXPECT_TRUE(client.is_ended());
  EXPECT_EQ(running.service().begun_count(), 0u) << "what follows is not trusted";
  EXPECT_EQ(running.metric("stemma_http_refused_requests_total"), 1);
}

// The second of two requests is smuggled: the first is answered, the second is not believed.
TEST(HttpExchange, ARequestBehindAnotherMayBeRefused) {
  RunningServer running(answer_with_request);
  RawClient client = running.client();
  client.send(std::string(kGet) +
              "POST /b HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\nTransfer-Encoding: "
              "chunked\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: here\r\n\r\n");
  EXPECT_EQ(client.read_answer().body, "GET /a");
  EXPECT_EQ(client.read_answer().status, 400);
  EXPECT_TRUE(client.is_ended());
  EXPECT_EQ(running.service().begun_count(), 1u);
}

TEST(HttpExchange, ATooLargeBodyIsRefusedBeforeItIsRead) {
  HttpLimits limits;
  limits.body_bytes_max = 1000;
  RunningServer running(answer_with_request, limits);
  RawClient client = running.client();
  client.send(
      "POST /a HTTP/1.1\r\nHost: here\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_answer().status, 413);
  // What a client sends meanwhile does not cost it the answer.
  RawClient hasty = running.client();
  hasty.send("POST /a HTTP/1.1\r\nHost: here\r\nContent-Length: 500000\r\n\r\n" +
             std::string(500'000, 'x'));
  EXPECT_EQ(hasty.read_answer().status, 413);
  EXPECT_TRUE(hasty.is_ended());
}

// A grant for pages of other sites, say.
TEST(HttpExchange, TheServiceCompletesAnErrorOnceTheHeadIsKnown) {
  HttpLimits limits;
  limits.body_bytes_max = 10;
  limits.header_bytes_max = 1000;
  RunningServer running(answer_with_request, limits);
  const auto error_of = [&](const std::string& request) {
    RawClient client = running.client();
    client.send(request);
    return client.read_answer();
  };
  const std::string head = "POST /a HTTP/1.1\r\nHost: here\r\n";
  for (const char* rest : {"Content-Length: 11\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\nb\r\n",
                           "Transfer-Encoding: chunked\r\n\r\nx\r\n"}) {
    EXPECT_TRUE(error_of(head + rest).has("X-Path: /a")) << rest;
  }
  const std::string too_long = "X: " + std::string(1000, 'x') + "\r\n\r\n";
  for (const std::string& rest : {std::string("Expect: tea\r\n\r\n"), too_long}) {
    const RawAnswer unread = error_of(head + rest);
    EXPECT_GE(unread.status, 400);
    EXPECT_FALSE(unread.has("X-Path: /a")) << rest;
  }
}

TEST(HttpExchange, ABodyThatTheServiceDoesNotWantIsNotRead) {
  RunningServer running(answer_with_request);
  const std::string head = "POST /unwanted HTTP/1.1\r\nHost: here\r\nContent-Length: 500000\r\n";
  RawClient polite = running.client();
  polite.send(head + "Expect: 100-continue\r\n\r\n");
  EXPECT_EQ(polite.read_answer().status, 401) << "instead of 100";
  EXPECT_TRUE(polite.is_ended());
  RawClient hasty = running.client();
  hasty.send(head + "\r\n" + std::string(500'000, 'x'));
  EXPECT_EQ(hasty.read_answer().body, "unread");
  EXPECT_TRUE(hasty.is_ended());
  RawClient chunked = running.client();
  chunked.send("POST /unwanted HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n");
  EXPECT_EQ(chunked.read_answer().status, 401);
  EXPECT_EQ(running.metric("stemma_http_refused_bodies_total"), 3);
  EXPECT_EQ(running.metric("stemma_http_reading_body_bytes"), 0);
  EXPECT_EQ(running.service().begun_count(), 0u);
}

TEST(HttpExchange, ABodyThatComesWithItsHeadIsTheServicesToJudge) {
  RunningServer running(answer_with_request);
  RawClient client = running.client();
  client.send("POST /unwanted HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_EQ(client.read_answer().body, "POST /unwanted hi");
}

TEST(HttpExchange, TooLargeAHeadIsRefused) {
  RunningServer running(answer_with_request);
  RawClient client = running.client();
  client.send("GET /a HTTP/1.1\r\nHost: here\r\nX: " + std::string(32 << 10, 'x'));
  EXPECT_EQ(client.read_answer().status, 431);
  client.send("more of it");
  EXPECT_TRUE(client.is_ended());
}

TEST(HttpExchange, PiecesOfOneTurnLeaveInOneCall) {
  RunningServer running(stay_silent);
  RawClient client = running.client();
  client.send(kGet);
  const ExchangeId exchange = running.service().begun(0).exchange;
  running.on_io([&] {
    running.server().begin_stream(exchange, HttpResponse());
    for (int i = 0; i < 100; ++i) running.server().write(exchange, "piece");
    EXPECT_GT(running.server().waiting_bytes(exchange), 100 * 5);
    running.server().end_stream(exchange);
  });
  EXPECT_EQ(client.read_answer().body.size(), 500u);
  EXPECT_EQ(running.metric("stemma_http_sends_total"), 1);
  EXPECT_EQ(running.metric("stemma_http_exchanges"), 0);
}

TEST(HttpExchange, ALargeAnswerReachesASlowReader) {
  std::string body(8 << 20, '\0');
  for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * 31 / 7);
  RunningServer running([&](HttpServer& server, ExchangeId exchange, const HttpRequest&) {
    HttpResponse response;
    response.body = body;
    server.respond(exchange, std::move(response));
  });
  RawClient client = running.client(4096);
  for (int i = 0; i < 2; ++i) {
    client.send(kGet);
    EXPECT_TRUE(client.read_answer().body == body);
  }
}

}  // namespace
}  // namespace stemma
