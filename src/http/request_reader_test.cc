// RequestReader: requests by the byte, in pieces of every size; what is refused and with which
// status; random bytes. Drawn as "status" and why, or as the request that was read.
#include "http/request_reader.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/prng.h"

namespace stemma {
namespace {

using Progress = RequestReader::Progress;

constexpr std::string_view kHost = "Host: here\r\n";

// Reads `bytes` in pieces of `piece_bytes`; what was not taken is left in `rest`.
std::string read(std::string_view bytes, std::size_t piece_bytes, const HttpLimits& limits,
                 std::string& rest) {
  RequestReader reader(limits);
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, piece_bytes);
    const std::size_t taken = reader.take(piece);
    bytes.remove_prefix(taken);
    if (reader.progress() == Progress::kWhole || reader.progress() == Progress::kRefused) break;
    EXPECT_EQ(taken, piece.size());
  }
  rest = reader.progress() == Progress::kRefused ? "" : bytes;
  switch (reader.progress()) {
    case Progress::kHead:
      return "more of the head";
    case Progress::kBody:
      return "more of the body";
    case Progress::kRefused:
      return std::to_string(reader.refused_status()) + " " + std::string(reader.refused_why());
    case Progress::kWhole:
      break;
  }
  const bool is_head = reader.is_head();
  const HttpRequest request = reader.take_request();
  EXPECT_EQ(request.method == "HEAD", is_head);
  std::string text = request.method + " " + request.path + "?" + request.query;
  for (const auto& [name, value] : request.headers) text += " " + name + "=" + value;
  return text + " [" + request.body + "]" + (reader.keep_alive() ? "" : " close");
}

// As above; the same in pieces of every size.
std::string read(std::string_view bytes, const HttpLimits& limits = {},
                 std::string_view expected_rest = "") {
  std::string rest;
  const std::string text = read(bytes, bytes.size() + 1, limits, rest);
  EXPECT_EQ(rest, expected_rest);
  for (std::size_t piece_bytes = 1; piece_bytes < bytes.size() && piece_bytes < 40; ++piece_bytes) {
    std::string rest_of_pieces;
    EXPECT_EQ(read(bytes, piece_bytes, limits, rest_of_pieces), text) << piece_bytes;
    EXPECT_EQ(rest_of_pieces, rest) << piece_bytes;
  }
  return text;
}

std::string get(std::string_view target, std::string_view headers = kHost) {
  return "GET " + std::string(target) + " HTTP/1.1\r\n" + std::string(headers) + "\r\n";
}
std::string post(std::string_view headers, std::string_view body) {
  return "POST / HTTP/1.1\r\n" + std::string(kHost) + std::string(headers) + "\r\n" +
         std::string(body);
}
std::string chunked(std::string_view body) {
  return post("Transfer-Encoding: chunked\r\n", body);
}

TEST(RequestReader, ReadsARequest) {
  EXPECT_EQ(read(get("/a%20b?c=%20&d")), "GET /a b?c=%20&d host=here []");
  EXPECT_EQ(read(get("/", "Host: h\r\nX-A:1\r\nx-a: \t2 3\t \r\nX-Empty:\r\n")),
            "GET /? host=h x-a=1 x-a=2 3 x-empty= []");
  EXPECT_EQ(read("OPTIONS /a HTTP/1.1\r\nHost:\r\n\r\n"), "OPTIONS /a? host= []");
  EXPECT_EQ(read("HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n"), "HEAD /a? host=h []");
  EXPECT_EQ(read("M-SEARCH /? HTTP/1.1\r\nHost: h\r\n\r\n"), "M-SEARCH /? host=h []");
}

// As proxies, and clients that take this for one, send it.
TEST(RequestReader, AUrlIsItsPathAndItsHost) {
  EXPECT_EQ(read(get("http://there:80/a%20b?c", "Host: here\r\nX-A: 1\r\n")),
            "GET /a b?c x-a=1 host=there:80 []");
  EXPECT_EQ(read(get("HTTP://there")), "GET /? host=there []");
  EXPECT_EQ(read("GET http://there/ HTTP/1.0\r\n\r\n"), "GET /? host=there [] close");
  EXPECT_EQ(read(get("http://there/", "X-A: 1\r\n")).substr(0, 3), "400");
  EXPECT_EQ(read(get("/http://there/")), "GET /http://there/? host=here []");
}

