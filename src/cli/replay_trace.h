// ReplayTrace: the traces that were named on the command line, read once as one.
//
// Thread:     main.
// Memory:     a TraceMerge's, and one request.
// Cost:       that of reading.
// Not here:   formats (replay/trace_reader), merging (replay/trace_merge).
#pragma once

#include <cstdint>
#include <memory>

#include "cli/replay_flags.h"
#include "replay/trace_merge.h"
#include "stemma/result.h"

namespace stemma {

class ReplayTrace {
 public:
  // Opens it and reads its first request: an error if that is wrong, or if there is none.
  // `source` is of the flags' traces and must outlive it.
  static Result<ReplayTrace> open(const ReplayFlags& flags, const TraceSource& source);

  // The next request, from the first on; false at the end. Errors name file and line.
  Result<bool> next(TraceRequest& request);

  // Tokens of a page.
  std::int64_t page_tokens() const { return reader_.page_tokens(); }
  // So far.
  std::int64_t skipped_lines() const { return reader_.skipped_lines(); }
  std::int64_t read_bytes() const { return reader_.read_bytes(); }
  // Of all files; 0 if it is not known.
  std::int64_t size_bytes() const noexcept { return size_bytes_; }

  // One line on standard error where requests so far had other numbers of tokens than their hashes
  // stand for: of a trace whose pages are of another size than is believed every figure is wrong.
  void warn_if_misfit(const ReplayFlags& flags) const;

 private:
  ReplayTrace(TraceMerge reader, std::int64_t size_bytes)
      : reader_(std::move(reader)), size_bytes_(size_bytes) {}

  TraceMerge reader_;
  std::int64_t size_bytes_;
  TraceRequest first_;
  bool at_first_ = true;
  std::int64_t misfits_ = 0;
};

}  // namespace stemma
