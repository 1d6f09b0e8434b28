// TraceReader: the requests of a trace file, one after another.
//
// Format "mooncake" (Mooncake, FAST'25): one JSON object a line with `timestamp` (ms),
// `input_length` and `output_length` (tokens), and `hash_ids`: one id for each 512 tokens of the
// input, the last one possibly partial. Equal ids mean equal prefixes up to and including that
// piece.
//
// Thread:     one thread a reader.
// Memory:     one line at a time, at most kTraceLineBytesMax; a trace of any length.
// Cost:       parsing, about 100 MB/s.
// Not here:   what is done with the requests (replayer).
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/result.h"

namespace stemma {

// A line longer than this is refused: no request of a real trace comes near.
inline constexpr std::size_t kTraceLineBytesMax = std::size_t{4} << 20;

// One request of a trace.
struct TraceRequest {
  double timestamp_ms = 0;
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
  std::vector<std::int64_t> page_hashes;  // one for each page of the input, in order
};

// Reads one line of a mooncake trace. `where` ("FILE:LINE") is for errors only.
Result<TraceRequest> parse_mooncake_line(std::string_view line, std::string_view where);

class TraceReader {
 public:
  // kNotFound if there is no such file or no such format; the latter lists the known ones.
  static Result<TraceReader> open(const std::string& path, const std::string& format);

  // Reads the next request. False at the end of the file. An error names file, line and field, and
  // ends the reading.
  Result<bool> next(TraceRequest& request);

  // Tokens that one page of this format stands for.
  std::int64_t page_tokens() const noexcept { return 512; }

 private:
  TraceReader(std::string path, std::ifstream file);

  std::string path_;
  std::ifstream file_;
  std::vector<char> line_;  // of the largest allowed length
  std::int64_t line_number_ = 0;
};

}  // namespace stemma
