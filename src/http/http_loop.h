// HttpLoop: the event loop of an HttpServer: it accepts, owns the connections, and knows which
// exchange is on which.
//
// Thread:     run's own; port, post, drain: any.
// Memory:     its connections; an entry for each exchange that is open.
// Cost:       a look-up in a hash table a verb.
// Not here:   what happens on one connection (connection); the contract (http_server).
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>

#include "http/connection.h"
#include "http/http_server.h"

namespace stemma {

class HttpLoop final : private ConnectionOwner {
 public:
  static Result<std::unique_ptr<HttpLoop>> open(const HttpServerOptions& options,
                                                HttpService& service);
  ~HttpLoop() override = default;

  std::uint16_t port() const { return port_; }
  void run();
  void post(std::function<void()> work);
  void drain(std::chrono::microseconds time);

  // The connection that answers `exchange`, or null if it is gone or its answer has left.
  Connection* connection_or_null(ExchangeId exchange) const;
  void visit_metrics(MetricVisitor& visitor) const;

 private:
  HttpLoop(const HttpLimits& limits, HttpService& service);
  Status listen(const HttpServerOptions& options);

  boost::asio::awaitable<void> accept_all();
  void keep(boost::asio::ip::tcp::socket socket);
  void begin_drain(std::chrono::microseconds time);

  std::optional<HttpResponse> refusal(const HttpRequest& head) override;
  HttpResponse error(const HttpRequest& head, int status, std::string_view why) override;
  void begin_exchange(Connection& connection, HttpRequest&& request) override;
  void end_exchange(Connection& connection) override;
  void end_connection(Connection& connection) override;
  bool make_body_room(const Connection& asker, std::int64_t bytes) override;
  void bound_waiting() override;
  // The one that has cost the most by now; null: none has cost anything.
  using Cost = std::int64_t (Connection::*)(std::chrono::steady_clock::time_point) const;
  Connection* costliest_or_null(Cost cost) const;

  boost::asio::io_context io_;  // destroyed last: it holds the coroutines, which touch nothing then
  HttpShared shared_;
  HttpService& service_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer accept_timer_;  // until the system may have a descriptor again
  boost::asio::steady_timer drain_timer_;
  std::uint16_t port_ = 0;
  std::int64_t next_exchange_ = 0;
  std::unordered_map<const Connection*, std::unique_ptr<Connection>> connections_;
  std::unordered_map<ExchangeId, Connection*> exchanges_;
  std::atomic<bool> has_run_ = false;
};

}  // namespace stemma
