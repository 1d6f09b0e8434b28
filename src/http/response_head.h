// ResponseHead: the status line and headers of an answer, and the framing of its body.
//
// Thread:     pure functions.
// Memory:     appended to the caller's text.
// Cost:       one append a part.
// Not here:   sending (connection), what is answered (the service).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "http/http_message.h"

namespace stemma {

// How a reader knows where the body ends.
enum class BodyFraming : std::uint8_t {
  kLength,      // Content-Length
  kChunked,     // pieces with their sizes
  kUntilClose,  // the end of the connection: HTTP/1.0 knows no chunks
};

// What the connection says of itself.
struct ResponseRules {
  BodyFraming framing = BodyFraming::kLength;
  bool keep_alive = true;
  bool http_1_0 = false;       // the request's version
  std::string_view date = {};  // HttpDate's, of now; empty: unknown
};

// Appends the head of `response`. REQUIRES: its headers keep to what HttpResponse says; a caller's
// line break in a header would let a client write answers of its own.
void append_response_head(std::string& out, const HttpResponse& response,
                          const ResponseRules& rules);

// Whether an answer of this status has a body at all.
bool response_has_body(int status);

// Appends `piece` as a chunk. REQUIRES: not empty (an empty chunk is the end).
void append_chunk(std::string& out, std::string_view piece);
// Appends the end of a chunked body.
void append_last_chunk(std::string& out);

}  // namespace stemma
