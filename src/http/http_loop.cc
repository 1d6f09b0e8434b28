#include "http/http_loop.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <utility>

#include "base/check.h"
#include "stemma/log.h"

namespace stemma {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using AsioError = boost::system::error_code;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr auto kAcceptPause = std::chrono::milliseconds(50);
constexpr auto kDrainMax = std::chrono::hours(24 * 365);
// Descriptors that connections leave to the rest of the program: models, disk tiers, peers.
constexpr std::int64_t kOtherFiles = 256;

// The most files that this process may have open, after asking for as many as it can get.
std::int64_t raised_file_limit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  if (limit.rlim_cur < limit.rlim_max) {
    const rlimit raised = {limit.rlim_max, limit.rlim_max};
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 30));
}

std::string endpoint_text(const HttpServerOptions& options) {
  const bool is_v6 = options.address.find(':') != std::string::npos;
  return (is_v6 ? "[" + options.address + "]" : options.address) + ":" +
         std::to_string(options.port);
}

}  // namespace

Result<std::unique_ptr<HttpLoop>> HttpLoop::open(const HttpServerOptions& options,
                                                 HttpService& service) {
  HttpLimits limits = options.limits;
  const std::int64_t files_max = raised_file_limit();
  const std::int64_t allowed = std::max<std::int64_t>(files_max - kOtherFiles, files_max / 2);
  if (allowed < limits.connections_max) {
    STEMMA_LOG(kWarning, "http.fewer_connections", kv("wanted", limits.connections_max),
               kv("open_files_max", files_max), kv("connections_max", allowed));
    limits.connections_max = allowed;
  }
  auto loop = std::unique_ptr<HttpLoop>(new HttpLoop(limits, service));
  loop->shared_.time_s = options.time_s;
  STEMMA_RETURN_IF_ERROR(loop->listen(options));
  return loop;
}

HttpLoop::HttpLoop(const HttpLimits& limits, HttpService& service)
    : io_(1), service_(service), acceptor_(io_), accept_timer_(io_), drain_timer_(io_) {
  shared_.limits = limits;
}

Status HttpLoop::listen(const HttpServerOptions& options) {
  AsioError error;
  const std::string& address_text = options.address == "localhost" ? "127.0.0.1" : options.address;
  const auto address = asio::ip::make_address(address_text, error);
  if (error) {
    return Error{ErrorCode::kInvalidArgument, options.address + ": not an address to listen on"};
  }
  const tcp::endpoint endpoint(address, options.port);
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
  if (!error) port_ = acceptor_.local_endpoint(error).port();
  if (error) {
    return Error{ErrorCode::kIo, "cannot listen on " + endpoint_text(options), error.value()};
  }
  asio::co_spawn(io_, accept_all(), [](const std::exception_ptr& raised) {
    STEMMA_CHECK(raised == nullptr, "accepting reports errors as values");
  });
  return {};
}

void HttpLoop::run() {
  STEMMA_CHECK(!has_run_.load(), "a server runs once");
  io_.run();
  has_run_.store(true);
}

void HttpLoop::post(std::function<void()> work) {
  STEMMA_CHECK(work != nullptr, "there is work to do");
  if (has_run_.load()) return;
  asio::post(io_, std::move(work));
}

void HttpLoop::drain(std::chrono::microseconds time) {
  post([this, time] { begin_drain(time); });
}

Connection* HttpLoop::connection_or_null(ExchangeId exchange) const {
  const auto found = exchanges_.find(exchange);
  return found == exchanges_.end() ? nullptr : found->second;
}

void HttpLoop::visit_metrics(MetricVisitor& visitor) const {
  visitor.gauge("stemma_http_connections", static_cast<std::int64_t>(connections_.size()));
  visitor.gauge("stemma_http_exchanges", static_cast<std::int64_t>(exchanges_.size()));
  visitor.gauge("stemma_http_reading_body_bytes", shared_.body_bytes);
  visitor.gauge("stemma_http_waiting_bytes", shared_.waiting_bytes);
  shared_.tally.visit(visitor);
}

// --- Accepting

