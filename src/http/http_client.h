// HttpClient: asks a server, one request after another over one connection, and waits for each
// answer: for tools and benchmarks, which have a thread a client.
//
// Thread:     one thread a client.
// Memory:     one answer.
// Cost:       two system calls a request and the server's time.
// Not here:   TLS, proxies, redirects, pieces of an answer before it is whole.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/http_message.h"
#include "stemma/result.h"

namespace stemma {

// Where a server is.
struct HttpAddress {
  std::string host;  // a name or an address, that of IPv6 in brackets
  std::uint16_t port = 80;
};

// "http://HOST[:PORT][/]"; kInvalidArgument for anything else.
Result<HttpAddress> parse_http_url(std::string_view url);

class HttpClient {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;

  // kIo, with errno, if nobody is there. Each call of the system waits `patience` at most, from the
  // last signal on that interrupted it.
  static Result<HttpClient> connect(const HttpAddress& address,
                                    std::chrono::seconds patience = std::chrono::seconds(60));
  HttpClient(HttpClient&& other) noexcept;
  HttpClient& operator=(HttpClient&&) = delete;
  ~HttpClient();

  // The whole answer, whatever its status. After an error the connection is of no use any more.
  Result<HttpResponse> ask(std::string_view method, std::string_view path, std::string_view body,
                           const Headers& headers = {});

 private:
  HttpClient(int socket, std::string host) : socket_(socket), host_(std::move(host)) {}
  Status send_all(std::string_view bytes);
  Result<HttpResponse> read_answer();

  int socket_;
  std::string host_;
};

}  // namespace stemma
