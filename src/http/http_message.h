// HttpRequest, HttpResponse: one request as the server read it, one answer as it will write it.
//
// Thread:     values.
// Memory:     their strings.
// Cost:       a look-up walks the headers.
// Not here:   how they lie on the wire (request_reader, response_head), JSON, queries (url).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stemma {

struct HttpRequest {
  std::string method;  // as sent; methods are case-sensitive
  std::string path;    // percent-decoded, without the query; begins with '/', holds no NUL
  std::string query;   // what follows the '?', as sent; query_value_or_null reads it
  std::vector<std::pair<std::string, std::string>> headers;  // in order; names in lower case
  std::string body;
  std::string peer;  // the client's address, without its port

  // The value of the first header of that name.
  const std::string* header_or_null(std::string_view lower_case_name) const;
};

struct HttpResponse {
  int status = 200;                               // 200 to 599
  std::string content_type = "application/json";  // empty: no such header
  // More headers, names in any case. Neither names nor values hold control bytes; Content-Type and
  // those that frame the message (Content-Length, Transfer-Encoding, Connection) are not among
  // them.
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};  // none with 204 and 304
};

// An error in the shape that OpenAI's clients read. `message` is put into JSON as it is.
// REQUIRES: `message` has no quotation mark, backslash or control byte; status is 400 to 599.
HttpResponse http_error_response(int status, std::string_view message);

}  // namespace stemma
