// Covers the client: where it asks, whole answers however they are framed, and servers that are
// gone or are none.
#include "http/http_client.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <memory>
#include <string>
#include <thread>

#include "base/interruptions_fixture.h"
#include "http/http_server.h"

namespace stemma {
namespace {

TEST(HttpUrl, IsASchemeAHostAndAPort) {
  const auto address = parse_http_url("http://127.0.0.1:8080/");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->host, "127.0.0.1");
  EXPECT_EQ(address->port, 8080);
  EXPECT_EQ(parse_http_url("http://here")->port, 80);
  EXPECT_EQ(parse_http_url("http://[::1]:8080")->host, "[::1]");
  EXPECT_EQ(parse_http_url("http://[::1]:8080")->port, 8080);
  EXPECT_EQ(parse_http_url("http://[::1]")->host, "[::1]");
  for (const char* const wrong : {"", "here:80", "https://here", "http://", "http://here:x",
                                  "http://here:99999", "http://here/path:80", "http://::1:80"}) {
    EXPECT_FALSE(parse_http_url(wrong).ok()) << wrong;
  }
}

// Says what it was asked, whole or in pieces, or behind some interruptions.
class Echo final : public HttpService {
 public:
  void begin(ExchangeId exchange, HttpRequest&& request) override {
    const std::string text = request.method + " " + request.path + " " + request.body;
    if (request.path == "/late") Interruptions::await(20);
    if (request.path == "/whole") {
      return server->respond(exchange, {.status = 201, .headers = {{"X-Is", "it"}}, .body = text});
    }
    server->begin_stream(exchange, {});
    for (const char c : text) server->write(exchange, std::string_view(&c, 1));
    server->end_stream(exchange);
  }
  void gone(ExchangeId, GoneBy) override {}

  HttpServer* server = nullptr;
};

class HttpClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    HttpServerOptions options;
    options.port = 0;
    server_ = std::move(HttpServer::open(options, echo_)).value();
    echo_.server = server_.get();
    serving_ = std::jthread([this] { server_->run(); });
  }
  void TearDown() override { server_->drain(std::chrono::microseconds(0)); }

  HttpClient connect() {
    return std::move(HttpClient::connect({"127.0.0.1", server_->port()})).value();
  }

 private:
  std::unique_ptr<HttpServer> server_;
  Echo echo_;
  std::jthread serving_;
};

TEST_F(HttpClientTest, ReadsWholeAnswersHoweverTheyAreFramed) {
  auto client = connect();
  for (const char* const path : {"/whole", "/pieces", "/whole"}) {
    const auto answer = client.ask("POST", path, "body");
    ASSERT_TRUE(answer.ok()) << to_string(answer.error());
    EXPECT_EQ(answer->body, std::string("POST ") + path + " body");
  }
  const auto whole = client.ask("GET", "/whole", "", {{"X-Any", "1"}});
  EXPECT_EQ(whole->status, 201);
}

TEST_F(HttpClientTest, WaitsForAnAnswerThroughSignals) {
  auto client = connect();
  const Interruptions interruptions;
  const auto late = client.ask("GET", "/late", "");
  ASSERT_TRUE(late.ok()) << to_string(late.error());
  EXPECT_EQ(late->body, "GET /late ");
}

// What a client says of a server that sends `bytes` for whatever it is asked, and goes.
Result<HttpResponse> ask_who_sends(std::string bytes) {
  using boost::asio::ip::tcp;
  boost::asio::io_context context;
  tcp::acceptor acceptor(context, {boost::asio::ip::address_v4::loopback(), 0});
  const std::jthread server([&] {
    tcp::socket asked = acceptor.accept();
    std::string request;
    boost::asio::read_until(asked, boost::asio::dynamic_buffer(request), "\r\n\r\n");
    boost::asio::write(asked, boost::asio::buffer(bytes));
  });
  auto client =
      std::move(HttpClient::connect({"127.0.0.1", acceptor.local_endpoint().port()})).value();
  return client.ask("GET", "/", "");
}

TEST(HttpClient, ReadsAnAnswerToItsEndThatDoesNotSayHowLongItIs) {
  const auto answer = ask_who_sends("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end");
  ASSERT_TRUE(answer.ok()) << to_string(answer.error());
  EXPECT_EQ(answer->body, "to the end");
}

TEST(HttpClient, AnswersThatBreakOffAreErrors) {
  for (const char* const broken :
       {"", "HTTP/1.1 200 OK\r\nContent-", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"}) {
    const auto answer = ask_who_sends(broken);
    ASSERT_FALSE(answer.ok()) << broken;
    EXPECT_EQ(answer.error().code, ErrorCode::kIo) << broken;
    EXPECT_EQ(answer.error().sys_errno, 0) << broken;
    EXPECT_NE(answer.error().detail.find("broke off"), std::string::npos) << broken;
  }
}

TEST(HttpClient, SaysWhenNobodyIsThere) {
  Echo echo;
  HttpServerOptions options;
  options.port = 0;
  std::uint16_t port = 0;
  {
    const auto server = std::move(HttpServer::open(options, echo)).value();
    port = server->port();
  }
  const auto client = HttpClient::connect({"127.0.0.1", port});
  ASSERT_FALSE(client.ok());
  EXPECT_NE(client.error().detail.find("cannot connect"), std::string::npos);
}

}  // namespace
}  // namespace stemma
