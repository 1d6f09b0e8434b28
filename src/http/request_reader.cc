#include "http/request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <optional>
#include <utility>

#include "base/ascii.h"
#include "base/check.h"
#include "http/url.h"

namespace stemma {
namespace {

namespace beast_http = boost::beast::http;
using BeastText = boost::beast::string_view;
using BeastError = boost::beast::error_code;

std::string_view view(BeastText text) {
  return {text.data(), text.size()};
}

}  // namespace

// Beast's parser, with what HttpRequest wants of it, and the rules that Beast leaves to its users.
class RequestReader::Parser final : public beast_http::basic_parser<true> {
 public:
  explicit Parser(const HttpLimits& limits) {
    body_limit(static_cast<std::uint64_t>(limits.body_bytes_max));
    // The gate in front of the parser counts the head.
    header_limit(static_cast<std::uint32_t>(limits.header_bytes_max) + 1);
  }

  HttpRequest request;
  bool http_1_0 = false;
  bool expects_continue = false;
  bool is_head = false;
  bool keeps_alive = false;
  // The first rule broken, if it was one of ours.
  int fault_status = 0;
  std::string_view fault_why;

 private:
  void fail(int status, std::string_view why, BeastError& error) {
    fault_status = status;
    fault_why = why;
    error = beast_http::error::bad_field;
  }

  void on_request_impl(beast_http::verb, BeastText method, BeastText target, int version,
                       BeastError& error) override {
    request.method.assign(method.data(), method.size());
    is_head = request.method == "HEAD";
    http_1_0 = version == 10;
    const std::string_view sent = without_authority(view(target));
    const auto is_target_byte = [](char c) { return c > ' ' && c < '\x7f' && c != '#'; };
    if (sent.empty() || sent.front() != '/' ||
        !std::all_of(target.begin(), target.end(), is_target_byte)) {
      return fail(400, "the request target must be a path, or a URL of http", error);
    }
    const std::string_view path = sent.substr(0, sent.find('?'));
    auto decoded = try_percent_decode(path);
    if (!decoded || decoded->find('\0') != std::string::npos) {
      return fail(400, "the path is badly percent-encoded", error);
    }
    request.path = *std::move(decoded);
    request.query = sent.substr(std::min(path.size() + 1, sent.size()));
  }

  // What stands behind scheme and host of a URL, as clients of a proxy send it; what is no URL as
  // it is. The host takes the place of the header's (RFC 9112, 3.2.2).
  std::string_view without_authority(std::string_view target) {
    constexpr std::string_view kScheme = "http://";
    if (!equals_ignoring_case(target.substr(0, kScheme.size()), kScheme)) return target;
    const std::string_view rest = target.substr(kScheme.size());
    const std::size_t end = std::min(rest.find_first_of("/?#"), rest.size());
    const std::string_view host = rest.substr(0, end);
    if (host.empty() || host.find('@') != std::string_view::npos) return target;
    target_host_ = host;
    return end == rest.size() ? "/" : rest.substr(end);
  }

  void on_field_impl(beast_http::field field, BeastText name, BeastText value,
                     BeastError& error) override {
    request.headers.emplace_back(lower_ascii(std::string(view(name))),
                                 std::string(value.data(), value.size()));
    switch (field) {
      case beast_http::field::host:
        return count_once(hosts_, "several Host headers", error);
      case beast_http::field::content_length:
        if (!std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; })) {
          return fail(400, "Content-Length is not one number", error);
        }
        return count_once(lengths_, "several Content-Length headers", error);
      case beast_http::field::transfer_encoding:
        if (http_1_0) return fail(400, "HTTP/1.0 has no Transfer-Encoding", error);
        if (!equals_ignoring_case(view(value), "chunked")) {
          return fail(501, "the only Transfer-Encoding here is chunked", error);
        }
        return count_once(encodings_, "several Transfer-Encoding headers", error);
      case beast_http::field::content_encoding:
        if (!equals_ignoring_case(view(value), "identity")) {
          return fail(415, "bodies are read as they are: no Content-Encoding is known here", error);
        }
        return;
      case beast_http::field::expect:
        if (!equals_ignoring_case(view(value), "100-continue")) {
          return fail(417, "the only expectation here is 100-continue", error);
        }
        expects_continue = !http_1_0;
        return;
      default:
        return;
    }
  }

  void count_once(int& count, std::string_view why, BeastError& error) {
    if (++count > 1) fail(400, why, error);
  }

  void on_header_impl(BeastError& error) override {
    keeps_alive = keep_alive();
    if (hosts_ == 0 && !http_1_0) return fail(400, "HTTP/1.1 needs a Host header", error);
    if (target_host_.empty()) return;
    std::erase_if(request.headers, [](const auto& header) { return header.first == "host"; });
    request.headers.emplace_back("host", target_host_);
  }

  // The parser sees no body.
  std::size_t on_body_impl(BeastText, BeastError&) override { return 0; }
  std::size_t on_chunk_body_impl(std::uint64_t, BeastText, BeastError&) override { return 0; }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, BeastError&) override {}
  void on_chunk_header_impl(std::uint64_t, BeastText, BeastError&) override {}
  void on_finish_impl(BeastError&) override {}
  void on_response_impl(int, BeastText, int, BeastError&) override {}

  std::string target_host_;  // of a target that is a URL
  int hosts_ = 0;
  int lengths_ = 0;
  int encodings_ = 0;
};

