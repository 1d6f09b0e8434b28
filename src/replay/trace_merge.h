// TraceMerge: several trace files of one format as one trace, their requests in the order of time.
//
// Each file must be in that order itself, or out of it by less than reorder_requests. Requests of
// the same time come in the order of the files, and of one file as they stand there. Hashes mean
// the same in all files where they are made from content (prompts); ids that each file counts for
// itself (mooncake) would share by accident.
//
// Thread:     one thread a merge.
// Memory:     reorder_requests requests, one reader and an equal part of TraceConsistency's places
//             a file.
// Cost:       that of reading, and O(log requests at hand) a request.
// Not here:   reading one file (trace_reader).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "replay/trace_reader.h"

namespace stemma {

class TraceMerge {
 public:
  // kInvalidArgument if there are no files; the other errors are those of TraceReader.
  static Result<TraceMerge> open(const std::vector<std::string>& paths,
                                 const TraceOptions& options);

  // Reads the next request of all files. False when all have ended. An error names file, line and
  // field, and ends the reading.
  Result<bool> next(TraceRequest& request);

  // Tokens that one page stands for, the same in every file; 0 as long as no file has said it.
  std::int64_t page_tokens() const noexcept { return page_tokens_; }
  // Bytes read so far, of all files.
  std::int64_t read_bytes() const noexcept;
  // Lines left out so far, in all files.
  std::int64_t skipped_lines() const noexcept;

 private:
  // A request that is at hand, and where it was read.
  struct Waiting {
    TraceRequest request;
    std::size_t source = 0;
    std::int64_t number = 0;  // in the order of reading
    std::string where;
  };

  explicit TraceMerge(const TraceOptions& options) : skip_bad_(options.skip_bad) {}

  // Takes one more request of the source to hand, if it has one.
  Status fetch(std::size_t source);
  Waiting take_earliest();

  bool skip_bad_;
  std::vector<TraceReader> readers_;
  std::vector<Waiting> heap_;  // the earliest on top
  std::int64_t page_tokens_ = 0;
  std::int64_t fetched_ = 0;
  double latest_ms_ = 0;
  std::int64_t late_requests_ = 0;  // left out
};

}  // namespace stemma
