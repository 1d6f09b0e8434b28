// ReplayTrace: the trace that was named on the command line, read once.
//
// Thread:     main.
// Memory:     a TraceReader's, and one request.
// Cost:       that of reading.
// Not here:   formats (replay/trace_reader).
#pragma once

#include <cstdint>
#include <memory>

#include "cli/replay_flags.h"
#include "replay/trace_reader.h"
#include "stemma/result.h"

namespace stemma {

class ReplayTrace {
 public:
  // Opens it and reads its first request: an error if that is wrong, or if there is none.
  static Result<ReplayTrace> open(const ReplayFlags& flags);

  // The next request, from the first on; false at the end. Errors name file and line.
  Result<bool> next(TraceRequest& request);

  // Tokens of a page.
  std::int64_t page_tokens() const { return reader_.page_tokens(); }
  // So far.
  std::int64_t skipped_lines() const { return reader_.skipped_lines(); }
  std::int64_t read_bytes() const { return reader_.read_bytes(); }
  // Of the whole file; 0 if it is not known.
  std::int64_t size_bytes() const noexcept { return size_bytes_; }

 private:
  ReplayTrace(TraceReader reader, std::int64_t size_bytes)
      : reader_(std::move(reader)), size_bytes_(size_bytes) {}

  TraceReader reader_;
  std::int64_t size_bytes_;
  TraceRequest first_;
  bool at_first_ = true;
};

}  // namespace stemma