asio::awaitable<void> HttpLoop::accept_all() {
  while (!shared_.draining) {
    auto [error, socket] = co_await acceptor_.async_accept(kAwait);
    if (shared_.draining) break;
    if (!error) {
      keep(std::move(socket));
    } else if (error != asio::error::connection_aborted) {
      // No descriptor, no memory: to ask again at once would spin.
      if (++shared_.tally.accept_failures == 1) {
        STEMMA_LOG(kWarning, "http.accept_failed", kv("error", error.message()));
      }
      accept_timer_.expires_after(kAcceptPause);
      co_await accept_timer_.async_wait(kAwait);
    }
  }
}

void HttpLoop::keep(tcp::socket socket) {
  if (static_cast<std::int64_t>(connections_.size()) >= shared_.limits.connections_max) {
    ++shared_.tally.connections_refused;
    return;  // closed with its descriptor
  }
  ++shared_.tally.connections;
  ConnectionOwner& owner = *this;
  auto connection = std::make_unique<Connection>(std::move(socket), shared_, owner);
  Connection& kept = *connection;
  connections_.emplace(&kept, std::move(connection));
  kept.start();
}

void HttpLoop::begin_drain(std::chrono::microseconds time) {
  if (!std::exchange(shared_.draining, true)) {
    AsioError ignored;
    acceptor_.close(ignored);
    accept_timer_.cancel();
    for (const auto& [key, connection] : connections_) connection->drain();
  }
  if (connections_.empty()) return;
  drain_timer_.expires_after(
      std::clamp<std::chrono::microseconds>(time, std::chrono::microseconds::zero(), kDrainMax));
  drain_timer_.async_wait([this](const AsioError& error) {
    if (error) return;
    for (const auto& [key, connection] : connections_) connection->cut_off();
  });
}

// --- Connections' calls

std::optional<HttpResponse> HttpLoop::refusal(const HttpRequest& head) {
  return service_.refusal(head);
}

HttpResponse HttpLoop::error(const HttpRequest& head, int status, std::string_view why) {
  return service_.error(head, status, why);
}

void HttpLoop::begin_exchange(Connection& connection, HttpRequest&& request) {
  if (static_cast<std::int64_t>(exchanges_.size()) >= shared_.limits.in_flight_max) {
    ++shared_.tally.requests_turned_away;
    HttpResponse busy = service_.error(request, 503, "too many requests are in flight");
    busy.headers.emplace_back("Retry-After", "1");
    return connection.respond(std::move(busy));
  }
  ++shared_.tally.requests;
  const ExchangeId exchange(next_exchange_++);
  connection.name_exchange(exchange);
  exchanges_.emplace(exchange, &connection);
  service_.begin(exchange, std::move(request));
}

void HttpLoop::end_exchange(Connection& connection) {
  exchanges_.erase(connection.exchange());
}

// It is looked for among all: each time as much room is made as any of them takes.
Connection* HttpLoop::costliest_or_null(Cost cost) const {
  const auto now = std::chrono::steady_clock::now();
  Connection* costliest_or_null = nullptr;
  std::int64_t most = 0;
  for (const auto& [key, connection] : connections_) {
    const std::int64_t its = (connection.get()->*cost)(now);
    if (its <= most) continue;
    most = its;
    costliest_or_null = connection.get();
  }
  return costliest_or_null;
}

bool HttpLoop::make_body_room(const Connection& asker, std::int64_t bytes) {
  while (shared_.body_bytes + bytes > shared_.limits.body_bytes_total_max) {
    Connection* const costliest_or_null = this->costliest_or_null(&Connection::body_cost);
    if (costliest_or_null == nullptr || costliest_or_null == &asker) return false;
    costliest_or_null->refuse_body();
  }
  return true;
}

void HttpLoop::bound_waiting() {
  while (shared_.waiting_bytes > shared_.limits.waiting_bytes_total_max) {
    Connection* const costliest_or_null = this->costliest_or_null(&Connection::waiting_cost);
    if (costliest_or_null == nullptr) return;
    ++shared_.tally.slow_readers;
    costliest_or_null->cut_off();
  }
}

void HttpLoop::end_connection(Connection& connection) {
  const auto ended = connections_.extract(&connection);  // destroyed behind the service's call
  const ExchangeId exchange = connection.exchange();
  if (exchange.valid()) {
    exchanges_.erase(exchange);
    if (!connection.is_answer_whole()) {
      ++shared_.tally.gone;
      service_.gone(exchange, connection.is_cut_off() ? GoneBy::kServer : GoneBy::kClient);
    }
  }
  if (shared_.draining && connections_.empty()) drain_timer_.cancel();
}

}  // namespace stemma
