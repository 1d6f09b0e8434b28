#include "cli/replay_trace.h"

#include <filesystem>
#include <system_error>
#include <utility>

namespace stemma {

namespace {

std::int64_t file_size_bytes(const std::string& path) {
  std::error_code unknown;
  const auto size_bytes = std::filesystem::file_size(path, unknown);
  return unknown ? 0 : static_cast<std::int64_t>(size_bytes);
}

}  // namespace

Result<ReplayTrace> ReplayTrace::open(const ReplayFlags& flags) {
  STEMMA_ASSIGN_OR_RETURN(TraceReader reader,
                          TraceReader::open(flags.trace, flags.format, flags.skip_bad));
  ReplayTrace trace(std::move(reader), file_size_bytes(flags.trace));
  STEMMA_ASSIGN_OR_RETURN(const bool more, trace.reader_.next(trace.first_));
  if (!more) return Error{ErrorCode::kInvalidArgument, flags.trace + ": holds no requests"};
  return trace;
}

Result<bool> ReplayTrace::next(TraceRequest& request) {
  if (!at_first_) return reader_.next(request);
  at_first_ = false;
  request = std::move(first_);
  return true;
}

}  // namespace stemma
