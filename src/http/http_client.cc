#include "http/http_client.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <charconv>
#include <memory>

namespace stemma {
namespace {

namespace beast_http = boost::beast::http;

Error io_error(std::string_view what) {
  return {ErrorCode::kIo, std::string(what), errno};
}

struct FreeAddresses {
  void operator()(addrinfo* addresses) const noexcept { freeaddrinfo(addresses); }
};

// Calls with a limit of time are interrupted where the process was stopped meanwhile, too
// (signal(7)).
template <typename Call>
ssize_t uninterrupted(const Call& call) {
  for (;;) {
    const ssize_t moved = call();
    if (moved >= 0 || errno != EINTR) return moved;
  }
}

// A connected socket, or -1.
int connect_to(const addrinfo& address, std::chrono::seconds patience) {
  const int socket = ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  const timeval time = {patience.count(), 0};
  const int on = 1;
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  // One that was interrupted goes on when it is called again.
  const auto connect = [&] { return ::connect(socket, address.ai_addr, address.ai_addrlen); };
  if (uninterrupted(connect) == 0) return socket;
  ::close(socket);
  return -1;
}

using AnswerParser = beast_http::response_parser<beast_http::string_body>;

// Whether an answer that does not say how long it is is whole now that the connection is at its
// end.
bool ends_with_connection(AnswerParser& parser) {
  if (!parser.is_header_done()) return false;
  boost::system::error_code error;
  parser.put_eof(error);
  return !error && parser.is_done();
}

bool is_bracketed(std::string_view host) {
  return host.starts_with('[') && host.ends_with(']');
}

}  // namespace

Result<HttpAddress> parse_http_url(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  const Error wrong = {ErrorCode::kInvalidArgument,
                       fmt::format("\"{}\" is not of the form http://HOST:PORT", url)};
  if (!url.starts_with(kScheme)) return wrong;
  std::string_view rest = url.substr(kScheme.size());
  if (rest.ends_with('/')) rest.remove_suffix(1);
  HttpAddress address;
  // Those of an IPv6 address are in brackets.
  const std::size_t colon = is_bracketed(rest) ? std::string_view::npos : rest.rfind(':');
  address.host = std::string(rest.substr(0, colon));
  if (colon != std::string_view::npos) {
    const std::string_view port = rest.substr(colon + 1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
    if (error != std::errc() || end != port.data() + port.size()) return wrong;
  }
  const bool plain = address.host.find_first_of("/:[]") == std::string::npos;
  if (address.host.empty() || !(plain || is_bracketed(address.host))) return wrong;
  return address;
}

Result<HttpClient> HttpClient::connect(const HttpAddress& address, std::chrono::seconds patience) {
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  const std::string name =
      is_bracketed(address.host) ? address.host.substr(1, address.host.size() - 2) : address.host;
  const int failed = getaddrinfo(name.c_str(), port.c_str(), &wanted, &found);
  if (failed != 0) return Error{ErrorCode::kIo, address.host + ": " + gai_strerror(failed)};
  const std::unique_ptr<addrinfo, FreeAddresses> owned(found);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const int socket = connect_to(*each, patience);
    if (socket >= 0) return HttpClient(socket, address.host + ":" + port);
  }
  return io_error(address.host + ":" + port + ": cannot connect");
}

HttpClient::HttpClient(HttpClient&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), host_(std::move(other.host_)) {}

HttpClient::~HttpClient() {
  if (socket_ >= 0) ::close(socket_);
}

Status HttpClient::send_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent =
        uninterrupted([&] { return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL); });
    if (sent <= 0) return io_error(host_ + ": cannot send");
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return {};
}

Result<HttpResponse> HttpClient::ask(std::string_view method, std::string_view path,
                                     std::string_view body, const Headers& headers) {
  std::string message = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n", method,
                                    path, host_, body.size());
  for (const auto& [name, value] : headers) message += fmt::format("{}: {}\r\n", name, value);
  message.append("\r\n").append(body);
  STEMMA_RETURN_IF_ERROR(send_all(message));
  return read_answer();
}

Result<HttpResponse> HttpClient::read_answer() {
  AnswerParser parser;
  parser.eager(true);
  parser.body_limit(std::uint64_t{1} << 30);
  std::string unread;
  std::array<char, 16384> piece;
  while (!parser.is_done()) {
    const ssize_t got =
        uninterrupted([&] { return ::recv(socket_, piece.data(), piece.size(), 0); });
    if (got < 0) return io_error(host_ + ": the answer broke off");
    boost::system::error_code error;
    if (got == 0) {
      if (ends_with_connection(parser)) break;
      return Error{ErrorCode::kIo, host_ + ": the answer broke off"};
    }
    unread.append(piece.data(), static_cast<std::size_t>(got));
    const std::size_t used =
        parser.put(boost::asio::const_buffer(unread.data(), unread.size()), error);
    unread.erase(0, used);
    if (error && error != beast_http::error::need_more) {
      return Error{ErrorCode::kCorrupt, host_ + ": not an HTTP answer: " + error.message()};
    }
  }
  HttpResponse response;
  response.status = static_cast<int>(parser.get().result_int());
  response.body = std::move(parser.get().body());
  for (const auto& field : parser.get()) {
    response.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  return response;
}

}  // namespace stemma
