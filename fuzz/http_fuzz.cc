// Any bytes as HTTP requests on one connection, in pieces of any size: requests within their
// limits, or a refusal, the same however the bytes were cut; and what was read, written out again,
// is read as the same request. The first byte is the size of a piece.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "http/request_reader.h"
#include "http/url.h"

namespace {

using Progress = stemma::RequestReader::Progress;

stemma::HttpLimits small_limits() {
  stemma::HttpLimits limits;
  limits.header_bytes_max = 2048;
  limits.body_bytes_max = 4096;
  return limits;
}

std::string describe(const stemma::HttpRequest& request) {
  std::string text = request.method + "\n" + request.path + "\n" + request.query + "\n";
  for (const auto& [name, value] : request.headers) text += name + ":" + value + "\n";
  return text + "\n" + request.body;
}

// As a client would send it, with its body in one length.
std::string write_out(const stemma::HttpRequest& request) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string text = request.method + " /";
  for (const char c : request.path.substr(1)) {
    const auto byte = static_cast<unsigned char>(c);
    text += {'%', kDigits[byte / 16], kDigits[byte % 16]};
  }
  if (!request.query.empty()) text += "?" + request.query;
  text += " HTTP/1.1\r\n";
  for (const auto& [name, value] : request.headers) {
    if (name != "content-length" && name != "transfer-encoding") {
      text += name + ": " + value + "\r\n";
    }
  }
  if (request.header_or_null("host") == nullptr) text += "host: 1.0\r\n";
  return text + "content-length: " + std::to_string(request.body.size()) + "\r\n\r\n" +
         request.body;
}

void check_request(const stemma::HttpRequest& request, const stemma::HttpLimits& limits) {
  STEMMA_CHECK(static_cast<std::int64_t>(request.body.size()) <= limits.body_bytes_max, "bounded");
  STEMMA_CHECK(request.path.starts_with('/') && request.path.find('\0') == std::string::npos,
               "a path is a path");
  const auto value = stemma::query_value_or_null(request.query, "a");
  const bool is_there = value.ok() && value->has_value();
  STEMMA_CHECK(!is_there || (*value)->size() <= request.query.size(), "decoding never lengthens");
  const std::string written = write_out(request);
  stemma::HttpLimits wide = limits;
  wide.header_bytes_max *= 4;  // percent-encoding all of a path
  stemma::RequestReader again(wide);
  STEMMA_CHECK(again.take(written) == written.size(), "all of it is the request");
  STEMMA_CHECK(again.progress() == Progress::kWhole, "it is accepted again");
  const stemma::HttpRequest read = again.take_request();
  STEMMA_CHECK(read.method == request.method && read.path == request.path &&
                   read.query == request.query && read.body == request.body,
               "it is the same request");
  for (const auto& [name, text] : request.headers) {
    if (name == "content-length" || name == "transfer-encoding") continue;
    const std::string* first = request.header_or_null(name);
    const std::string* first_again = read.header_or_null(name);
    STEMMA_CHECK(first_again != nullptr && *first_again == *first, "with the same headers");
  }
}

// Every request in `bytes`, until one is refused or not whole.
std::string read_all(std::string_view bytes, std::size_t piece_bytes) {
  const stemma::HttpLimits limits = small_limits();
  std::string text;
  while (!bytes.empty()) {
    stemma::RequestReader reader(limits);
    while (!bytes.empty() &&
           (reader.progress() == Progress::kHead || reader.progress() == Progress::kBody)) {
      const std::string_view piece = bytes.substr(0, piece_bytes);
      const std::size_t taken = reader.take(piece);
      STEMMA_CHECK(taken <= piece.size(), "only what is there");
      STEMMA_CHECK(reader.body_bytes() <= limits.body_bytes_max, "bodies are bounded");
      bytes.remove_prefix(taken);
    }
    if (reader.progress() == Progress::kRefused) {
      return text + std::to_string(reader.refused_status()) + std::string(reader.refused_why());
    }
    if (reader.progress() != Progress::kWhole) return text + "more";
    text += reader.keep_alive() ? "keep " : "close ";
    const stemma::HttpRequest request = reader.take_request();
    check_request(request, limits);
    text += describe(request);
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  if (size_bytes < 1) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(bytes) + 1, size_bytes - 1);
  const std::string whole = read_all(stream, SIZE_MAX);
  STEMMA_CHECK(read_all(stream, std::size_t{bytes[0]} + 1) == whole,
               "what is read does not depend on how it came");
  return 0;
}
