// ResponseHead: heads by the byte, and what may not be in them.
#include "http/response_head.h"

#include <gtest/gtest.h>

#include <string>

#include "http/http_date.h"

namespace stemma {
namespace {

std::string head_of(const HttpResponse& response, const ResponseRules& rules = {}) {
  std::string out;
  append_response_head(out, response, rules);
  return out;
}

TEST(ResponseHead, NamesTheLengthOfTheBody) {
  HttpResponse response;
  response.body = "{}";
  response.headers.emplace_back("X-Request-Id", "7");
  EXPECT_EQ(head_of(response),
            "HTTP/1.1 200 OK\r\nServer: stemma\r\nContent-Type: application/json\r\n"
            "Content-Length: 2\r\nX-Request-Id: 7\r\n\r\n");
}

TEST(ResponseHead, SaysHowAStreamEnds) {
  HttpResponse response;
  response.content_type = "";
  EXPECT_EQ(head_of(response, {BodyFraming::kChunked, true, false}),
            "HTTP/1.1 200 OK\r\nServer: stemma\r\nTransfer-Encoding: chunked\r\n\r\n");
  EXPECT_EQ(head_of(response, {BodyFraming::kUntilClose, false, true}),
            "HTTP/1.1 200 OK\r\nServer: stemma\r\nConnection: close\r\n\r\n");
}

TEST(ResponseHead, SaysWhetherTheConnectionIsKept) {
  HttpResponse response;
  response.content_type = "";
  response.status = 404;
  EXPECT_EQ(head_of(response, {BodyFraming::kLength, true, true}),
            "HTTP/1.1 404 Not Found\r\nServer: stemma\r\nContent-Length: 0\r\n"
            "Connection: keep-alive\r\n\r\n");
  EXPECT_EQ(head_of(response, {BodyFraming::kLength, false, false}),
            "HTTP/1.1 404 Not Found\r\nServer: stemma\r\nContent-Length: 0\r\n"
            "Connection: close\r\n\r\n");
}

// RFC 9110, 6.6.1: a server that has a clock says what it shows.
TEST(ResponseHead, SaysWhenItIsSent) {
  HttpDate date;
  HttpResponse response;
  response.content_type = "";
  response.status = 204;
  EXPECT_EQ(head_of(response, {.date = date.at(784'111'777)}),
            "HTTP/1.1 204 No Content\r\nServer: stemma\r\n"
            "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n");
}

TEST(HttpDate, IsTheTimeInGreenwich) {
  HttpDate date;
  EXPECT_EQ(date.at(0), "Thu, 01 Jan 1970 00:00:00 GMT");
  EXPECT_EQ(date.at(951'782'400), "Tue, 29 Feb 2000 00:00:00 GMT");
  EXPECT_EQ(date.at(951'782'399), "Mon, 28 Feb 2000 23:59:59 GMT") << "clocks are set back";
  EXPECT_EQ(date.at(4'102'444'799), "Thu, 31 Dec 2099 23:59:59 GMT");
}

TEST(ResponseHead, HasNoBodyWhereHttpKnowsNone) {
  HttpResponse response;
  for (const int status : {204, 304}) {
    response.status = status;
    const std::string head = head_of(response);
    EXPECT_EQ(head.find("Content-"), std::string::npos) << head;
    EXPECT_FALSE(response_has_body(status));
  }
  response.status = 299;
  EXPECT_TRUE(head_of(response).starts_with("HTTP/1.1 299 \r\n"));
}

TEST(ResponseHead, WritesChunks) {
  std::string out;
  append_chunk(out, "x");
  append_chunk(out, std::string(300, 'y'));
  append_last_chunk(out);
  EXPECT_EQ(out, "1\r\nx\r\n12c\r\n" + std::string(300, 'y') + "\r\n0\r\n\r\n");
}

TEST(ResponseHeadDeathTest, RefusesHeadersThatWouldBeSeveral) {
  HttpResponse response;
  response.headers.emplace_back("X-Text", "a\r\nSet-Cookie: b");
  EXPECT_DEATH(head_of(response), "control bytes");
  response.headers = {{"X Text", "a"}};
  EXPECT_DEATH(head_of(response), "caller's to set");
  response.headers = {{"content-LENGTH", "7"}};
  EXPECT_DEATH(head_of(response), "caller's to set");
  response.headers = {{"Date", "today"}};
  EXPECT_DEATH(head_of(response), "caller's to set");
  response.headers = {};
  response.content_type = "a\n";
  EXPECT_DEATH(head_of(response), "control bytes");
}

TEST(HttpErrorResponse, IsWhatClientsOfOpenAiRead) {
  EXPECT_EQ(http_error_response(400, "no").body,
            "{\"error\":{\"message\":\"no\",\"type\":\"invalid_request_error\",\"param\":null,"
            "\"code\":null}}");
  EXPECT_NE(http_error_response(503, "full").body.find("server_error"), std::string::npos);
}

}  // namespace
}  // namespace stemma
