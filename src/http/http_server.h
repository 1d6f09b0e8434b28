// HttpServer: HTTP/1.1 for thousands of slow streams, on one thread.
//
// It reads whole requests, hands each to an HttpService, and writes what the service answers, at
// once or later, whole or piece by piece. A body that does not come with its head is read only if
// the service wants it: who may not ask at all holds no memory. A connection is read while its
// answer is computed, so that a client that goes is noticed although nothing is written to it; what
// a client sends ahead is kept for its turn. A malformed request is answered with 4xx (or 501) and
// its connection closed: lenient readings are how requests are smuggled past a proxy.
//
// Pieces written in one turn of the thread leave in one system call. A reader that is slower than
// its answer has a bounded buffer, and is then cut off (fault 25). Bodies that come slowly and
// answers that are read slowly are bounded together, too (HttpLimits).
//
// Thread:     run's own, which calls the service; open, port, post, drain: any.
// Memory:     bounded by HttpLimits; under 3 KiB a connection that has sent nothing (fault 21).
// Cost:       one system call to read a request, one to write what waits for a reader.
// Not here:   TLS and HTTP/2 (a reverse proxy's), routes, JSON, events (server/), tokens.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/wall_clock.h"
#include "http/http_limits.h"
#include "http/http_message.h"
#include "stemma/ids.h"
#include "stemma/metrics.h"
#include "stemma/result.h"

namespace stemma {

class HttpLoop;

// One request and its answer; never reused while a server lives.
using ExchangeId = StrongId<struct ExchangeTag, std::int64_t>;

struct HttpServerOptions {
  std::string address = "127.0.0.1";  // an IPv4 or IPv6 address, or localhost
  std::uint16_t port = 8080;          // 0: any that is free
  HttpLimits limits = {};
  // The seconds since 1970 began that answers say.
  std::function<std::int64_t()> time_s = [] {
    return static_cast<std::int64_t>(wall_clock_seconds());
  };
};

// Whether only this machine's programs reach a server at `address`; false if it is none.
bool is_loopback(const std::string& address);

// Who ended an exchange before its answer was whole.
enum class GoneBy : std::uint8_t {
  kClient,  // it went
  kServer,  // it cut the client off, which read too slowly, or whose answer outlasted a drain
};

// Who answers. All are called on the I/O thread, never from inside one of the server's verbs.
class HttpService {
 public:
  virtual ~HttpService() = default;
  // The head of a request whose body is not all there: nullopt if it is to be read, or what is
  // answered at once, behind which the connection ends. A promise of nothing: `begin` judges every
  // request, as most bodies come with their heads. `head` has no body and no peer.
  virtual std::optional<HttpResponse> refusal(const HttpRequest& /*head*/) { return std::nullopt; }
  // What HTTP itself answers a request with whose head is known, as a body that is too large. `why`
  // has no quotation mark, backslash or control byte.
  virtual HttpResponse error(const HttpRequest& /*head*/, int status, std::string_view why) {
    return http_error_response(status, why);
  }
  // A whole request. It must be answered with respond, or with begin_stream and end_stream, now or
  // later; until then, or until it is gone, it counts as in flight.
  virtual void begin(ExchangeId exchange, HttpRequest&& request) = 0;
  // The client went, or was cut off, before its answer was whole. Said at most once, and not after
  // respond or end_stream; what is answered from now on is dropped.
  virtual void gone(ExchangeId exchange, GoneBy by) = 0;
};

class HttpServer {
 public:
  // Binds and listens, so that clients may connect before `run`. Raises the process's limit of open
  // files as far as it goes. kIo, with errno, if the address cannot be had ("127.0.0.1:8080:
  // Address already in use"); kInvalidArgument if it is none. `service` must outlive the server.
  static Result<std::unique_ptr<HttpServer>> open(const HttpServerOptions& options,
                                                  HttpService& service);
  // Closes what is open, without telling the service. REQUIRES: nobody is in `run`.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The port that clients connect to.
  std::uint16_t port() const;

  // Serves on the calling thread, until `drain` is called and done. Once.
  void run();

  // Any thread: has `work` run on the I/O thread, in the order of the calls, also while it drains.
  // Dropped, unrun, if `run` has returned.
  void post(std::function<void()> work);

  // Any thread: takes no more connections and requests, and closes connections that no answer is
  // open on. `run` returns when the last answer has left; when `time` is over those still open are
  // cut off. Another call sets another end: drain(0us) stops at once.
  void drain(std::chrono::microseconds time);

  // The rest: I/O thread only. An exchange that is gone, or whose answer has left, is ignored.

  // A whole answer. REQUIRES: none has been begun.
  void respond(ExchangeId exchange, HttpResponse response);
  // The head of an answer that comes in pieces; head.body is the first, if it is not empty.
  // REQUIRES: no answer has been begun.
  void begin_stream(ExchangeId exchange, HttpResponse head);
  // One piece. Cuts the client off if more bytes than stream_buffer_bytes_max wait from turns
  // before this one, and more than a turn that alone was more; `gone` follows in a later turn.
  // REQUIRES: begin_stream, not yet end_stream.
  void write(ExchangeId exchange, std::string_view piece);
  // The answer is whole. REQUIRES: begin_stream, not yet end_stream.
  void end_stream(ExchangeId exchange);

  // Bytes of the answer, with their framing, that the system has not yet taken.
  std::int64_t waiting_bytes(ExchangeId exchange) const;

  // stemma_http_…: connections, requests, answers by class, who was cut off and why, bytes.
  void visit_metrics(MetricVisitor& visitor) const;

 private:
  explicit HttpServer(std::unique_ptr<HttpLoop> loop);

  std::unique_ptr<HttpLoop> loop_;
};

}  // namespace stemma