TEST(RequestReader, ReadsABodyOfKnownLength) {
  EXPECT_EQ(read(post("Content-Length: 5\r\n", "he\r\no")),
            "POST /? host=here content-length=5 [he\r\no]");
  EXPECT_EQ(read(post("Content-Length: 0\r\n", "")), "POST /? host=here content-length=0 []");
  EXPECT_EQ(read(post("Content-Length: 5\r\n", "hell")), "more of the body");
  EXPECT_EQ(read(post("", "")), "POST /? host=here []");
}

TEST(RequestReader, ReadsChunks) {
  const std::string head = "POST /? host=here transfer-encoding=chunked [";
  EXPECT_EQ(read(chunked("0\r\n\r\n")), head + "]");
  EXPECT_EQ(read(chunked("2\r\nab\r\n00A\r\n0123456789\r\n0\r\n\r\n")), head + "ab0123456789]");
  EXPECT_EQ(read(chunked("2;a=b;c=\"d\"\r\nab\r\n0;e\r\n\r\n")), head + "ab]");
  EXPECT_EQ(read(post("transfer-encoding: Chunked\r\n", "1\r\na\r\n0\r\n\r\n")),
            "POST /? host=here transfer-encoding=Chunked [a]");
  // Trailers say nothing that a header could have said.
  EXPECT_EQ(read(chunked("1\r\na\r\n0\r\nX-Late: 1\r\nHost: there\r\n\r\n")), head + "a]");
  EXPECT_EQ(read(chunked("2\r\nab")), "more of the body");
  EXPECT_EQ(read(chunked("2\r\nab\r\n0\r\n")), "more of the body");
}

TEST(RequestReader, LeavesWhatComesBehind) {
  const std::string next = get("/next");
  EXPECT_EQ(read(get("/a") + next, {}, next), "GET /a? host=here []");
  EXPECT_EQ(read(post("Content-Length: 2\r\n", "ab") + next, {}, next),
            "POST /? host=here content-length=2 [ab]");
  EXPECT_EQ(read(chunked("1\r\na\r\n0\r\n\r\n") + next, {}, next),
            "POST /? host=here transfer-encoding=chunked [a]");
}

TEST(RequestReader, SkipsOneEmptyLineBeforeARequest) {
  EXPECT_EQ(read("\r\n" + get("/")), "GET /? host=here []");
  EXPECT_EQ(read("\r\n\r\n" + get("/")).substr(0, 3), "400");
}

TEST(RequestReader, KnowsWhetherTheConnectionIsKept) {
  const auto closes = [](std::string_view version, std::string_view headers) {
    return read("GET / HTTP/" + std::string(version) + "\r\nHost: h\r\n" + std::string(headers) +
                "\r\n")
        .ends_with(" close");
  };
  EXPECT_FALSE(closes("1.1", ""));
  EXPECT_TRUE(closes("1.1", "Connection: Close\r\n"));
  EXPECT_TRUE(closes("1.1", "Connection: x, close\r\n"));
  EXPECT_TRUE(closes("1.0", ""));
  EXPECT_FALSE(closes("1.0", "Connection: keep-alive\r\n"));
  EXPECT_EQ(read("GET / HTTP/1.0\r\n\r\n"), "GET /? [] close") << "1.0 needs no Host";
}

TEST(RequestReader, RefusesTwoLengths) {
  for (const char* headers :
       {"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
        "Content-Length: 2\r\nContent-Length: 2\r\n", "Content-Length: 2\r\nContent-Length: 3\r\n",
        "Content-Length: 2, 2\r\n", "Content-Length: 2,\r\n", "Content-Length: +2\r\n",
        "Content-Length: -2\r\n", "Content-Length: 0x2\r\n", "Content-Length: 2 2\r\n",
        "Content-Length:\r\n", "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 2\r\nTransfer-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"}) {
    EXPECT_EQ(read(post(headers, "ab")).substr(0, 3), "400") << headers;
  }
}

TEST(RequestReader, RefusesEncodingsThatItDoesNotKnow) {
  for (const char* value : {"gzip", "gzip, chunked", "chunked, gzip", "identity",
                            "chunked, chunked", "", "xchunked", "chunked;q=1"}) {
    const std::string status =
        read(post("Transfer-Encoding: " + std::string(value) + "\r\n", "0\r\n\r\n")).substr(0, 3);
    EXPECT_EQ(status, "501") << value;
  }
  EXPECT_EQ(read("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").substr(0, 3),
            "400");
}

