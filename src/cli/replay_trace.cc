#include "cli/replay_trace.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
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

// Whether a request has as many tokens as its hashes stand for, the last page cut short or left
// out.
bool fits(const TraceRequest& request, std::int64_t page_tokens) {
  const std::int64_t hashed_tokens = std::ssize(request.page_hashes) * page_tokens;
  return std::abs(hashed_tokens - request.input_tokens) <= page_tokens;
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
  bool more = true;
  if (std::exchange(at_first_, false)) {
    request = std::move(first_);
  } else {
    STEMMA_ASSIGN_OR_RETURN(more, reader_.next(request));
  }
  if (more && !fits(request, page_tokens())) ++misfits_;
  return more;
}

void ReplayTrace::warn_if_misfit(const ReplayFlags& flags) const {
  if (misfits_ == 0) return;
  std::cerr << fmt::format(
      "stemma: {}: {} requests have more or fewer tokens than their hashes stand for, of {} each: "
      "is --page-tokens right?\n",
      flags.trace(), misfits_, page_tokens());
}

}  // namespace stemma
