#include "http/response_head.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <utility>

#include "base/ascii.h"
#include "base/check.h"

namespace stemma {
namespace {

void append_header(std::string& out, std::string_view name, std::string_view value) {
  out += name;
  out += ": ";
  out += value;
  out += "\r\n";
}

// Printable bytes, tabs, and the upper half (UTF-8).
bool is_header_value(std::string_view value) {
  return std::all_of(value.begin(), value.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte >= 0x20 && byte != 0x7f) || byte == '\t';
  });
}

bool is_header_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  });
}

bool is_own_header(std::string_view name) {
  const std::string lower = lower_ascii(std::string(name));
  return lower == "content-type" || lower == "content-length" || lower == "transfer-encoding" ||
         lower == "connection" || lower == "server" || lower == "date";
}

// For people who read traces.
constexpr std::pair<int, std::string_view> kReasons[] = {
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
};

// Empty for the rare ones, as HTTP allows.
std::string_view reason_of(int status) {
  const auto* found = std::find_if(std::begin(kReasons), std::end(kReasons),
                                   [&](const auto& reason) { return reason.first == status; });
  return found == std::end(kReasons) ? "" : found->second;
}

}  // namespace

bool response_has_body(int status) {
  return status != 204 && status != 304;
}

void append_response_head(std::string& out, const HttpResponse& response,
                          const ResponseRules& rules) {
  STEMMA_CHECK(response.status >= 200 && response.status <= 599, "a final status");
  STEMMA_CHECK(response.body.empty() || response_has_body(response.status),
               "204 and 304 have no body");
  out += "HTTP/1.1 ";
  out += std::to_string(response.status);
  out += ' ';
  out += reason_of(response.status);
  out += "\r\nServer: stemma\r\n";
  if (!rules.date.empty()) append_header(out, "Date", rules.date);
  if (!response.content_type.empty() && response_has_body(response.status)) {
    STEMMA_CHECK(is_header_value(response.content_type), "a header holds no control bytes");
    append_header(out, "Content-Type", response.content_type);
  }
  if (response_has_body(response.status)) {
    if (rules.framing == BodyFraming::kLength) {
      append_header(out, "Content-Length", std::to_string(response.body.size()));
    } else if (rules.framing == BodyFraming::kChunked) {
      append_header(out, "Transfer-Encoding", "chunked");
    }
  }
  if (!rules.keep_alive) {
    append_header(out, "Connection", "close");
  } else if (rules.http_1_0) {
    append_header(out, "Connection", "keep-alive");
  }
  for (const auto& [name, value] : response.headers) {
    STEMMA_CHECK(is_header_name(name) && !is_own_header(name), "a name of the caller's to set");
    STEMMA_CHECK(is_header_value(value), "a header holds no control bytes");
    append_header(out, name, value);
  }
  out += "\r\n";
}

void append_chunk(std::string& out, std::string_view piece) {
  STEMMA_CHECK(!piece.empty(), "an empty chunk would end the body");
  char digits[2 * sizeof(std::size_t)];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), piece.size(), 16).ptr;
  out.append(digits, end);
  out += "\r\n";
  out += piece;
  out += "\r\n";
}

void append_last_chunk(std::string& out) {
  out += "0\r\n\r\n";
}

}  // namespace stemma
