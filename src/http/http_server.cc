#include "http/http_server.h"

#include <boost/asio/ip/address.hpp>
#include <utility>

#include "http/connection.h"
#include "http/http_loop.h"

namespace stemma {

bool is_loopback(const std::string& address) {
  if (address == "localhost") return true;
  boost::system::error_code error;
  const auto parsed = boost::asio::ip::make_address(address, error);
  if (error) return false;
  if (parsed.is_v6() && parsed.to_v6().is_v4_mapped()) {
    using boost::asio::ip::v4_mapped;
    return boost::asio::ip::make_address_v4(v4_mapped, parsed.to_v6()).is_loopback();
  }
  return parsed.is_loopback();
}

Result<std::unique_ptr<HttpServer>> HttpServer::open(const HttpServerOptions& options,
                                                     HttpService& service) {
  STEMMA_ASSIGN_OR_RETURN(auto loop, HttpLoop::open(options, service));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(loop)));
}

HttpServer::HttpServer(std::unique_ptr<HttpLoop> loop) : loop_(std::move(loop)) {}
HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::port() const {
  return loop_->port();
}
void HttpServer::run() {
  loop_->run();
}
void HttpServer::post(std::function<void()> work) {
  loop_->post(std::move(work));
}
void HttpServer::drain(std::chrono::microseconds time) {
  loop_->drain(time);
}

void HttpServer::respond(ExchangeId exchange, HttpResponse response) {
  Connection* connection = loop_->connection_or_null(exchange);
  if (connection != nullptr) connection->respond(std::move(response));
}

void HttpServer::begin_stream(ExchangeId exchange, HttpResponse head) {
  Connection* connection = loop_->connection_or_null(exchange);
  if (connection != nullptr) connection->begin_stream(std::move(head));
}

void HttpServer::write(ExchangeId exchange, std::string_view piece) {
  Connection* connection = loop_->connection_or_null(exchange);
  if (connection != nullptr) connection->write(piece);
}

void HttpServer::end_stream(ExchangeId exchange) {
  Connection* connection = loop_->connection_or_null(exchange);
  if (connection != nullptr) connection->end_stream();
}

std::int64_t HttpServer::waiting_bytes(ExchangeId exchange) const {
  const Connection* connection = loop_->connection_or_null(exchange);
  return connection == nullptr ? 0 : connection->waiting_bytes();
}

void HttpServer::visit_metrics(MetricVisitor& visitor) const {
  loop_->visit_metrics(visitor);
}

}  // namespace stemma
