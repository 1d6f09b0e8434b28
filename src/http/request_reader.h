// RequestReader: bytes, in pieces of any size, to one HTTP request, or to the reason to refuse it.
//
// Boost.Beast parses the head; in front of it stands a stricter gate, because what two programs
// read differently is what attackers use. Refused with 400: both Content-Length and Transfer-
// Encoding, several of either, line feeds without carriage returns and the reverse, folded header
// lines, control bytes, targets that are neither a path nor a URL of http, bad percent-encoding,
// bad chunks, HTTP/1.1 without exactly one Host. With 413, 415, 417, 431, 501: a body or a head too
// large, a body that is compressed, an expectation or a transfer encoding unknown. One empty line
// before a request is skipped (RFC 9112, 2.2); trailers are read and dropped.
//
// Thread:     one thread.
// Memory:     the head until it is whole, then the body as far as it came, at most twice.
// Cost:       the body is copied once.
// Not here:   sockets, deadlines, the bodies of other connections (connection).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "http/chunk_reader.h"
#include "http/http_limits.h"
#include "http/http_message.h"

namespace stemma {

class RequestReader {
 public:
  // What it reads now, or how it ended.
  enum class Progress : std::uint8_t { kHead, kBody, kWhole, kRefused };

  // `limits` must outlive the reader.
  explicit RequestReader(const HttpLimits& limits);
  ~RequestReader();

  // Takes what belongs to this request from the front of `bytes`, and returns how many bytes that
  // were: all of them, unless the request is whole, or refused. Then it takes no more.
  std::size_t take(std::string_view bytes);

  Progress progress() const { return progress_; }
  // Whether anything of the request has come.
  bool has_begun() const { return progress_ != Progress::kHead || !head_.empty(); }
  // Bytes of the body so far.
  std::int64_t body_bytes() const;

  // Whether the head is whole and sound, also if the request is refused for its body.
  bool has_head() const { return has_head_; }
  // Of such a head:
  const HttpRequest& head() const;
  bool keep_alive() const;
  bool http_1_0() const;
  // Whether the client waits for "100 Continue" before it sends the body.
  bool expects_continue() const;
  // Whether the method is known to be HEAD, also if the request is refused.
  bool is_head() const;

  // REQUIRES: progress() is kRefused.
  int refused_status() const { return refused_status_; }
  std::string_view refused_why() const { return refused_why_; }

  // Gives the request out; its peer is empty. REQUIRES: progress() is kWhole; once.
  HttpRequest take_request();

 private:
  class Parser;

  std::size_t take_head(std::string_view bytes);
  // Why `c` may not come next in a head, or null.
  const char* head_fault_or_null(char c) const;
  void parse_head();
  std::size_t take_body(std::string_view bytes);
  void refuse(int status, std::string_view why);

  const HttpLimits& limits_;
  std::unique_ptr<Parser> parser_;
  Progress progress_ = Progress::kHead;
  std::string head_;             // as far as it has come; empty once parsed
  ChunkReader chunks_;           // of a chunked body
  std::int64_t left_bytes_ = 0;  // of a body of known length
  bool skipped_line_ = false;
  bool has_head_ = false;
  int refused_status_ = 0;
  std::string_view refused_why_;  // a literal
};

}  // namespace stemma
