// TraceReader: the requests of a trace file, one after another, in any format (trace_format).
//
// Thread:     one thread a reader.
// Memory:     one line at a time, at most kTraceLineBytesMax, and what the checks remember; a trace
//             of any length.
// Cost:       parsing, about 100 MB/s.
// Not here:   several files as one trace (trace_merge), what is done with the requests (replayer).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "replay/line_reader.h"
#include "replay/trace_consistency.h"
#include "replay/trace_format.h"
#include "replay/trace_parser.h"
#include "replay/trace_request.h"
#include "stemma/result.h"

namespace stemma {

// Reads one line of a format in which a line is a request. `where` ("FILE:LINE") is for errors
// only.
Result<TraceRequest> parse_trace_line(std::string_view line, const TraceFormat& format,
                                      std::string_view where);

class TraceReader {
 public:
  // kNotFound if there is no such file; else the error names the flag that is wrong. `places` are
  // those of TraceConsistency. Requests come as they stand in the file, even if their order is not
  // to be checked (reorder_requests).
  static Result<TraceReader> open(const std::string& path, const TraceOptions& options,
                                  std::size_t places = TraceConsistency::kPlaces);
  // The same by name; kNotFound for an unknown format, listing the known ones.
  static Result<TraceReader> open(const std::string& path, std::string_view format,
                                  bool skip_bad = false);

  // Reads the next request. False at the end of the file. An error names file, line and field, and
  // ends the reading.
  Result<bool> next(TraceRequest& request);

  // "FILE:LINE", of the last line read.
  std::string where() const { return lines_.path() + ":" + std::to_string(lines_.line_number()); }
  // Tokens that one page stands for; 0 as long as the file has not said it.
  std::int64_t page_tokens() const { return parser_->page_tokens(); }
  // Bytes of the file read so far.
  std::int64_t read_bytes() const noexcept { return lines_.read_bytes(); }
  // Lines left out so far.
  std::int64_t skipped_lines() const noexcept { return skipped_lines_; }

 private:
  TraceReader(LineReader lines, std::unique_ptr<TraceParser> parser, const TraceOptions& options,
              std::size_t places);

  // Hands the next line to the parser. False at the end of the file.
  Result<bool> read_line();
  // An error that ends the reading, or one more line left out.
  Status leave_out(Error error);

  LineReader lines_;
  std::unique_ptr<TraceParser> parser_;
  bool skip_bad_;
  TraceConsistency consistency_;
  bool ended_ = false;
  std::int64_t skipped_lines_ = 0;
};

}  // namespace stemma