TEST(RequestReader, RefusesMalformedHeads) {
  const std::string host(kHost);
  const std::vector<std::string> heads = {
      "GET / HTTP/1.1\nHost: h\n\n",                   // bare line feeds
      "GET / HTTP/1.1\r\nHost: h\n\r\n",               //
      "GET / HTTP/1.1\rHost: h\r\n\r\n",               // a bare carriage return
      "GET / HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n",  //
      "\nGET / HTTP/1.1\r\n" + host + "\r\n",          //
      get("/", host + "X: a\r\n b\r\n"),               // folded
      get("/", " " + host),                            //
      get("/", host + "X: a\r\n\tb\r\n"),              //
      get("/", host + "X : a\r\n"),                    // a blank in a name
      get("/", host + ": a\r\n"),                      // no name
      get("/", host + "X\r\n"),                        // no colon
      get("/", host + "X(: a\r\n"),                    //
      get("/", host + "X: a\x7f\r\n"),                 // control bytes
      get("/", host + "X: a\x01\r\n"),                 //
      get("/", host + std::string("X: a\0b\r\n", 8)),  //
      get("/", "X: no host\r\n"),                      //
      get("/", host + host),                           // two hosts
      get("*"),                                        // targets
      get("https://here/"),                            //
      get("http:///"),                                 //
      get("http://me@here/"),                          //
      get("http://here?a"),                            //
      get("http://here/a#b"),                          //
      get("http:/here"),                               //
      get("here:80"),                                  //
      get(""),                                         //
      get("/a#b"),                                     //
      get("/a b"),                                     //
      get("/\x80"),                                    //
      get("/%"),                                       // percent-encodings
      get("/%2"),                                      //
      get("/%zz"),                                     //
      get("/%00"),                                     //
      "GET / HTTP/1.1 \r\n" + host + "\r\n",           // the request line
      "GET  / HTTP/1.1\r\n" + host + "\r\n",           //
      "GET / HTTP/2.0\r\n" + host + "\r\n",            //
      "GET / HTTP/0.9\r\n" + host + "\r\n",            //
      "GET / http/1.1\r\n" + host + "\r\n",            //
      "GET /\r\n" + host + "\r\n",                     //
      "G(T / HTTP/1.1\r\n" + host + "\r\n",            //
      " GET / HTTP/1.1\r\n" + host + "\r\n",           //
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",              //
      std::string("\x16\x03\x01\x02\x00", 5),          // TLS
  };
  for (const std::string& head : heads) EXPECT_EQ(read(head).substr(0, 3), "400") << head;
}

