// ChunkReader: the body of a chunked message, byte by byte.
//
//   chunked body = ( size [ ;extension ] CR LF  bytes CR LF )*  0 [ ;extension ] CR LF
//                  ( trailer CR LF )*  CR LF
//
// Strict: no blanks around sizes, no bare CR or LF, no control bytes. Extensions and trailers are
// read and dropped. Beast's own reader wants a line at once, and asserts on one that comes byte by
// byte.
//
// Thread:     one thread.
// Memory:     a few numbers; the body is its caller's.
// Cost:       one append for what a piece brings of a chunk.
// Not here:   heads (request_reader), chunks that are written (response_head).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stemma {

class ChunkReader {
 public:
  enum class Progress : std::uint8_t { kMore, kWhole, kMalformed, kTooLarge };

  // Takes from the front of `bytes` what belongs to the body, appends what it holds to `body`, and
  // returns how many bytes it took: all, unless the body has ended. kTooLarge as soon as a chunk's
  // size would make the body more than `body_bytes_max`.
  std::size_t take(std::string_view bytes, std::int64_t body_bytes_max, std::string& body);

  Progress progress() const { return progress_; }

 private:
  enum class State : std::uint8_t {
    kSize,          // its first digit, or the next, or what ends it
    kExtension,     // up to CR
    kSizeEnd,       // LF
    kBytes,         // chunk_bytes_ of them
    kBytesCr,       // CR
    kBytesEnd,      // LF
    kTrailerBegin,  // a trailer's first byte, or CR
    kTrailer,       // up to CR
    kTrailerEnd,    // LF
    kEnd,           // LF
  };

  // One byte of what is not a chunk's bytes. `bytes_max`: room for the chunk.
  void take_byte(char c, std::int64_t bytes_max);
  void take_size(char c, std::int64_t bytes_max);
  void take_trailer(char c);
  // Goes on to `next` if `c` is `expected`.
  void expect(char c, char expected, State next);
  void end(Progress how) { progress_ = how; }

  Progress progress_ = Progress::kMore;
  State state_ = State::kSize;
  std::int64_t chunk_bytes_ = 0;  // its size as far as it is read, then what is left of it
  std::int32_t line_bytes_ = 0;   // of this chunk's line, or of all trailers
  bool has_digit_ = false;
  bool has_colon_ = false;
};

}  // namespace stemma
