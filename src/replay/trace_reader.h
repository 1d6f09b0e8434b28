// TraceReader: the requests of a trace file, one after another.
//
// Formats, one JSON object a line:
//   mooncake      (Mooncake, FAST'25)  `timestamp` (ms), `input_length` and `output_length`
//                 (tokens), `hash_ids`: one id for each 512 tokens of the input, the last ones
//                 possibly fewer. Equal ids mean equal prefixes up to and including that piece.
//   qwen-bailian  (Alibaba, anonymised usage traces of Bailian)  the same fields, `timestamp` in
//                 seconds and 16 tokens an id; what else a line holds is not read.
//   prompts       full text: `input`, `output` (may be absent), `timestamp` in microseconds, as in
//                 LMCache's agent traces. A token is a character here, a page the next 64 of them;
//                 what is left at the end is no page.
//
// Thread:     one thread a reader.
// Memory:     one line at a time, at most kTraceLineBytesMax, and 20 MiB; a trace of any length.
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

struct TraceFormat {
  std::string_view name;
  std::int64_t page_tokens = 0;  // of one page: that an id stands for, or that text is cut into
  double ms_per_time_unit = 0;
  bool of_text = false;
};

// kNotFound for any other name, listing the known ones.
Result<TraceFormat> find_trace_format(std::string_view name);

// Reads one line. `where` ("FILE:LINE") is for errors only.
Result<TraceRequest> parse_trace_line(std::string_view line, const TraceFormat& format,
                                      std::string_view where);

// What must hold from one request to the next: time does not go back, and an id has one prefix. The
// latter is checked for the 2^20 places that ids fall into, each of which remembers the last id
// that fell there.
class TraceConsistency {
 public:
  TraceConsistency();

  // Whether `request` may follow those before it; an error names the field.
  Status check(const TraceRequest& request, std::string_view where);

 private:
  struct Place {
    std::int64_t id = -1;
    std::int64_t id_before = -1;  // in the prefix; -1 at its begin
  };

  std::vector<Place> places_;
  double latest_ms_ = 0;
  bool any_ = false;
};

class TraceReader {
 public:
  // kNotFound if there is no such file or no such format; the latter lists the known ones. With
  // skip_bad, lines that are wrong are counted and left out.
  static Result<TraceReader> open(const std::string& path, const std::string& format,
                                  bool skip_bad = false);

  // Reads the next request. False at the end of the file. An error names file, line and field, and
  // ends the reading.
  Result<bool> next(TraceRequest& request);

  // Tokens that one page of this format stands for.
  std::int64_t page_tokens() const noexcept { return format_.page_tokens; }
  // Lines left out so far.
  std::int64_t skipped_lines() const noexcept { return skipped_lines_; }

 private:
  TraceReader(std::string path, std::ifstream file, const TraceFormat& format, bool skip_bad);

  // One line that holds something; false at the end of the file.
  Result<bool> next_line(std::string_view& line);
  Status read_request(std::string_view line, TraceRequest& request);
  std::string where() const { return path_ + ":" + std::to_string(line_number_); }

  std::string path_;
  std::ifstream file_;
  TraceFormat format_;
  bool skip_bad_;
  std::vector<char> line_;  // of the largest allowed length
  TraceConsistency consistency_;
  std::int64_t line_number_ = 0;
  std::int64_t skipped_lines_ = 0;
};

}  // namespace stemma
