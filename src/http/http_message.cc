#include "http/http_message.h"

#include <algorithm>

#include "base/check.h"

namespace stemma {

const std::string* HttpRequest::header_or_null(std::string_view lower_case_name) const {
  const auto found = std::find_if(headers.begin(), headers.end(), [&](const auto& header) {
    return header.first == lower_case_name;
  });
  return found == headers.end() ? nullptr : &found->second;
}

HttpResponse http_error_response(int status, std::string_view message) {
  STEMMA_CHECK(status >= 400 && status <= 599, "an error has an error's status");
  const auto is_plain = [](char c) { return c >= ' ' && c != '"' && c != '\\'; };
  STEMMA_CHECK(std::all_of(message.begin(), message.end(), is_plain), "JSON needs no escapes here");
  HttpResponse response;
  response.status = status;
  response.body = "{\"error\":{\"message\":\"";
  response.body += message;
  response.body += "\",\"type\":\"";
  response.body += status < 500 ? "invalid_request_error" : "server_error";
  response.body += "\",\"param\":null,\"code\":null}}";
  return response;
}

}  // namespace stemma