TEST(RequestReader, RefusesBadChunks) {
  for (const char* body : {"x\r\n",
                           "-1\r\n",
                           "+1\r\na\r\n",
                           "0x1\r\n",
                           "\r\n",
                           " 1\r\na\r\n",
                           "1\r\nab\r\n",
                           "1\r\na0\r\n\r\n",
                           "1 a\r\na\r\n",
                           "1 ;b\r\na\r\n",
                           "1;b\x01\r\n",
                           "1;b\n",
                           "1\na\n",
                           "1\rXa\r\n",
                           "1\r\na\r\n0\r\nbad trailer\r\n\r\n",
                           "0\r\n folded: 1\r\n\r\n",
                           "0\r\n: 1\r\n\r\n",
                           "0\r\nX: 1\n\r\n",
                           "0\r\n\rX",
                           "0\r\n\n"}) {
    EXPECT_EQ(read(chunked(body)).substr(0, 3), "400") << body;
  }
  EXPECT_EQ(read(chunked("1;" + std::string(20'000, 'a'))).substr(0, 3), "400");
  EXPECT_EQ(read(chunked("0\r\nX:" + std::string(20'000, 'a'))).substr(0, 3), "400");
}

TEST(RequestReader, RefusesMoreThanItsLimits) {
  HttpLimits limits;
  limits.header_bytes_max = 100;
  limits.body_bytes_max = 10;
  EXPECT_EQ(read(get("/", "Host: h\r\nX: " + std::string(100, 'x')), limits).substr(0, 3), "431");
  EXPECT_EQ(read(std::string(101, 'x'), limits).substr(0, 3), "431");
  // Before a byte of the body is there.
  EXPECT_EQ(read(post("Content-Length: 11\r\n", ""), limits).substr(0, 3), "413");
  EXPECT_EQ(read(post("Content-Length: 10\r\n", ""), limits), "more of the body");
  EXPECT_EQ(read(chunked("b\r\n"), limits).substr(0, 3), "413");
  EXPECT_EQ(read(chunked("fffffffffffffffff")).substr(0, 3), "413");
  EXPECT_EQ(read(chunked("9\r\n012345678\r\n2\r\n"), limits).substr(0, 3), "413");
  EXPECT_EQ(read(chunked("9\r\n012345678\r\n1\r\n9\r\n0\r\n\r\n"), limits).substr(0, 4), "POST");
  // A head of exactly as many bytes as are allowed.
  const std::string head = get("/", "Host: h\r\nX: ");
  const std::string fill(100 - head.size() - 2, 'x');
  EXPECT_EQ(read(get("/", "Host: h\r\nX: " + fill + "\r\n"), limits),
            "GET /? host=h x=" + fill + " []");
}

TEST(RequestReader, KnowsWhoWaitsForContinue) {
  const HttpLimits limits;
  RequestReader reader(limits);
  reader.take(post("Expect: 100-Continue\r\nContent-Length: 2\r\n", ""));
  EXPECT_EQ(reader.progress(), Progress::kBody);
  EXPECT_TRUE(reader.expects_continue());
  EXPECT_EQ(read(post("Expect: 101\r\n", "")).substr(0, 3), "417");
  RequestReader old(limits);
  old.take("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_FALSE(old.expects_continue());
}

// What is compressed would be no JSON, and look like its client's mistake.
TEST(RequestReader, ReadsNoBodyThatIsCompressed) {
  EXPECT_EQ(read(post("Content-Encoding: gzip\r\nContent-Length: 2\r\n", "")).substr(0, 3), "415");
  const std::string plain = post("Content-Encoding: Identity\r\nContent-Length: 2\r\n", "{}");
  EXPECT_EQ(read(plain).substr(0, 4), "POST");
}

// Changes, doubles or drops a few bytes.
void disturb(std::string& bytes, Prng& prng) {
  constexpr std::string_view kOften("\r\n\t :;,0%\"\0\x80", 13);
  const auto draw = [&](std::size_t bound) {
    return static_cast<std::size_t>(prng.below(static_cast<std::int64_t>(bound)));
  };
  if (bytes.empty()) return;
  const std::size_t at = draw(bytes.size());
  switch (draw(4)) {
    case 0:
      bytes[at] = static_cast<char>(draw(256));
      break;
    case 1:
      bytes[at] = kOften[draw(kOften.size())];
      break;
    case 2:
      bytes.erase(at, 1 + draw(3));
      break;
    default:
      bytes.insert(at, bytes.substr(draw(bytes.size()), draw(12)));
  }
}

// Requests disturbed at random, and noise: nothing crashes, and how the bytes are cut does not
// matter.
TEST(RequestReader, ReadsRandomBytes) {
  constexpr std::uint64_t kSeed = 20'261'122;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Prng prng(kSeed);
  const std::vector<std::string> origins = {get("/a%20b?c"), post("Content-Length: 5\r\n", "hello"),
                                            chunked("2;a=\"b\"\r\nab\r\n0\r\nX: y\r\n\r\n"),
                                            std::string(64, '\0')};
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = origins[static_cast<std::size_t>(round) % origins.size()];
    const std::int64_t changes = 1 + prng.below(bytes[0] == '\0' ? 64 : 4);
    for (std::int64_t i = 0; i < changes; ++i) disturb(bytes, prng);
    std::string rest;
    std::string rest_of_pieces;
    const std::string whole = read(bytes, bytes.size() + 1, {}, rest);
    const auto piece_bytes = static_cast<std::size_t>(1 + prng.below(20));
    ASSERT_EQ(read(bytes, piece_bytes, {}, rest_of_pieces), whole) << bytes;
    ASSERT_EQ(rest_of_pieces, rest) << bytes;
  }
}

}  // namespace
}  // namespace stemma
