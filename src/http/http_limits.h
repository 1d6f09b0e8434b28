// HttpLimits: what one HTTP server takes in and waits for, at most.
//
// With them the server's memory is bounded whatever its clients do: connections that send nothing
// own no buffer, heads are bounded one by one, bodies and answers that wait for their readers one
// by one and all together. Where all together are too many, who has kept the most for the longest
// goes first: no client keeps the room from the others.
//
// Thread:     a value.
// Memory:     none.
// Cost:       none.
// Not here:   limits of what the requests ask for (openai/, Options).
#pragma once

#include <cstdint>

namespace stemma {

struct HttpLimits {
  // A request's line and headers; more is answered with 431. Also how much of the next requests is
  // kept while one is answered: beyond it the server stops reading.
  std::int64_t header_bytes_max = 32 << 10;
  // One request's body; more is answered with 413, before it is read where its length is said.
  std::int64_t body_bytes_max = 16 << 20;
  // Bodies that are being read, all together; beyond it 503, to those that keep the most.
  std::int64_t body_bytes_total_max = 256 << 20;
  // More are accepted and closed at once. Fewer where the system allows fewer open files.
  std::int64_t connections_max = 16'384;
  // Exchanges begun and not ended; the next request is answered with 503 and Retry-After: 1.
  std::int64_t in_flight_max = 8'192;
  // Bytes of one answer that wait for its reader, beside what came in the same turn of the I/O
  // thread, or in an earlier one that alone was more; a stream with more is cut off.
  std::int64_t stream_buffer_bytes_max = 256 << 10;
  // Bytes of answers that wait for their readers, all together; beyond it slow ones are cut off,
  // first those that have kept the most waiting for the longest.
  std::int64_t waiting_bytes_total_max = 512 << 20;

  std::int64_t header_us = 10'000'000;  // a whole head after its first byte, and that byte itself
  std::int64_t body_us = 60'000'000;    // a whole body after its head
  std::int64_t keep_alive_us = 75'000'000;   // between two requests of a connection
  std::int64_t write_stall_us = 30'000'000;  // without a byte accepted by a reader: cut off
  std::int64_t slow_reader_us = 1'000'000;   // that an answer waits for a reader that is not slow
};

}  // namespace stemma
