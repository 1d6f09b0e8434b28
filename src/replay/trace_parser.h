// TraceParser: lines of one trace file become requests. One class a family of formats.
//
// Thread:     one thread a parser.
// Memory:     one line parsed; kv-events also what its header says.
// Cost:       parsing, about 100 MB/s.
// Not here:   files and their lines (trace_reader), what must hold between requests
//             (trace_consistency).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "replay/trace_format.h"
#include "replay/trace_request.h"
#include "stemma/result.h"

namespace stemma {

class TraceParser {
 public:
  virtual ~TraceParser() = default;

  // Reads the next line. `where` ("FILE:LINE") is for errors only, which name the field. A line
  // that is wrong changes nothing.
  // REQUIRES: try_next said that there is no more.
  virtual Status take(std::string_view line, std::string_view where) = 0;

  // Gives the next request that is complete by the lines taken so far: none, one or several a line.
  virtual bool try_next(TraceRequest& request);

  // There are no more lines: what is still open is complete, too.
  virtual void end();

  // Tokens of one page; 0 as long as no line said it.
  virtual std::int64_t page_tokens() const = 0;

  // Whether equal hashes always stand behind equal hashes.
  virtual bool hashes_are_chained() const;

 protected:
  std::optional<TraceRequest> ready_;
};

// The parser of the format. The error names the flag that is wrong.
Result<std::unique_ptr<TraceParser>> make_trace_parser(const TraceOptions& options);

}  // namespace stemma