RequestReader::RequestReader(const HttpLimits& limits)
    : limits_(limits), parser_(std::make_unique<Parser>(limits)) {}

RequestReader::~RequestReader() = default;

std::size_t RequestReader::take(std::string_view bytes) {
  std::size_t taken = 0;
  if (progress_ == Progress::kHead) taken = take_head(bytes);
  if (progress_ == Progress::kBody && taken < bytes.size()) {
    taken += take_body(bytes.substr(taken));
  }
  return taken;
}

std::int64_t RequestReader::body_bytes() const {
  return static_cast<std::int64_t>(parser_->request.body.size());
}

const HttpRequest& RequestReader::head() const {
  return parser_->request;
}
bool RequestReader::keep_alive() const {
  return parser_->keeps_alive;
}
bool RequestReader::http_1_0() const {
  return parser_->http_1_0;
}
bool RequestReader::expects_continue() const {
  return parser_->expects_continue;
}
bool RequestReader::is_head() const {
  return parser_->is_head;
}

HttpRequest RequestReader::take_request() {
  STEMMA_CHECK(progress_ == Progress::kWhole, "only a whole request is given out");
  return std::move(parser_->request);
}

std::size_t RequestReader::take_head(std::string_view bytes) {
  std::size_t taken = 0;
  while (taken < bytes.size() && progress_ == Progress::kHead) {
    const char c = bytes[taken++];
    if (const char* why = head_fault_or_null(c)) {
      refuse(400, why);
      break;
    }
    head_ += c;
    if (static_cast<std::int64_t>(head_.size()) > limits_.header_bytes_max) {
      refuse(431, "the request's headers are too large");
    } else if (head_ == "\r\n" && !skipped_line_) {
      skipped_line_ = true;
      head_.clear();
    } else if (c == '\n' && head_.ends_with("\r\n\r\n")) {
      parse_head();
    }
  }
  return taken;
}

const char* RequestReader::head_fault_or_null(char c) const {
  const char last = head_.empty() ? '\n' : head_.back();
  if ((c == '\n') != (last == '\r')) return "a line does not end in CR LF";
  if ((c == ' ' || c == '\t') && last == '\n') return "a header line is folded";
  const auto byte = static_cast<unsigned char>(c);
  if ((byte < 0x20 && c != '\t' && c != '\r' && c != '\n') || byte == 0x7f) {
    return "a control byte in the headers";
  }
  return nullptr;
}

void RequestReader::parse_head() {
  BeastError error;
  const std::size_t used = parser_->put(boost::asio::buffer(head_), error);
  const bool too_large = error == beast_http::error::body_limit;
  has_head_ = too_large || !error;
  if (too_large) return refuse(413, "the request's body is too large");
  if (parser_->fault_status != 0) return refuse(parser_->fault_status, parser_->fault_why);
  if (error) return refuse(400, "the request's head is malformed");
  STEMMA_CHECK(used == head_.size() && parser_->is_header_done(), "a head ends at its empty line");
  std::string().swap(head_);
  left_bytes_ = static_cast<std::int64_t>(parser_->content_length().value_or(0));
  progress_ = parser_->chunked() || left_bytes_ > 0 ? Progress::kBody : Progress::kWhole;
}

std::size_t RequestReader::take_body(std::string_view bytes) {
  std::string& body = parser_->request.body;
  if (!parser_->chunked()) {
    const std::string_view piece = bytes.substr(0, static_cast<std::size_t>(left_bytes_));
    body += piece;
    left_bytes_ -= static_cast<std::int64_t>(piece.size());
    if (left_bytes_ == 0) progress_ = Progress::kWhole;
    return piece.size();
  }
  const std::size_t taken = chunks_.take(bytes, limits_.body_bytes_max, body);
  switch (chunks_.progress()) {
    case ChunkReader::Progress::kMore:
      break;
    case ChunkReader::Progress::kWhole:
      progress_ = Progress::kWhole;
      break;
    case ChunkReader::Progress::kMalformed:
      refuse(400, "the request's body is malformed");
      break;
    case ChunkReader::Progress::kTooLarge:
      refuse(413, "the request's body is too large");
      break;
  }
  return taken;
}

void RequestReader::refuse(int status, std::string_view why) {
  progress_ = Progress::kRefused;
  refused_status_ = status;
  refused_why_ = why;
}

}  // namespace stemma
