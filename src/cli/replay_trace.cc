#include "cli/replay_trace.h"

#include <filesystem>
#include <system_error>
#include <utility>

namespace stemma {

namespace {

std::int64_t size_bytes_of(const std::vector<std::string>& paths) {
  std::int64_t total_bytes = 0;
  for (const std::string& path : paths) {
    std::error_code unknown;
    const auto size_bytes = std::filesystem::file_size(path, unknown);
    if (unknown) return 0;
    total_bytes += static_cast<std::int64_t>(size_bytes);
  }
  return total_bytes;
}

}  // namespace

Result<ReplayTrace> ReplayTrace::open(const ReplayFlags& flags, const TraceSource& source) {
  STEMMA_ASSIGN_OR_RETURN(TraceMerge reader, source.read());
  ReplayTrace trace(std::move(reader), size_bytes_of(flags.traces.traces));
  STEMMA_ASSIGN_OR_RETURN(const bool more, trace.reader_.next(trace.first_));
  if (!more) return Error{ErrorCode::kInvalidArgument, flags.trace() + ": holds no requests"};
  return trace;
}

Result<bool> ReplayTrace::next(TraceRequest& request) {
  if (!at_first_) return reader_.next(request);
  at_first_ = false;
  request = std::move(first_);
  return true;
}

}  // namespace stemma
